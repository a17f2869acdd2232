use alloc::string::ToString as _;

use proptest::prelude::*;

use super::*;

const DAY_US: u64 = 86_400_000_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The worked case: 800 ms of work, 40 ms round trip, 200 ms margin, pauses of 60 ms.
fn worked() -> Inputs {
    Inputs {
        work_p99: Some(ms(800)),
        rtt_p99: Some(ms(40)),
        margin: Some(ms(200)),
        pause_p99: Some(ms(60)),
        ..Inputs::default()
    }
}

fn sum(figure: &Figure) -> Duration {
    figure.parts.iter().map(|part| part.adds).sum()
}

#[test]
fn the_worked_case_is_1040_ms_rounded_up_to_1500() {
    let derived = derive(&worked()).unwrap();
    assert_eq!(derived.covering.exact, ms(1_040));
    assert_eq!(derived.covering.rounded, ms(1_500));
    assert_eq!(derived.covering.ttl, Some(Ttl::from_millis(1_500).unwrap()));
    assert_eq!(derived.covering.drives, Component::Work);
    let parts: Vec<_> = derived.covering.parts.iter().map(|part| (part.component, part.adds)).collect();
    assert_eq!(
        parts,
        [
            (Component::Work, ms(800)),
            (Component::RoundTrip, ms(40)),
            (Component::Margin, ms(200)),
            (Component::Drift, ms(0)),
            (Component::EngineMinimum, ms(0)),
            (Component::Rounding, ms(460)),
        ]
    );
    assert_eq!(derived.findings, []);
}

#[test]
fn with_renewal_the_same_case_needs_four_answers_and_pauses_and_the_work_does_not_count() {
    let derived = derive(&worked()).unwrap();
    assert_eq!(derived.renewed.exact, ms(400));
    assert_eq!(derived.renewed.rounded, ms(500));
    assert_eq!(derived.renewed.drives, Component::Pause);
    let hours_of_work = derive(&Inputs { work_p99: Some(ms(7_200_000)), ..worked() }).unwrap();
    assert_eq!(hours_of_work.renewed, derived.renewed);
}

#[test]
fn the_drift_buffer_is_summed_before_rounding() {
    let derived = derive(&Inputs { drift: ms(200), ..worked() }).unwrap();
    assert_eq!((derived.covering.exact, derived.covering.rounded), (ms(1_240), ms(1_500)));
    assert_eq!(derived.findings, []);
}

#[test]
fn a_sum_on_the_step_stays_and_one_above_goes_up_a_whole_step() {
    let rounded = |margin| derive(&Inputs { margin: Some(margin), ..worked() }).unwrap().covering.rounded;
    assert_eq!(rounded(ms(660)), ms(1_500));
    assert_eq!(rounded(ms(660) + Duration::from_nanos(1)), ms(2_000));
}

#[test]
fn an_engine_of_whole_seconds_gets_whole_seconds_and_its_minimum() {
    let etcd = Inputs { engine: Granularity::ETCD, ..worked() };
    let derived = derive(&etcd).unwrap();
    assert_eq!((derived.covering.rounded, derived.covering.drives), (ms(2_000), Component::EngineMinimum));
    assert_eq!(derived.renewed.rounded, ms(2_000));
    let longer = derive(&Inputs { work_p99: Some(ms(2_100)), ..etcd }).unwrap();
    assert_eq!((longer.covering.exact, longer.covering.rounded), (ms(2_340), ms(3_000)));
}

#[test]
fn every_missing_input_is_named_at_once() {
    let refused = derive(&Inputs { margin: Some(ms(200)), ..Inputs::default() }).unwrap_err();
    assert_eq!(refused, Underivable::Missing(alloc::vec![Component::Work, Component::RoundTrip]));
    assert_eq!(refused.to_string(), "cannot derive a TTL without: work p99, round trip p99");
}

#[test]
fn absurd_durations_and_steps_are_refused_by_name() {
    let refused = |inputs: Inputs| derive(&inputs).unwrap_err().to_string();
    assert_eq!(refused(Inputs { work_p99: Some(Duration::MAX), ..worked() }), "work p99 must be at most 7d");
    assert_eq!(
        refused(Inputs { drift: ms(7 * 86_400_000 + 1), ..worked() }),
        "drift buffer must be at most 7d"
    );
    for step in [Duration::ZERO, Duration::from_micros(1_500), Duration::from_nanos(1)] {
        assert!(refused(Inputs { step, ..worked() }).starts_with("step must be"), "{step:?}");
    }
}

#[test]
fn a_drift_buffer_outside_50_to_200_ms_is_flagged_and_still_counted() {
    for (drift, flagged) in [(0, false), (1, true), (49, true), (50, false), (200, false), (201, true)] {
        let derived = derive(&Inputs { drift: ms(drift), ..worked() }).unwrap();
        assert_eq!(derived.covering.exact, ms(1_040 + drift));
        let found = derived.findings.iter().any(|finding| matches!(finding, Finding::DriftOutOfRange(_)));
        assert_eq!(found, flagged, "{drift} ms");
    }
}

#[test]
fn a_drift_buffer_that_does_not_grow_with_the_ttl_is_flagged() {
    // 1 % of 60 s is 600 ms.
    let long = Inputs { work_p99: Some(ms(59_000)), drift: ms(200), ..worked() };
    let derived = derive(&long).unwrap();
    let diverge = derived.covering.rounded / 100;
    assert!(derived.findings.contains(&Finding::DriftBelowRate { drift: ms(200), diverge }));
}

#[test]
fn a_margin_below_the_clock_margin_is_flagged_because_the_window_closes_within_the_work() {
    let thin = Inputs { work_p99: Some(ms(59_900)), rtt_p99: Some(ms(40)), margin: Some(ms(60)), ..worked() };
    let derived = derive(&thin).unwrap();
    assert_eq!(derived.covering.rounded, ms(60_000));
    let finding = Finding::WindowBelowWork { window: ms(59_398), needs: ms(59_940) };
    assert_eq!(derived.findings, [finding]);
}

#[test]
fn what_was_not_measured_is_said() {
    let derived = derive(&Inputs { rtt_p99: Some(Duration::ZERO), pause_p99: None, ..worked() }).unwrap();
    assert_eq!(derived.findings, [Finding::Zero(Component::RoundTrip), Finding::PauseUnknown]);
}

#[test]
fn a_namespace_bound_that_is_exceeded_is_said_for_each_figure() {
    let max_ttl = Ttl::from_millis(1_000).unwrap();
    let derived = derive(&Inputs { max_ttl, ..worked() }).unwrap();
    assert_eq!(derived.findings, [Finding::CoveringAboveMax(max_ttl)]);
    let far = Inputs { rtt_p99: Some(ms(86_400_000)), pause_p99: Some(ms(86_400_000)), ..worked() };
    let derived = derive(&far).unwrap();
    assert_eq!((derived.renewed.rounded, derived.renewed.ttl), (ms(8 * 86_400_000), None));
    assert!(derived.findings.ends_with(&[Finding::CoveringBelowRenewed, Finding::RenewedAboveMax(Ttl::MAX)]));
}

#[test]
fn a_close_engine_still_leaves_room_for_a_second_renewal() {
    let close =
        Inputs { rtt_p99: Some(Duration::from_micros(300)), pause_p99: Some(ms(1)), step: ms(1), ..worked() };
    let derived = derive(&close).unwrap();
    assert_eq!(derived.renewed.drives, Component::SecondAttempt);
    assert_eq!(derived.renewed.rounded, ms(66));
}

#[test]
fn a_window_asked_for_is_left_after_the_margin() {
    let derived = derive(&Inputs { min_window: Some(ms(5_000)), ..worked() }).unwrap();
    assert_eq!(derived.renewed.drives, Component::Window);
    assert!(derived.renewed.window >= ms(5_000));
}

prop_compose! {
    fn any_inputs()(
        work in 0..DAY_US, rtt in 0..2_000_000u64, margin in 0..2_000_000u64, drift in 0..400_000u64,
        pause in proptest::option::of(0..5_000_000u64), step in 1..5_000u64, engine_step in 1..5_000u32,
        engine_min in 1..20_000u32, drift_ppm in 0..=Margin::MAX_DRIFT_PPM, epsilon in 0..50_000u64,
        window in proptest::option::of(0..10_000_000u64),
    ) -> Inputs {
        let us = Duration::from_micros;
        Inputs {
            work_p99: Some(us(work)),
            rtt_p99: Some(us(rtt)),
            margin: Some(us(margin)),
            drift: us(drift),
            pause_p99: pause.map(us),
            step: ms(step),
            engine: Granularity {
                step_ms: NonZeroU32::new(engine_step).unwrap(),
                min_ms: NonZeroU32::new(engine_min).unwrap(),
            },
            clocks: Margin::new(drift_ppm, us(epsilon)).unwrap(),
            min_window: window.map(us),
            max_ttl: Ttl::MAX,
        }
    }
}

/// The three conditions on a renewed TTL, written as the holder meets them, in exact whole numbers: T in microseconds
/// times a million.
fn survives(ttl: Duration, inputs: &Inputs) -> bool {
    let us = |duration: Duration| i128::try_from(duration.as_micros()).unwrap();
    let million = 1_000_000;
    let ttl = us(ttl);
    let (rtt, pause) = (us(inputs.rtt_p99.unwrap()), us(inputs.pause_p99.unwrap_or_default()));
    let window = inputs.min_window.map_or((3 * rtt).max(10_000), us);
    let closes =
        ttl * (million - 2 * i128::from(inputs.clocks.drift_ppm())) - us(inputs.clocks.epsilon()) * million;
    let answered = ttl * million / 4 >= (rtt + pause) * million;
    let retry = (ttl * 83_334).max(20_000 * million);
    let second = closes - ttl * 383_334 - ttl * 250_000 - retry >= (rtt + pause) * million;
    answered && second && closes >= window * million
}

proptest! {
    #[test]
    fn the_parts_sum_to_the_ttl_and_the_largest_drives_it(inputs in any_inputs()) {
        let derived = derive(&inputs).unwrap();
        for figure in [&derived.covering, &derived.renewed] {
            prop_assert_eq!(sum(figure), figure.rounded);
            let most = figure.parts.iter().map(|part| part.adds).max().unwrap();
            let drives = figure.parts.iter().find(|part| part.component == figure.drives).unwrap();
            prop_assert_eq!(drives.adds, most);
        }
    }

    #[test]
    fn the_covering_ttl_is_the_sum_rounded_up_once(inputs in any_inputs()) {
        let covering = derive(&inputs).unwrap().covering;
        let exact = inputs.work_p99.unwrap() + inputs.rtt_p99.unwrap() + inputs.margin.unwrap() + inputs.drift;
        prop_assert_eq!(covering.exact, exact);
        let engine_step = u128::from(inputs.engine.step_ms.get());
        prop_assert_eq!(covering.rounded.as_micros() % (engine_step * 1_000), 0);
        let floor = exact.max(ms(u64::from(inputs.engine.min_ms.get()))).max(Ttl::MIN.as_duration());
        prop_assert!(covering.rounded >= floor);
        let engine_step = ms(u64::from(inputs.engine.step_ms.get()));
        prop_assert!(covering.rounded < floor + inputs.step + engine_step);
    }

    #[test]
    fn the_renewed_ttl_survives_a_lost_heartbeat_and_nothing_shorter_does(inputs in any_inputs()) {
        let renewed = derive(&inputs).unwrap().renewed;
        prop_assert!(survives(renewed.exact, &inputs));
        prop_assert!(survives(renewed.rounded, &inputs));
        let shorter = renewed.exact.checked_sub(Duration::from_micros(1));
        prop_assert!(shorter.is_none_or(|shorter| !survives(shorter, &inputs)));
    }

    #[test]
    fn a_worse_measurement_never_shortens_either_ttl(inputs in any_inputs(), by in 1..5_000_000u64, which in 0..5usize) {
        let better = derive(&inputs).unwrap();
        let by = Duration::from_micros(by);
        let mut inputs = inputs;
        let fields = [
            &mut inputs.work_p99, &mut inputs.rtt_p99, &mut inputs.margin, &mut inputs.pause_p99,
        ];
        match fields.into_iter().nth(which) {
            Some(field) => *field = Some(field.unwrap_or_default() + by),
            None => inputs.drift += by,
        }
        let worse = derive(&inputs).unwrap();
        prop_assert!(worse.covering.rounded >= better.covering.rounded);
        prop_assert!(worse.renewed.rounded >= better.renewed.rounded);
    }

    #[test]
    fn no_input_panics_or_overflows(
        given in proptest::array::uniform6(proptest::option::of(0..=u64::MAX)), step in 0..=u64::MAX,
        engine in 1..=u32::MAX, ppm in 0..=Margin::MAX_DRIFT_PPM,
    ) {
        let given = given.map(|given| given.map(Duration::from_micros));
        let engine = NonZeroU32::new(engine).unwrap();
        let inputs = Inputs {
            work_p99: given[0],
            rtt_p99: given[1],
            margin: given[2],
            drift: given[3].unwrap_or_default(),
            pause_p99: given[4],
            step: Duration::from_micros(step),
            engine: Granularity { step_ms: engine, min_ms: engine },
            clocks: Margin::new(ppm, given[5].unwrap_or_default()).unwrap(),
            min_window: given[5],
            max_ttl: Ttl::MIN,
        };
        match derive(&inputs) {
            Ok(derived) => prop_assert!(derived.covering.rounded >= derived.covering.exact),
            Err(refused) => prop_assert!(!refused.to_string().is_empty()),
        }
    }

    #[test]
    fn the_bounds_themselves_do_not_overflow(
        pick in proptest::array::uniform6(proptest::bool::ANY), engine in 1..=u32::MAX, ppm in 0..=Margin::MAX_DRIFT_PPM,
    ) {
        let week = pick.map(|longest| if longest { Ttl::MAX.as_duration() } else { Duration::ZERO });
        let engine = NonZeroU32::new(engine).unwrap();
        let inputs = Inputs {
            work_p99: Some(week[0]),
            rtt_p99: Some(week[1]),
            margin: Some(week[2]),
            drift: week[3],
            pause_p99: Some(week[4]),
            step: Ttl::MAX.as_duration(),
            engine: Granularity { step_ms: engine, min_ms: engine },
            clocks: Margin::new(ppm, week[5]).unwrap(),
            min_window: Some(week[5]),
            max_ttl: Ttl::MAX,
        };
        let derived = derive(&inputs).unwrap();
        prop_assert_eq!(sum(&derived.renewed), derived.renewed.rounded);
    }
}

//! The holder's machine, one rule at a time.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation
)]

use std::time::Duration;

use leasehold_core::{
    Label, LeaseId, Resource, Token, Ttl,
    error::Kind,
    holder::{Holder, Identity, Loss, State, Unusable},
    policy::{Policy, PolicyBuilder},
    record::{Gone, Grant, Renewed},
    window::{ClockRule, Reading},
};

const START: u64 = 1_000_000_000_000;

fn at(ms: u64) -> Reading {
    Reading::all(START + ms * 1_000_000)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn policy() -> PolicyBuilder {
    Policy::builder(Ttl::from_millis(3_000).unwrap()).jitter_percent(0)
}

fn grant(token: u64) -> Grant {
    let ttl = Ttl::from_millis(3_000).unwrap();
    Grant { token: Token::new(token).unwrap(), ttl, granted_us: 1, adopted: false, after_lapse: false }
}

fn granted(policy: PolicyBuilder, arrived: u64, known: Option<u64>) -> Result<Holder, Unusable> {
    let identity = Identity {
        resource: Resource::new("r").unwrap(),
        lease_id: LeaseId::from_bytes([1; 16]),
        token: Token::new(5).unwrap(),
    };
    let known = known.map(|token| Token::new(token).unwrap());
    let policy = policy.build().unwrap();
    Holder::granted(identity, &grant(5), policy, ClockRule::LargestOfThree, known, at(0), at(arrived), 0)
}

fn held() -> Holder {
    granted(policy(), 10, None).unwrap()
}

fn extended() -> Renewed {
    Renewed::Extended { ttl: Ttl::from_millis(3_000).unwrap() }
}

/// 3 s · 0.99 − 2 ms.
const CLOSE: u64 = 2_968;

#[test]
fn the_window_counts_from_the_send_and_not_from_the_answer() {
    let mut holder = granted(policy(), 2_000, None).unwrap();
    assert!(holder.tick(at(CLOSE - 1)).is_some_and(|t| t.to == State::Uncertain));
    assert_eq!(holder.tick(at(CLOSE)).unwrap().to, State::Lost(Loss::WindowClosed));
}

#[test]
fn a_grant_that_arrives_too_late_gives_no_lease() {
    assert_eq!(granted(policy(), CLOSE - 9, None).unwrap_err(), Unusable::TooLate);
    assert!(granted(policy(), CLOSE - 10, None).is_ok());
}

#[test]
fn a_token_that_went_back_gives_no_lease() {
    assert!(matches!(granted(policy(), 1, Some(5)), Err(Unusable::Regression { .. })));
    assert!(granted(policy(), 1, Some(4)).is_ok());
}

#[test]
fn it_becomes_uncertain_after_half_the_ttl_and_recovers_by_a_good_renewal() {
    let mut holder = held();
    assert!(holder.tick(at(1_500)).is_none());
    assert_eq!(holder.tick(at(1_501)).unwrap().to, State::Uncertain);
    let _ = holder.begin_renewal(at(1_600));
    assert_eq!(holder.renewal_answered(at(1_600), extended(), at(1_700), 0).unwrap().to, State::Held);
    assert!(holder.tick(at(1_600 + CLOSE - 1)).is_some_and(|t| t.to == State::Uncertain));
    assert!(holder.tick(at(1_600 + CLOSE)).is_some_and(|t| t.to == State::Lost(Loss::WindowClosed)));
}

#[test]
fn one_answered_renewal_between_a_third_and_the_close_keeps_the_lease() {
    let mut holder = held();
    let mut now = 0;
    while now < 2_800 {
        now += holder.wake_in(at(now)).unwrap().as_millis() as u64 + 1;
        let _ = holder.tick(at(now));
        if holder.wants_renewal(at(now), Duration::ZERO) {
            let _ = holder.begin_renewal(at(now));
            let _ = holder.renewal_failed(Kind::Unavailable, at(now), u64::MAX / 2);
        }
    }
    assert_eq!((holder.state(), holder.failures() > 3), (&State::Uncertain, true));
    let _ = holder.begin_renewal(at(2_900));
    assert_eq!(holder.renewal_answered(at(2_900), extended(), at(2_950), 0).unwrap().to, State::Held);
}

#[test]
fn a_good_answer_after_the_close_does_not_bring_a_lease_back() {
    let mut holder = held();
    let _ = holder.begin_renewal(at(1_000));
    let transition = holder.renewal_answered(at(1_000), extended(), at(CLOSE), 0).unwrap();
    assert_eq!(transition.to, State::Lost(Loss::WindowClosed));
    assert!(holder.renewal_answered(at(2_000), extended(), at(CLOSE + 1), 0).is_none());
    assert!(holder.drain(at(CLOSE + 2)).is_none() && holder.begin_release(at(CLOSE + 2)).is_none());
    assert!(holder.wake_in(at(CLOSE + 3)).is_none() && !holder.wants_renewal(at(CLOSE + 3), ms(10_000)));
}

#[test]
fn every_clear_answer_that_it_is_gone_ends_it_with_its_own_reason() {
    let label = |text| Label::new(text).unwrap();
    let token = Token::new(9).unwrap();
    let (by, reason) = (label("ops"), label("deploy"));
    let cases = [
        (Gone::Expired, Loss::Expired),
        (Gone::Superseded { token }, Loss::Superseded { token }),
        (
            Gone::Revoked { by: by.clone(), reason: reason.clone(), remaining: ms(5) },
            Loss::Revoked { by, reason, freed: false },
        ),
        (Gone::Released, Loss::ReleasedElsewhere),
        (Gone::Absent, Loss::Forgotten),
    ];
    for (gone, loss) in cases {
        let mut holder = held();
        let _ = holder.begin_renewal(at(1_000));
        let transition = holder.renewal_answered(at(1_000), Renewed::Gone(gone), at(1_010), 0).unwrap();
        assert_eq!(transition.to, State::Lost(loss));
    }
}

#[test]
fn renewals_go_on_while_draining_and_stop_with_the_release() {
    let mut holder = held();
    assert_eq!(holder.drain(at(100)).unwrap().to, State::Draining);
    assert!(holder.drain(at(101)).is_none());
    assert!(holder.wants_renewal(at(1_000), Duration::ZERO));
    let _ = holder.begin_renewal(at(1_000));
    assert!(holder.renewal_answered(at(1_000), extended(), at(1_010), 0).is_none());
    assert_eq!(holder.state(), &State::Draining);
    assert_eq!(holder.begin_release(at(1_020)).unwrap().to, State::Releasing);
    assert!(!holder.wants_renewal(at(2_500), Duration::ZERO));
    assert_eq!(holder.released().unwrap().to, State::Released);
    assert!(holder.released().is_none());
}

#[test]
fn a_renewal_answer_after_the_release_began_changes_nothing() {
    let mut holder = held();
    let _ = holder.begin_renewal(at(1_000));
    let _ = holder.begin_release(at(1_001));
    assert!(holder.renewal_answered(at(1_000), Renewed::Gone(Gone::Released), at(1_002), 0).is_none());
    assert_eq!(holder.state(), &State::Releasing);
}

#[test]
fn max_hold_ends_a_lease_however_well_it_renews() {
    let mut holder = granted(policy().max_hold(Some(ms(2_000))), 10, None).unwrap();
    let _ = holder.begin_renewal(at(1_000));
    let _ = holder.renewal_answered(at(1_000), extended(), at(1_010), 0);
    assert!(holder.tick(at(2_009)).is_none());
    assert_eq!(holder.tick(at(2_010)).unwrap().to, State::Lost(Loss::MaxHold));
}

#[test]
fn a_worker_without_progress_stops_being_renewed_and_one_with_progress_is_renewed_again() {
    let stuck = || granted(policy().progress_timeout(Some(ms(500))), 10, None).unwrap();
    let mut holder = stuck();
    assert!(!holder.wants_renewal(at(1_000), Duration::ZERO));
    assert!(
        !holder.wake_in(at(1_000)).unwrap().is_zero(),
        "a stalled worker must not be polled in a tight loop"
    );
    let _ = holder.tick(at(2_000));
    assert_eq!(holder.tick(at(CLOSE)).unwrap().to, State::Lost(Loss::NoProgress));
    let mut holder = stuck();
    assert!(!holder.wants_renewal(at(1_000), Duration::ZERO));
    holder.progress(at(1_100));
    assert!(holder.wants_renewal(at(1_200), Duration::ZERO));
}

#[test]
fn a_wake_makes_the_holder_renew_at_once() {
    let mut holder = held();
    assert!(!holder.wants_renewal(at(20), Duration::ZERO));
    holder.poke();
    assert!(holder.wants_renewal(at(20), Duration::ZERO));
    assert_eq!(holder.wake_in(at(20)), Some(Duration::ZERO));
}

#[test]
fn a_step_of_any_clock_ends_the_lease_early() {
    let mut holder = held();
    let stepped = Reading { real_ns: at(CLOSE).real_ns, ..at(20) };
    assert!(matches!(holder.tick(stepped).unwrap().to, State::Lost(Loss::WindowClosed)));
}

#[test]
fn a_wake_during_a_renewal_is_not_lost() {
    let mut holder = held();
    let _ = holder.begin_renewal(at(1_000));
    holder.poke();
    let _ = holder.renewal_answered(at(1_000), extended(), at(1_010), 0);
    assert!(holder.wants_renewal(at(1_011), Duration::ZERO), "what woke it may have come after the answer");
    let _ = holder.begin_renewal(at(1_011));
    let _ = holder.renewal_answered(at(1_011), extended(), at(1_020), 0);
    assert!(!holder.wants_renewal(at(1_021), Duration::ZERO));
}

#[test]
fn the_longest_hold_limit_does_not_overflow() {
    let mut holder = granted(policy().max_hold(Some(Duration::MAX)), 10, None).unwrap();
    assert!(holder.tick(at(1_000)).is_none());
}

#[test]
fn a_known_token_gives_no_lease_also_when_the_answer_repeats_an_earlier_one() {
    let identity = held().identity().clone();
    let adopted = Grant { adopted: true, ..grant(5) };
    let take = |known: u64| {
        let known = Some(Token::new(known).unwrap());
        let policy = policy().build().unwrap();
        Holder::granted(identity.clone(), &adopted, policy, ClockRule::Boot, known, at(0), at(1), 0)
    };
    assert!(take(4).is_ok());
    // Another grant had it: the store was restored, and gives numbers out again.
    assert!(matches!(take(5), Err(Unusable::Regression { .. })));
    assert!(matches!(take(6), Err(Unusable::Regression { .. })));
}

/// A reading of `ms` whose wall clock is off by `by` milliseconds.
fn stepped(ms: u64, by: i64) -> Reading {
    let even = at(ms);
    Reading { real_ns: even.real_ns.saturating_add_signed(by * 1_000_000), ..even }
}

#[test]
fn a_wall_clock_set_back_does_not_put_a_hold_limit_off() {
    let mut holder = granted(policy().max_hold(Some(ms(2_000))), 10, None).unwrap();
    for sent in [1_000, 1_900] {
        let _ = holder.begin_renewal(stepped(sent, -600_000));
        let _ = holder.renewal_answered(stepped(sent, -600_000), extended(), stepped(sent + 5, -600_000), 0);
    }
    assert!(!holder.window().is_closed(stepped(2_009, -600_000)));
    assert_eq!(holder.tick(stepped(2_010, -600_000)).unwrap().to, State::Lost(Loss::MaxHold));
}

#[test]
fn a_wall_clock_set_back_while_a_grant_is_on_its_way_does_not_end_it_at_once() {
    let identity = held().identity().clone();
    let policy = policy().max_hold(Some(ms(2_000))).build().unwrap();
    let (sent, now) = (at(0), stepped(10, -600_000));
    let holder = Holder::granted(identity, &grant(5), policy, ClockRule::LargestOfThree, None, sent, now, 0);
    assert!(holder.unwrap().tick(stepped(1_000, -600_000)).is_none());
}

#[test]
fn another_ttl_counts_from_the_renewal_that_asked_for_it() {
    let long = Ttl::from_millis(9_000).unwrap();
    let mut holder = held();
    // One that is under way asks for the old one.
    assert_eq!(holder.begin_renewal(at(1_000)).ttl.as_millis(), 3_000);
    holder.set_ttl(long).unwrap();
    assert_eq!(holder.renewal_answered(at(1_000), extended(), at(1_010), 0), None);
    assert_eq!(holder.policy().ttl().as_millis(), 3_000);
    assert_eq!(holder.begin_renewal(at(2_000)).ttl, long);
    // Unanswered, nothing has changed; answered, window and interval follow.
    assert_eq!(holder.window().closes(), at(1_000 + CLOSE));
    assert_eq!(holder.renewal_answered(at(2_000), Renewed::Extended { ttl: long }, at(2_010), 0), None);
    assert_eq!(holder.policy().ttl(), long);
    assert_eq!(holder.window().closes(), at(2_000 + 8_908));
    assert_eq!(holder.wake_in(at(2_010)), Some(ms(2_990)));
}

#[test]
fn a_jitter_counts_from_the_next_renewal() {
    let mut holder = held();
    holder.set_jitter(50).unwrap();
    assert!(holder.set_jitter(51).is_err());
    assert_eq!(holder.policy().jitter_percent(), 0, "not before it");
    // Another TTL that is asked for by the same renewal takes nothing back, whichever came first.
    holder.set_ttl(Ttl::from_millis(6_000).unwrap()).unwrap();
    let sent = at(1_000);
    let _ = holder.begin_renewal(sent);
    let answer = Renewed::Extended { ttl: Ttl::from_millis(6_000).unwrap() };
    let _ = holder.renewal_answered(sent, answer, at(1_010), u64::MAX);
    assert_eq!((holder.policy().jitter_percent(), holder.policy().ttl().as_millis()), (50, 6_000));
    // The longest way to the next one: two seconds and half of them.
    assert!(!holder.wants_renewal(at(3_990), ms(0)) && holder.wants_renewal(at(4_001), ms(0)));
}

#[test]
fn a_shorter_ttl_shortens_no_window() {
    let short = Ttl::from_millis(600).unwrap();
    let mut holder = held();
    holder.set_ttl(short).unwrap();
    assert_eq!(holder.begin_renewal(at(100)).ttl, short);
    assert_eq!(holder.renewal_answered(at(100), Renewed::Extended { ttl: short }, at(110), 0), None);
    assert_eq!(holder.window().closes(), at(CLOSE), "what was granted stands");
    assert_eq!(holder.policy().ttl(), short);
}

#[test]
fn a_ttl_that_the_engine_refuses_is_forgotten_and_the_old_one_asked_for_at_once() {
    let mut holder = held();
    holder.set_ttl(Ttl::from_millis(9_000).unwrap()).unwrap();
    assert_eq!(holder.begin_renewal(at(1_000)).ttl.as_millis(), 9_000);
    assert_eq!(holder.renewal_failed(Kind::Invalid, at(1_010), 0), None);
    assert!(holder.wants_renewal(at(1_010), Duration::ZERO));
    assert_eq!(holder.begin_renewal(at(1_010)).ttl.as_millis(), 3_000);
    assert_eq!(holder.renewal_answered(at(1_010), extended(), at(1_020), 0), None);
    assert_eq!(holder.policy().ttl().as_millis(), 3_000);
}

#[test]
fn a_ttl_that_leaves_no_window_is_refused() {
    let mut holder = granted(policy().min_window(ms(1_000)), 10, None).unwrap();
    assert!(holder.set_ttl(Ttl::from_millis(100).unwrap()).is_err());
    assert_eq!(holder.begin_renewal(at(1_000)).ttl.as_millis(), 3_000);
}

//! More hand-made bad histories and their good twins: the invariants that need to know what the coordinator, the fence or the
//! network did.

use std::time::Duration;

use leasehold_core::{LeaseId, Token};

use super::{
    Bounds, ClockErrors, Event, History, Part, What, ambiguity, amnesia, effects, exact, healthy, numbering,
    orphan, overlap, quarantine, regression, rightful, sealing, waiting,
};

const MS: u64 = 1_000_000;

fn id(n: u8) -> LeaseId {
    LeaseId::from_bytes([n; 16])
}

fn token(n: u64) -> Token {
    Token::new(n).unwrap()
}

fn at(ms: u64, grant: u8, what: What) -> Event {
    Event { at_ns: ms * MS, process: format!("p{grant}"), resource: "r".into(), lease_id: id(grant), what }
}

fn granted(ms: u64, close_ms: u64, grant: u8, number: u64) -> Event {
    let (open_ns, close_ns) = (ms * MS, close_ms * MS);
    at(
        ms,
        grant,
        What::Granted { token: token(number), sent_ns: Some(open_ns), open_ns, close_ns, ttl_ms: None },
    )
}

fn write(ms: u64, grant: u8, number: u64, version: u64, op_seq: u64, based_on: u64) -> Event {
    let (op_seq, based_on) = (Some(op_seq), Some(based_on));
    at(ms, grant, What::Write { token: token(number), admitted: true, version, op_seq, based_on })
}

fn sealed(ms: u64, grant: u8, number: u64, version: u64) -> Event {
    at(ms, grant, What::Sealed { token: token(number), admitted: true, version })
}

fn broken(events: Vec<Event>) -> Vec<&'static str> {
    History::new(events).judge().broken()
}

fn broken_in_time(events: Vec<Event>) -> Vec<&'static str> {
    let bound = Duration::from_millis(100);
    History::new(events).judge_within(&Bounds { wait: bound, handover: bound, stands: bound }).broken()
}

const NOTHING: [&str; 0] = [];

#[test]
fn an_overlap_within_the_error_of_two_clocks_is_possible_and_not_certain() {
    let events = vec![granted(10, 20, 1, 1), granted(18, 30, 2, 2)];
    let mut errors = ClockErrors::default();
    errors.set("p1", MS);
    errors.set("p2", MS);
    let report = History::new(events.clone()).within(errors.clone()).judge();
    assert!(report.is_clean() && report.possible.len() == 1, "2 ms of overlap, and 2 ms of doubt: {report}");
    errors.set("p2", MS / 2);
    assert_eq!(History::new(events.clone()).within(errors).judge().broken(), [overlap::NAME]);
    assert_eq!(broken(events), [overlap::NAME], "on one machine there is no doubt");
}

#[test]
fn an_update_that_was_read_before_the_seal_is_found() {
    let good = vec![write(1, 1, 1, 1, 1, 0), sealed(2, 2, 2, 1), write(3, 2, 2, 2, 1, 1)];
    assert_eq!(broken(good), NOTHING);
    // The new holder read version 0; the old one's write came in between.
    assert_eq!(broken(vec![write(1, 1, 1, 1, 1, 0), write(3, 2, 2, 2, 1, 0)]), [sealing::NAME]);
    let late = vec![sealed(1, 2, 2, 0), write(2, 1, 1, 1, 1, 0)];
    assert_eq!(broken(late), [sealing::NAME]);
}

#[test]
fn writes_of_one_grant_that_crossed_are_found() {
    assert_eq!(broken(vec![write(1, 1, 1, 1, 1, 0), write(2, 1, 1, 2, 2, 1)]), NOTHING);
    assert_eq!(broken(vec![write(1, 1, 1, 1, 2, 0), write(2, 1, 1, 2, 1, 1)]), [numbering::NAME]);
}

#[test]
fn a_request_that_changes_anothers_grant_is_found() {
    let changed = |asked, stood, stood_token| at(5, 1, What::Changed { asked, stood, stood_token });
    assert_eq!(broken(vec![changed(Some(7), id(1), 7), changed(None, id(1), 7)]), NOTHING);
    assert_eq!(broken(vec![changed(Some(7), id(2), 8)]), [exact::NAME]);
    assert_eq!(broken(vec![changed(Some(6), id(1), 7)]), [exact::NAME]);
}

#[test]
fn a_claim_that_was_disowned_and_stands_is_found() {
    let stands = |ms| at(ms, 1, What::Stands { token: token(3) });
    assert_eq!(broken(vec![stands(1), at(2, 1, What::Disowned)]), NOTHING);
    assert_eq!(broken(vec![at(2, 1, What::Disowned), stands(3)]), [ambiguity::NAME]);
}

#[test]
fn a_grant_in_the_time_of_amnesia_is_found() {
    let forgot = at(10, 0, What::Forgot { for_ms: 20 });
    let attempt = at(11, 2, What::Attempt);
    assert_eq!(broken(vec![forgot.clone(), attempt.clone(), granted(30, 40, 2, 2)]), NOTHING);
    assert_eq!(broken(vec![forgot.clone(), attempt, granted(29, 40, 2, 2)]), [amnesia::NAME]);
    // A claim from before may find what it was granted before.
    assert_eq!(broken(vec![at(9, 2, What::Attempt), forgot, granted(29, 40, 2, 2)]), NOTHING);
}

#[test]
fn a_token_that_went_back_and_was_used_is_found() {
    let of = |process: &str, event: Event| Event { process: process.into(), ..event };
    let before = of("p", granted(10, 20, 1, 5));
    let good = vec![before.clone(), of("p", granted(30, 40, 2, 6))];
    assert_eq!(broken(good), NOTHING);
    let equal = broken(vec![before, of("p", granted(30, 40, 2, 5))]);
    assert!(equal.contains(&regression::NAME), "{equal:?}");
}

#[test]
fn half_an_effect_and_two_effects_are_found() {
    let part = |part| at(1, 1, What::Committed { key: 7, part });
    let whole = vec![part(Part::Effect), part(Part::Record), part(Part::Event)];
    assert_eq!(broken(whole.clone()), NOTHING);
    assert_eq!(broken(whole[..2].to_vec()), [effects::NAME]);
    let twice = [whole.clone(), whole[..1].to_vec()].concat();
    assert_eq!(broken(twice), [effects::NAME]);
}

#[test]
fn a_waiter_and_a_free_resource_left_lying_are_found() {
    let calm = at(0, 0, What::Calm);
    let attempt = |ms, grant| at(ms, grant, What::Attempt);
    let free = |ms| at(ms, 9, What::Free);
    let good = vec![calm.clone(), attempt(10, 1), free(20), granted(110, 120, 1, 1)];
    assert_eq!(broken_in_time(good), NOTHING);
    assert_eq!(broken_in_time(vec![calm.clone(), attempt(10, 1), granted(111, 120, 1, 1)]), [waiting::WAIT]);
    // Nobody asks any more, and one still waits when the history ends.
    assert_eq!(broken_in_time(vec![calm.clone(), attempt(10, 1), attempt(120, 2)]), [waiting::WAIT]);
    // One after another waits briefly and gives up, and the resource is free all the time.
    let idle = vec![
        calm,
        free(5),
        attempt(10, 1),
        attempt(90, 2),
        attempt(100, 3),
        granted(111, 120, 2, 1),
        at(112, 1, What::GaveUp),
        at(112, 3, What::GaveUp),
    ];
    assert!(broken_in_time(idle).contains(&waiting::HANDOVER));
}

#[test]
fn an_orphan_and_a_lease_beyond_its_ttl_are_found() {
    let stands = |ms| at(ms, 1, What::Stands { token: token(1) });
    let events = |ms| vec![at(0, 0, What::Calm), granted(10, 20, 1, 1), stands(ms)];
    assert_eq!(broken_in_time(events(120)), NOTHING);
    assert_eq!(broken_in_time(events(121)), [orphan::NAME]);
    let busy = |left_ms| vec![at(1, 1, What::Busy { left_ms, ttl_ms: 30_000 })];
    assert_eq!(broken(busy(30_000)), NOTHING);
    assert_eq!(broken(busy(3_670_000)), [orphan::LOCKED]);
}

#[test]
fn a_healthy_holder_that_loses_and_a_stuck_one_that_does_not_are_found() {
    let lost = at(15, 1, What::Lost { token: token(1) });
    let calm = at(0, 0, What::Calm);
    let told = at(14, 1, What::Told);
    assert_eq!(broken_in_time(vec![calm.clone(), granted(10, 20, 1, 1), told, lost.clone()]), NOTHING);
    assert_eq!(broken_in_time(vec![calm, granted(10, 20, 1, 1), lost.clone()]), [healthy::NAME]);
    assert_eq!(broken_in_time(vec![granted(10, 20, 1, 1), lost]), NOTHING, "it was not calm");
    let limited = at(10, 1, What::Limited { hold_ms: 100 });
    let held = |ms| at(ms, 1, What::Held { token: token(1) });
    assert_eq!(broken(vec![granted(10, 500, 1, 1), limited.clone(), held(110)]), NOTHING);
    assert_eq!(broken(vec![granted(10, 500, 1, 1), limited, held(120)]), [healthy::STUCK]);
}

#[test]
fn a_quarantine_without_end_is_found() {
    let forgot = at(10, 0, What::Forgot { for_ms: 1_000 });
    let left =
        |sent_ms: u64, left_ms| at(sent_ms + 5, 1, What::Quarantined { sent_ns: sent_ms * MS, left_ms });
    assert_eq!(broken(vec![forgot.clone(), left(500, 520)]), NOTHING);
    assert_eq!(broken(vec![forgot, left(500, 1_000)]), [quarantine::NAME]);
}

#[test]
fn a_rightful_holder_that_is_refused_is_found() {
    let refused = |ms, grant, number, op_seq| {
        let what = What::Write {
            token: token(number),
            admitted: false,
            version: 1,
            op_seq: Some(op_seq),
            based_on: None,
        };
        at(ms, grant, what)
    };
    let stale = vec![sealed(1, 2, 2, 0), refused(2, 1, 1, 1)];
    assert_eq!(broken(stale), NOTHING);
    let repeated = vec![sealed(1, 2, 2, 0), write(2, 2, 2, 1, 1, 0), refused(3, 2, 2, 1)];
    assert_eq!(broken(repeated), NOTHING);
    let second = vec![sealed(1, 2, 2, 0), write(2, 2, 2, 1, 1, 0), refused(3, 2, 2, 2)];
    assert_eq!(broken(second), [rightful::NAME]);
}

//! A hand-made bad history for every invariant, and its good twin.

use std::time::Duration;

use leasehold_core::{LeaseId, Token};

use super::{
    Event, Fairness, History, What, conservative, fairness, fence, identity, order, overlap, resurrection,
};

fn id(n: u8) -> LeaseId {
    LeaseId::from_bytes([n; 16])
}

fn token(n: u64) -> Token {
    Token::new(n).unwrap()
}

fn at(at_ns: u64, grant: u8, what: What) -> Event {
    Event { at_ns, process: format!("p{grant}"), resource: "r".into(), lease_id: id(grant), what }
}

fn granted(open_ns: u64, close_ns: u64, grant: u8, number: u64) -> Event {
    let what = What::Granted { token: token(number), sent_ns: None, open_ns, close_ns, ttl_ms: None };
    at(open_ns, grant, what)
}

fn broken(events: Vec<Event>) -> Vec<&'static str> {
    History::new(events).judge().broken()
}

#[test]
fn overlapping_windows_are_found_with_the_two_grants() {
    assert_eq!(broken(vec![granted(10, 20, 1, 1), granted(20, 30, 2, 2)]), Vec::<&str>::new());
    let report =
        History::new(vec![granted(10, 20, 1, 1), granted(19, 30, 2, 2), granted(40, 50, 3, 3)]).judge();
    assert_eq!(report.broken(), [overlap::NAME]);
    let evidence: Vec<LeaseId> = report.violations[0].evidence.iter().map(|event| event.lease_id).collect();
    assert_eq!(evidence, [id(1), id(2)]);
}

#[test]
fn a_long_window_overlaps_more_than_its_neighbour() {
    let events = vec![granted(10, 100, 1, 1), granted(20, 20, 2, 2), granted(50, 60, 3, 3)];
    assert!(broken(events).contains(&overlap::NAME));
}

#[test]
fn an_extension_and_an_early_end_count() {
    let extended = at(15, 1, What::Extended { token: token(1), sent_ns: None, close_ns: 40 });
    assert_eq!(broken(vec![granted(10, 20, 1, 1), extended.clone(), granted(30, 50, 2, 2)]), [overlap::NAME]);
    let released = at(29, 1, What::Released { token: token(1) });
    assert!(
        broken(vec![granted(10, 20, 1, 1), extended.clone(), released, granted(30, 50, 2, 2)]).is_empty()
    );
    let lost = at(29, 1, What::Lost { token: token(1) });
    assert!(broken(vec![granted(10, 20, 1, 1), extended, lost, granted(30, 50, 2, 2)]).is_empty());
}

#[test]
fn a_token_that_falls_is_found() {
    assert_eq!(broken(vec![granted(10, 20, 1, 5), granted(30, 40, 2, 4)]), [order::NAME]);
    // Not only between neighbours.
    assert_eq!(broken(vec![granted(10, 20, 1, 9), granted(30, 40, 2, 10), granted(50, 60, 3, 9)]).len(), 2);
}

#[test]
fn answers_that_crossed_have_no_order() {
    let mut first = granted(10, 20, 1, 5);
    first.what = What::Granted { token: token(5), sent_ns: Some(1), open_ns: 10, close_ns: 20, ttl_ms: None };
    let mut second = granted(30, 40, 2, 4);
    second.what =
        What::Granted { token: token(4), sent_ns: Some(5), open_ns: 30, close_ns: 40, ttl_ms: None };
    assert!(broken(vec![first, second]).is_empty());
}

#[test]
fn a_token_of_two_grants_and_a_grant_of_two_tokens_are_found() {
    assert_eq!(broken(vec![granted(10, 20, 1, 5), granted(30, 40, 2, 5)]), [identity::NAME]);
    let extended = at(15, 1, What::Extended { token: token(6), sent_ns: None, close_ns: 30 });
    assert_eq!(broken(vec![granted(10, 20, 1, 5), extended]), [identity::NAME]);
}

#[test]
fn belief_after_the_end_is_found() {
    let released = at(15, 1, What::Released { token: token(1) });
    let held = |at_ns| at(at_ns, 1, What::Held { token: token(1) });
    assert!(broken(vec![granted(10, 20, 1, 1), held(14), released.clone()]).is_empty());
    assert_eq!(broken(vec![granted(10, 20, 1, 1), released, held(16)]), [resurrection::NAME]);
    assert_eq!(broken(vec![granted(10, 20, 1, 1), held(20)]), [resurrection::NAME]);
    let late = at(25, 1, What::Extended { token: token(1), sent_ns: None, close_ns: 40 });
    assert_eq!(broken(vec![granted(10, 20, 1, 1), late]), [resurrection::NAME]);
}

#[test]
fn a_window_counted_from_the_answer_is_found() {
    let what = |close_ns| What::Granted {
        token: token(1),
        sent_ns: Some(1_000_000),
        open_ns: 9_000_000,
        close_ns,
        ttl_ms: Some(100),
    };
    assert!(broken(vec![at(9_000_000, 1, what(101_000_000))]).is_empty());
    assert_eq!(broken(vec![at(9_000_000, 1, what(109_000_000))]), [conservative::NAME]);
    assert_eq!(broken(vec![at(9_000_000, 1, what(8_000_000))]), [conservative::NAME]);
    let narrowed = at(15, 1, What::Extended { token: token(1), sent_ns: None, close_ns: 18 });
    assert_eq!(broken(vec![granted(10, 20, 1, 1), narrowed]), [conservative::NAME]);
}

#[test]
fn an_admitted_write_of_an_older_grant_is_found() {
    let write = |at_ns, grant, number, admitted, version| {
        at(
            at_ns,
            grant,
            What::Write { token: token(number), admitted, version, op_seq: None, based_on: None },
        )
    };
    assert!(
        broken(vec![write(10, 1, 1, true, 1), write(30, 2, 2, true, 2), write(40, 1, 1, false, 2)])
            .is_empty()
    );
    assert_eq!(broken(vec![write(10, 2, 2, true, 1), write(30, 1, 1, true, 2)]), [fence::NAME]);
    // The resource's order counts, not the moment of writing it down.
    assert!(broken(vec![write(10, 2, 2, true, 2), write(30, 1, 1, true, 1)]).is_empty());
}

#[test]
fn starvation_is_found() {
    let bound = Fairness { longest_wait: Some(Duration::from_nanos(50)), least_share: 1 };
    let attempt = |at_ns, grant| at(at_ns, grant, What::Attempt);
    let fair = vec![attempt(0, 1), granted(50, 60, 1, 1), attempt(60, 2), granted(70, 80, 2, 2)];
    assert!(History::new(fair).judge_with(&bound).is_clean());
    let long = vec![attempt(0, 1), granted(51, 60, 1, 1)];
    assert_eq!(History::new(long).judge_with(&bound).broken(), [fairness::WAIT]);
    let unserved = vec![
        attempt(0, 1),
        attempt(1, 2),
        granted(10, 20, 2, 1),
        at(100, 2, What::Released { token: token(1) }),
    ];
    assert_eq!(History::new(unserved).judge_with(&bound).broken(), [fairness::WAIT, fairness::SHARE]);
    let given_up = vec![attempt(0, 1), at(10, 1, What::GaveUp)];
    assert_eq!(History::new(given_up).judge_with(&bound).broken(), [fairness::SHARE]);
}

#[test]
fn histories_survive_their_files_and_a_torn_last_line() {
    let events =
        vec![granted(10, 20, 1, 5), at(15, 1, What::Attempt), at(16, 2, What::Lost { token: token(7) })];
    let mut text: String = events.iter().map(|event| event.line().unwrap()).collect();
    assert_eq!(History::parse(&text).unwrap(), events);
    text.push_str("{\"at_ns\":17,\"proc");
    assert_eq!(History::parse(&text).unwrap(), events);
    text.push('\n');
    assert!(History::parse(&text).unwrap_err().to_string().contains("line 4"));
}

#[test]
fn a_judgement_of_nothing_says_so() {
    let report = History::default().judge();
    assert!(report.is_clean() && report.judged.grants == 0);
    assert!(report.to_string().contains("0 grants"));
}

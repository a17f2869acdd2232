//! What follows from the nodes' answers, without nodes.

use std::time::Duration;

use leasehold_core::{
    Error, HolderId, Kind, Label, LeaseId, Resource, Token, Ttl,
    quorum::Quorum,
    record::{Acquired, Busy, End, EndReason, Gone, Grant, Record},
};

use super::{
    merge,
    votes::{Circumstances, Verdict, Vote, Votes},
};
use crate::coordinator::redis::answer::Seen;

const NOW_US: u64 = 1_800_000_000_000_000;
const PROPOSED: u64 = NOW_US + 5_000;

fn token(value: u64) -> Token {
    Token::new(value).unwrap()
}

fn lease(n: u8) -> LeaseId {
    LeaseId::from_bytes([n; 16])
}

fn known(late: bool) -> Circumstances {
    Circumstances {
        proposed: token(PROPOSED),
        lease_id: lease(5),
        taken_back: Vec::new(),
        first_round: true,
        late,
        stopped: Vec::new(),
        over: false,
        unix_us: NOW_US,
    }
}

fn grant(value: u64, adopted: bool) -> Vote {
    let granted_us = if value == PROPOSED { PROPOSED } else { NOW_US };
    Vote::Granted(Grant { token: token(value), ttl: Ttl::DEFAULT, granted_us, adopted, after_lapse: false })
}

fn record(n: u8, value: u64, granted_us: u64, remaining: u64) -> Record {
    Record {
        lease_id: lease(n),
        token: token(value),
        ttl: Ttl::DEFAULT,
        remaining: Duration::from_secs(remaining),
        granted_us,
        holder_id: HolderId::from_bytes([1; 16]),
        label: Label::default(),
        revoked: None,
    }
}

fn busy(n: u8, granted_us: u64, remaining: u64) -> Vote {
    let holder = record(n, PROPOSED - 1, granted_us, remaining);
    Vote::Busy(Box::new(Busy { holder, position: None, recheck: Duration::ZERO }))
}

fn lost() -> Vote {
    Vote::Lost(Error::new(Kind::Unknown, "cut"))
}

fn unsent() -> Vote {
    Vote::Unsent(Error::new(Kind::Unavailable, "down"))
}

fn verdict(each: [Vote; 5], known: &Circumstances) -> Verdict {
    let mut votes = Votes::new(Quorum::of(5).unwrap());
    votes.each = each.into();
    votes.verdict(known)
}

use Vote::Waiting;

#[test]
fn a_majority_that_took_the_proposal_grants_and_one_that_did_not_confirms() {
    let took = || grant(PROPOSED, false);
    assert!(
        matches!(verdict([took(), took(), took(), Waiting, Waiting], &known(false)), Verdict::Take(t) if t == token(PROPOSED))
    );
    let own = || grant(PROPOSED + 7, false);
    let answer = verdict([took(), took(), own(), Waiting, Waiting], &known(false));
    assert!(matches!(answer, Verdict::Confirm(t) if t == token(PROPOSED + 8)), "{answer:?}");
    assert!(matches!(verdict([took(), took(), Waiting, Waiting, Waiting], &known(true)), Verdict::Wait));
}

#[test]
fn a_grant_that_stands_keeps_its_token_if_a_majority_has_it() {
    let stands = || grant(PROPOSED - 9, true);
    let answer = verdict([stands(), grant(PROPOSED, false), stands(), Waiting, Waiting], &known(false));
    assert!(matches!(answer, Verdict::Wait), "those who have not answered may have it: {answer:?}");
    let answer = verdict([stands(), grant(PROPOSED, false), stands(), stands(), Waiting], &known(false));
    assert!(matches!(answer, Verdict::Take(t) if t == token(PROPOSED - 9)), "{answer:?}");
    // What was taken back may vanish any moment, so a majority of it is none yet.
    let risky = Circumstances { taken_back: vec![token(PROPOSED - 9)], first_round: false, ..known(false) };
    let answer = verdict([stands(), stands(), stands(), Waiting, Waiting], &risky);
    assert!(matches!(answer, Verdict::Confirm(_)), "{answer:?}");
}

#[test]
fn one_word_that_the_job_is_done_is_enough() {
    let done = Vote::Done(NOW_US, Duration::from_secs(9));
    let answer = verdict([grant(PROPOSED, false), done, Waiting, Waiting, Waiting], &known(false));
    assert!(
        matches!(answer, Verdict::Answer(Acquired::AlreadyDone { started_us: NOW_US, .. })),
        "{answer:?}"
    );
}

#[test]
fn whom_a_majority_names_is_the_holder_for_as_long_as_a_majority_has_it() {
    let old = NOW_US - 10_000_000;
    let answer =
        verdict([busy(1, old, 9), busy(1, old, 3), busy(1, old, 5), Waiting, Waiting], &known(false));
    let Verdict::Answer(Acquired::Busy(busy_for)) = answer else { panic!("{answer:?}") };
    assert_eq!((busy_for.holder.lease_id, busy_for.holder.remaining), (lease(1), Duration::from_secs(3)));
    // An old grant with a node that is down is a holder, not a contender.
    let answer = verdict(
        [busy(1, old, 9), busy(1, old, 9), grant(PROPOSED, false), grant(PROPOSED, false), lost()],
        &known(true),
    );
    assert!(matches!(answer, Verdict::Answer(Acquired::Busy(_))), "{answer:?}");
}

#[test]
fn of_claims_that_meet_one_insists() {
    let mine = || grant(PROPOSED, false);
    let ahead = |each| matches!(verdict(each, &known(true)), Verdict::Contend { ahead: true, .. });
    assert!(
        ahead([mine(), mine(), busy(9, NOW_US, 30), busy(9, NOW_US, 30), lost()]),
        "equally many: the smaller lease id"
    );
    assert!(
        !ahead([mine(), mine(), busy(1, NOW_US, 30), busy(1, NOW_US, 30), lost()]),
        "the other has the smaller one"
    );
    assert!(ahead([mine(), mine(), busy(1, NOW_US, 30), busy(2, 0, 30), lost()]), "most nodes");
    assert!(
        !ahead([busy(7, NOW_US, 30), busy(7, NOW_US, 30), busy(8, NOW_US, 30), busy(8, NOW_US, 30), lost()]),
        "none"
    );
}

#[test]
fn a_divided_majority_waits_for_a_slow_node_that_decides_and_not_for_a_stopped_one() {
    let old = NOW_US - 60_000_000;
    let divided =
        || [grant(PROPOSED, false), grant(PROPOSED, false), busy(1, old, 9), busy(1, old, 9), Waiting];
    let answer = verdict(divided(), &known(true));
    assert!(matches!(answer, Verdict::Wait), "the fifth may make it a grant: {answer:?}");
    let stopped = Circumstances { stopped: vec![4], ..known(true) };
    let answer = verdict(divided(), &stopped);
    assert!(matches!(answer, Verdict::Answer(Acquired::Busy(_))), "{answer:?}");
    // One that can change nothing is not waited for.
    let lost_already = [grant(PROPOSED, false), busy(1, old, 9), busy(1, old, 9), Waiting, unsent()];
    let answer = verdict(lost_already, &known(true));
    assert!(matches!(answer, Verdict::Answer(Acquired::Busy(_))), "{answer:?}");
}

#[test]
fn a_quarantine_is_answered_when_only_it_stands_between_a_claim_and_a_majority() {
    let quarantined = |seconds| Vote::Quarantined(Duration::from_secs(seconds));
    let each = [grant(PROPOSED, false), quarantined(9), quarantined(3), quarantined(7), busy(1, NOW_US, 30)];
    let answer = verdict(each, &known(false));
    let seven = Duration::from_secs(7);
    assert!(
        matches!(answer, Verdict::Answer(Acquired::Quarantined { remaining, .. }) if remaining == seven),
        "{answer:?}"
    );
}

#[test]
fn unknown_is_only_what_a_majority_may_have_granted() {
    let mine = || grant(PROPOSED, false);
    let kind = |each: [Vote; 5], over| match verdict(each, &Circumstances { over, ..known(true) }) {
        Verdict::Fail { error, standing } => Some((error.kind(), standing)),
        _ => None,
    };
    assert_eq!(kind([mine(), mine(), lost(), unsent(), unsent()], true), Some((Kind::Unknown, true)));
    assert_eq!(kind([mine(), lost(), unsent(), unsent(), unsent()], false), Some((Kind::Unavailable, false)));
    assert_eq!(kind([Waiting, Waiting, Waiting, mine(), Waiting], true), Some((Kind::Unknown, true)));
    let refused = || Vote::Refused(Error::new(Kind::Invalid, "too long"));
    assert_eq!(
        kind([refused(), refused(), refused(), Waiting, Waiting], false),
        Some((Kind::Invalid, false))
    );
}

fn seen(record: Option<Record>, last: u64) -> Seen {
    Seen {
        record,
        last_token: Some(token(last)),
        last_end: None,
        last_success_us: None,
        waiters: Vec::new(),
        waiting: 0,
        known: true,
    }
}

#[test]
fn a_remnant_is_not_held_and_an_offer_that_nobody_took_up_is_no_token() {
    let quorum = Quorum::of(3).unwrap();
    let resource = || Resource::new("r").unwrap();
    let remnant = [seen(Some(record(1, 7, NOW_US, 9)), 7), seen(None, 5), seen(None, 5)];
    let inspection = merge::seen(quorum, resource(), &remnant);
    assert_eq!((inspection.record, inspection.last_token), (None, Some(token(5))));
    // With a node that says nothing it may be more, and nobody else can have the resource.
    let doubtful = [seen(Some(record(1, 7, NOW_US, 9)), 7), seen(None, 5)];
    assert_eq!(
        merge::seen(quorum, resource(), &doubtful).record.map(|record| record.lease_id),
        Some(lease(1))
    );
    // A node that missed the second phase has a token of its own.
    let held = [seen(Some(record(1, 9, 0, 9)), 9), seen(Some(record(1, 7, NOW_US, 4)), 7), seen(None, 5)];
    let merged = merge::seen(quorum, resource(), &held).record.unwrap();
    assert_eq!((merged.token, merged.remaining), (token(7), Duration::from_secs(4)));
}

#[test]
fn most_reasons_win_and_an_end_that_only_a_minority_knows_does_not() {
    let quorum = Quorum::of(3).unwrap();
    assert_eq!(merge::gone(quorum, &[Gone::Absent, Gone::Released, Gone::Released]), Gone::Released);
    let superseded = |value| Gone::Superseded { token: token(value) };
    assert_eq!(merge::gone(quorum, &[superseded(4), Gone::Expired, superseded(9)]), superseded(9));
    assert_eq!(merge::gone(quorum, &[Gone::Absent, Gone::Released]), Gone::Released);
    let end = |n, value, reason| End {
        lease_id: lease(n),
        token: token(value),
        reason,
        by: Label::default(),
        at_us: 0,
    };
    let ends = [end(1, 5, EndReason::Released), end(1, 5, EndReason::Expired), end(2, 9, EndReason::Expired)];
    let last = merge::last_end(quorum, &ends).unwrap();
    assert_eq!((last.lease_id, last.reason), (lease(1), EndReason::Released));
}

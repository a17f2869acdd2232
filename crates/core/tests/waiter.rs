//! The waiter's machine, one rule at a time.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation
)]

use std::time::Duration;

use leasehold_core::{
    Error, HolderId, Kind, Label, LeaseId, Token, Ttl,
    backoff::Backoff,
    record::{Acquired, Busy, Queued, Record},
    waiter::{Next, Refusal, Wait, Waiter},
    window::{ClockRule, Reading},
};
use proptest::prelude::*;

fn at(ms: u64) -> Reading {
    Reading::all(1_000_000_000 + ms * 1_000_000)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn busy(remaining: Duration, recheck: Duration) -> Acquired {
    let holder = Record {
        lease_id: LeaseId::from_bytes([7; 16]),
        token: Token::new(3).unwrap(),
        ttl: Ttl::DEFAULT,
        remaining,
        granted_us: 0,
        holder_id: HolderId::from_bytes([8; 16]),
        label: Label::new("other").unwrap(),
        revoked: None,
    };
    Acquired::Busy(Busy { holder, position: Some(0), recheck })
}

fn waiter(wait: Wait, evented: bool) -> Waiter {
    Waiter::new(wait, Backoff::default(), evented, ClockRule::Boot, at(0))
}

proptest! {
    /// A waiter looks again when the engine says, or (without events) soon after the grant in the way must be over; never in
    /// a loop.
    #[test]
    fn every_sleep_is_bounded_by_the_hint_or_what_is_left_of_the_grant(
        remaining in 0u64..100_000, recheck in 0u64..100_000, evented: bool, random: u64, rounds in 1u32..40,
    ) {
        let mut waiter = waiter(Wait::Forever, evented);
        for _ in 0..rounds {
            let Next::Sleep(delay) = waiter.answered(busy(ms(remaining), ms(recheck)), at(1), random) else {
                panic!("a waiter that waits for ever sleeps")
            };
            let bound = if evented { ms(recheck) } else { Backoff::DEFAULT_CAP.min(ms(remaining)) };
            prop_assert!(delay >= ms(1) && delay <= bound + ms(21));
        }
    }

    #[test]
    fn no_sleep_goes_beyond_the_wait(wait in 0u64..10_000, at_ms in 0u64..20_000, random: u64) {
        let mut waiter = waiter(Wait::For(ms(wait)), true);
        match waiter.answered(busy(ms(60_000), ms(15_000)), at(at_ms), random) {
            Next::Sleep(delay) => prop_assert!(at_ms < wait && delay <= ms(wait - at_ms)),
            Next::Refuse(Refusal::Busy(_)) => prop_assert!(at_ms >= wait),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn try_once_is_refused_with_who_holds_it() {
    let next = waiter(Wait::No, true).answered(busy(ms(500), ms(100)), at(0), 0);
    assert!(matches!(next, Next::Refuse(Refusal::Busy(busy)) if busy.holder.label.as_str() == "other"));
    assert!(!waiter(Wait::No, true).queues() && waiter(Wait::For(ms(1)), true).queues());
}

#[test]
fn the_hint_of_an_evented_engine_replaces_the_backoff() {
    let queued = Queued { ahead: 5, position: Some(5), recheck: ms(15_000) };
    let next = waiter(Wait::Forever, true).answered(Acquired::Queued(queued.clone()), at(0), 0);
    assert_eq!(next, Next::Sleep(ms(15_000)));
    let next = waiter(Wait::Forever, false).answered(Acquired::Queued(queued), at(0), 0);
    assert_eq!(next, Next::Sleep(ms(1)));
}

/// Those behind the front of the line look one after another, so that an expiry draws no stampede, and nobody sleeps long
/// behind dead ones.
#[test]
fn re_checks_behind_an_expiring_grant_are_staggered() {
    use leasehold_core::line::{RECHECK_BACK, RESERVATION, recheck};
    let checks: Vec<Duration> = (0..40).map(|ahead| recheck(ahead, ms(300))).collect();
    assert_eq!(checks[..3], [ms(300), ms(300), ms(300) + RESERVATION]);
    assert!(checks[1..].windows(2).all(|pair| pair[1] == (pair[0] + RESERVATION).min(RECHECK_BACK)));
    assert_eq!(recheck(u32::MAX, Duration::MAX), RECHECK_BACK);
}

#[test]
fn an_unreachable_engine_is_asked_again_until_the_wait_ends() {
    let error = || Error::new(Kind::Unavailable, "down");
    let mut patient = waiter(Wait::For(ms(1_000)), true);
    assert!(matches!(patient.failed(error(), at(10), u64::MAX), Next::Sleep(delay) if delay <= ms(75)));
    assert!(matches!(patient.failed(error(), at(999), u64::MAX), Next::Sleep(delay) if delay <= ms(1)));
    assert_eq!(patient.failed(error(), at(1_000), 0), Next::Fail(error()));
    assert_eq!(waiter(Wait::No, true).failed(error(), at(0), 0), Next::Fail(error()));
    let denied = Error::new(Kind::Denied, "no");
    assert_eq!(waiter(Wait::Forever, true).failed(denied.clone(), at(0), 0), Next::Fail(denied));
}

#[test]
fn a_huge_wait_does_not_overflow() {
    let mut waiter = waiter(Wait::For(Duration::MAX), true);
    assert!(matches!(waiter.answered(busy(ms(5), ms(5)), Reading::all(u64::MAX), 1), Next::Sleep(_)));
}

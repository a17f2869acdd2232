//! The waiter's state machine: from the first claim to the grant or the refusal.
//!
//! ```text
//!            ┌───────────── ask (same lease id) ◀───────────┐
//!            ▼                                              │ wake, or the timed re-check
//!         ASKING ── busy, queued, quarantined ──▶ SLEEPING ─┘
//!          │  │ └── unavailable, unknown ──▶ (back-off) ──▲
//!          │  └──── already done, denied, invalid … ──▶ over
//!          └─ granted ──▶ over                     the wait ends ──▶ over: refused, with what was last known
//! ```
//!
//! A wake may be false and may be missing. So every sleep has an end of its own: the engine's re-check hint where it
//! keeps a queue and sends wakes ([`crate::line::recheck`]: the front of the line looks when the grant in the way ends,
//! those behind it one after another), and elsewhere a jittered back-off, capped by what is left of that grant.

use core::time::Duration;

use crate::{
    backoff::{Backoff, share},
    error::Error,
    record::{Acquired, Busy, End, Grant, Queued},
    window::{ClockRule, Reading},
};

/// How long to wait for a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// Try once.
    #[default]
    No,
    /// Up to this long.
    For(Duration),
    /// Until granted or cancelled.
    Forever,
}

/// Why nothing was granted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Refusal {
    /// Another holds it.
    Busy(Busy),
    /// It is free, but others wait in front.
    Queued(Queued),
    /// The engine is in quarantine.
    Quarantined {
        /// Time until it grants again, at the last answer.
        remaining: Duration,
    },
    /// It was granted, but the answer came when the window had closed. The grant was given back.
    TooLate,
}

/// What to do after an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Next {
    /// It is granted.
    Take(Grant),
    /// Nothing needs doing: the last successful run is recent enough.
    AlreadyDone {
        /// When it started, µs since 1970 by the engine's clock.
        started_us: u64,
        /// Time until the period is over.
        due_in: Duration,
    },
    /// Sleep at most this long, or until a wake; then ask again.
    Sleep(Duration),
    /// This claim was granted before and has ended: start over under a new lease id.
    StartOver(End),
    /// Give up: not granted.
    Refuse(Refusal),
    /// Give up: it could not be asked, or nobody knows.
    Fail(Error),
}

/// One acquire call on its way.
#[derive(Clone, Debug)]
pub struct Waiter {
    started: Reading,
    rule: ClockRule,
    wait: Wait,
    backoff: Backoff,
    /// True when the engine keeps a queue and sends wakes: its re-check hints then replace the back-off.
    evented: bool,
    attempts: u32,
    errors: u32,
    /// What the engine said last, for the refusal.
    last: Option<Refusal>,
}

impl Waiter {
    /// A waiter that starts at `now`.
    pub fn new(wait: Wait, backoff: Backoff, evented: bool, rule: ClockRule, now: Reading) -> Self {
        Self { started: now, rule, wait, backoff, evented, attempts: 0, errors: 0, last: None }
    }

    /// True when claims should take a place in the queue.
    pub fn queues(&self) -> bool {
        self.wait != Wait::No
    }

    /// Time left to wait at `now`; `None` for ever.
    pub fn remaining(&self, now: Reading) -> Option<Duration> {
        match self.wait {
            Wait::No => Some(Duration::ZERO),
            Wait::For(limit) => Some(limit.saturating_sub(self.rule.elapsed(self.started, now))),
            Wait::Forever => None,
        }
    }

    /// The engine answered.
    pub fn answered(&mut self, answer: Acquired, now: Reading, random: u64) -> Next {
        self.errors = 0;
        let (refusal, hint, limit) = match answer {
            Acquired::Granted(grant) => return Next::Take(grant),
            Acquired::AlreadyDone { started_us, due_in } => return Next::AlreadyDone { started_us, due_in },
            Acquired::Spent(end) => return Next::StartOver(end),
            Acquired::Busy(busy) => {
                let (hint, limit) = (busy.recheck, Some(busy.holder.remaining));
                (Refusal::Busy(busy), hint, limit)
            }
            Acquired::Queued(queued) => {
                let hint = queued.recheck;
                (Refusal::Queued(queued), hint, None)
            }
            Acquired::Quarantined { remaining, .. } => {
                (Refusal::Quarantined { remaining }, remaining, Some(remaining))
            }
        };
        let delay = if self.evented {
            hint
        } else {
            let delay = self.backoff.delay(self.attempts, random);
            limit.map_or(delay, |limit| delay.min(limit))
        };
        self.attempts = self.attempts.saturating_add(1);
        self.last = Some(refusal);
        self.sleep_or_refuse(spread(delay, random), now)
    }

    /// The grant arrived too late to be of use and was given back.
    pub fn too_late(&mut self, now: Reading, random: u64) -> Next {
        self.last = Some(Refusal::TooLate);
        let delay = self.backoff.delay(0, random);
        self.sleep_or_refuse(spread(delay, random), now)
    }

    /// The engine could not be asked, or nobody knows. Such a claim is repeated (under the same lease id) until the wait
    /// ends; without a wait it fails at once.
    pub fn failed(&mut self, error: Error, now: Reading, random: u64) -> Next {
        let over = self.remaining(now).is_some_and(|left| left.is_zero());
        if over || !error.is_transient() {
            return Next::Fail(error);
        }
        let delay = spread(self.backoff.delay(self.errors, random), random);
        self.errors = self.errors.saturating_add(1);
        Next::Sleep(self.remaining(now).map_or(delay, |left| delay.min(left)))
    }

    fn sleep_or_refuse(&mut self, delay: Duration, now: Reading) -> Next {
        match (self.remaining(now), &self.last) {
            (Some(left), Some(refusal)) if left.is_zero() => Next::Refuse(refusal.clone()),
            (left, _) => Next::Sleep(left.map_or(delay, |left| delay.min(left))),
        }
    }
}

/// At least a millisecond, and up to a tenth (at most 20 ms) later than told: those who were told the same time do not
/// come at the same moment, and a re-check does not come just before what it waits for.
fn spread(delay: Duration, random: u64) -> Duration {
    let room = (delay / 10).clamp(Duration::from_millis(1), Duration::from_millis(20));
    delay.max(Duration::from_millis(1)) + share(room, random)
}

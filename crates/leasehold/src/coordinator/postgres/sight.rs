//! What this client has itself seen of grants, and for how long, on its own boot clock.
//!
//! Where the server's clock cannot say that a grant is over, an observer can: it has seen the same token and the same renewal
//! for longer than the grant lasts by the slowest clock. The server compares what was seen with what is there, in the same
//! step that takes the resource. A sight counts from when an answer *arrived* to when the next request is *sent*, so
//! whatever lies on the way only makes it shorter.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use leasehold_core::Resource;

use crate::{clock, sync::lock};

/// How many resources are watched at once (ours: far more than one process waits for). More, and the oldest is forgotten: the
/// watch over it begins anew.
const MAX_WATCHED: usize = 10_000;
/// The allowance for clock rates, in parts per million of the span: twice the default margin's rate error.
const ALLOWANCE_PPM: u64 = 10_000;
/// The fixed allowance, as in the default margin.
const EPSILON_US: u64 = 2_000;

/// A grant at one renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) token: i64,
    pub(super) seq: i32,
}

#[derive(Clone, Copy, Debug)]
struct Sight {
    seen: Seen,
    since_us: u64,
    needed_us: u64,
}

impl Sight {
    fn left(&self, now_us: u64) -> Duration {
        Duration::from_micros(self.needed_us.saturating_sub(now_us.saturating_sub(self.since_us)))
    }
}

/// All that one client watches.
#[derive(Debug, Default)]
pub(super) struct Sights {
    grants: Mutex<HashMap<Resource, Sight>>,
    quarantine: Mutex<Option<(i32, u64, u64)>>,
}

fn needed(span_ms: i64) -> u64 {
    let span_us = span_ms.unsigned_abs().saturating_mul(1_000);
    span_us
        .saturating_add(span_us / 1_000_000 * ALLOWANCE_PPM + span_us % 1_000_000 * ALLOWANCE_PPM / 1_000_000)
        + EPSILON_US
}

impl Sights {
    /// Notes a grant that was just seen. Time until it can be taken over, if nothing changes.
    pub(super) fn note(&self, resource: &Resource, seen: Seen, span_ms: i64) -> Duration {
        let now_us = clock::boot_us();
        let mut grants = lock(&self.grants);
        if let Some(sight) = grants.get(resource).filter(|sight| sight.seen == seen) {
            return sight.left(now_us);
        }
        if grants.len() >= MAX_WATCHED
            && let Some(oldest) =
                grants.iter().min_by_key(|(_, sight)| sight.since_us).map(|(name, _)| name.clone())
        {
            grants.remove(&oldest);
        }
        let sight = Sight { seen, since_us: now_us, needed_us: needed(span_ms) };
        grants.insert(resource.clone(), sight);
        sight.left(now_us)
    }

    /// Forgets a resource: it is free, or ours.
    pub(super) fn forget(&self, resource: &Resource) {
        lock(&self.grants).remove(resource);
    }

    /// What was seen for long enough, to be sent now.
    pub(super) fn ripe(&self, resource: &Resource) -> Option<Seen> {
        let now_us = clock::boot_us();
        lock(&self.grants).get(resource).filter(|sight| sight.left(now_us).is_zero()).map(|sight| sight.seen)
    }

    /// Notes a quarantine that was just seen. Time until it is over.
    pub(super) fn note_quarantine(&self, epoch: i32, longest_ms: i64) -> Duration {
        let now_us = clock::boot_us();
        let mut quarantine = lock(&self.quarantine);
        let (_, since_us, needed_us) = match *quarantine {
            Some(known) if known.0 == epoch => known,
            _ => *quarantine.insert((epoch, now_us, needed(longest_ms))),
        };
        Duration::from_micros(needed_us.saturating_sub(now_us.saturating_sub(since_us)))
    }

    /// The quarantine that was seen for long enough.
    pub(super) fn ripe_quarantine(&self) -> Option<i32> {
        let now_us = clock::boot_us();
        let known = *lock(&self.quarantine);
        known.filter(|(_, since, needed)| now_us.saturating_sub(*since) >= *needed).map(|(epoch, _, _)| epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allowance_is_one_percent_and_two_milliseconds() {
        assert_eq!(needed(30_000), 30_302_000);
        assert_eq!(needed(50), 52_500);
    }

    #[test]
    fn a_renewal_starts_the_watch_anew_and_a_look_does_not() {
        let (sights, resource) = (Sights::default(), Resource::new("r").unwrap());
        let seen = Seen { token: 5, seq: 0 };
        let first = sights.note(&resource, seen, 60_000);
        assert!(sights.note(&resource, seen, 60_000) <= first);
        assert_eq!(sights.ripe(&resource), None);
        sights.note(&resource, Seen { seq: 1, ..seen }, 60_000);
        sights.note(&resource, Seen { seq: 2, ..seen }, 0);
        while sights.ripe(&resource).is_none() {
            std::hint::spin_loop();
        }
        sights.forget(&resource);
        assert_eq!(sights.ripe(&resource), None);
    }
}

//! The queue of one resource: who waits, in which order, and who counts as alive.
//!
//! Entries are kept by the engine, so that the order holds across processes; [`Line`] is what a store must offer for
//! [`crate::slot::Slot`] to decide over it. An entry is refreshed whenever its claimant asks again and dies when it does
//! not: after [`ENTRY_LIFE`] for certain, at once where the store can tell that the claimant's process is gone.

use alloc::{collections::BTreeMap, vec::Vec};
use core::{convert::Infallible, time::Duration};

use crate::id::{Label, LeaseId};

/// How long an entry lives without being refreshed: three re-checks of a waiter deep in the queue.
pub const ENTRY_LIFE: Duration = Duration::from_secs(45);
/// How long a freed resource is kept for the first in line: many times a wake and a round trip, short against a TTL.
pub const RESERVATION: Duration = Duration::from_millis(500);
/// The first two in line ask again at least this often.
pub const RECHECK_FRONT: Duration = Duration::from_secs(1);
/// A free resource that nobody in line has taken for this long is anybody's: the front of the line looks every second, so
/// those who wait do not run (they are suspended, say), and whoever only tries once must not wait for them.
pub const FORSAKEN: Duration = Duration::from_secs(3);
/// Those behind them ask again at least this often: a third of [`ENTRY_LIFE`].
pub const RECHECK_BACK: Duration = Duration::from_secs(15);

/// One place in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The claim that waits.
    pub lease_id: LeaseId,
    /// What people call the claimant.
    pub label: Label,
    /// When it joined, µs of the engine's clock.
    pub joined_us: u64,
    /// When it last asked, µs of the engine's clock.
    pub refreshed_us: u64,
}

impl Entry {
    /// True when it has not been refreshed for [`ENTRY_LIFE`].
    pub fn is_stale(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.refreshed_us) >= micros(ENTRY_LIFE)
    }
}

/// When a waiter with `ahead` live waiters in front asks again, wake or no wake. `remaining` is what is left of the grant in
/// the way. The front of the line must notice its end at once; those behind look one reservation after one another, so
/// that an expiry draws no stampede and a dead front is passed all the same.
pub fn recheck(ahead: u32, remaining: Duration) -> Duration {
    match ahead {
        0 | 1 => RECHECK_FRONT.min(remaining),
        _ => RECHECK_BACK.min(remaining.saturating_add(RESERVATION.saturating_mul(ahead - 1))),
    }
}

/// What a store offers about the queue of one resource, inside the same atomic step as the rest.
pub trait Line {
    /// How the store fails.
    type Error;

    /// Adds a place at the end, or refreshes the one that this claim has, which then keeps its order.
    fn enter(&mut self, lease_id: LeaseId, label: &Label, now_us: u64) -> Result<(), Self::Error>;

    /// Gives up the place of this claim. True when it had one.
    fn leave(&mut self, lease_id: LeaseId) -> Result<bool, Self::Error>;

    /// The first who is alive, removing the dead in front of it.
    fn head(&mut self, now_us: u64) -> Result<Option<LeaseId>, Self::Error>;

    /// How many places are in front of this claim's, dead or alive; `None` when it has none.
    fn ahead_of(&mut self, lease_id: LeaseId) -> Result<Option<u32>, Self::Error>;

    /// How many places there are.
    fn count(&mut self) -> Result<u32, Self::Error>;
}

/// A queue in memory, for the memory coordinator, simulators and tests.
#[derive(Clone, Default, Debug)]
pub struct MemoryLine {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

impl MemoryLine {
    /// The places, first to last.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// True when nobody waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn sequence_of(&self, lease_id: LeaseId) -> Option<u64> {
        self.entries.iter().find(|(_, entry)| entry.lease_id == lease_id).map(|(&sequence, _)| sequence)
    }
}

impl Line for MemoryLine {
    type Error = Infallible;

    fn enter(&mut self, lease_id: LeaseId, label: &Label, now_us: u64) -> Result<(), Infallible> {
        if let Some(entry) = self.sequence_of(lease_id).and_then(|sequence| self.entries.get_mut(&sequence)) {
            entry.refreshed_us = now_us;
            return Ok(());
        }
        let entry = Entry { lease_id, label: label.clone(), joined_us: now_us, refreshed_us: now_us };
        self.entries.insert(self.next, entry);
        self.next += 1;
        Ok(())
    }

    fn leave(&mut self, lease_id: LeaseId) -> Result<bool, Infallible> {
        Ok(self.sequence_of(lease_id).and_then(|sequence| self.entries.remove(&sequence)).is_some())
    }

    fn head(&mut self, now_us: u64) -> Result<Option<LeaseId>, Infallible> {
        let stale: Vec<u64> = self
            .entries
            .iter()
            .take_while(|(_, entry)| entry.is_stale(now_us))
            .map(|(&key, _)| key)
            .collect();
        for key in stale {
            self.entries.remove(&key);
        }
        Ok(self.entries.values().next().map(|entry| entry.lease_id))
    }

    fn ahead_of(&mut self, lease_id: LeaseId) -> Result<Option<u32>, Infallible> {
        Ok(self
            .sequence_of(lease_id)
            .map(|sequence| u32::try_from(self.entries.range(..sequence).count()).unwrap_or(u32::MAX)))
    }

    fn count(&mut self) -> Result<u32, Infallible> {
        Ok(u32::try_from(self.entries.len()).unwrap_or(u32::MAX))
    }
}

/// A duration in whole microseconds, saturating.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

//! A queue in which asking again is not written down every time, or that vanishes when nobody asks.

use core::{convert::Infallible, time::Duration};

use leasehold_core::{
    Label, LeaseId,
    line::{Line, MemoryLine},
    slot::Now,
};

/// Forgets a line in which nobody has asked for so long, in whole milliseconds of the engine's clock.
pub(super) fn vanish(line: &mut MemoryLine, after: Duration, now: Now) {
    let last_us = line.entries().map(|place| place.refreshed_us).max().unwrap_or(u64::MAX);
    let last = Duration::from_millis(last_us / 1_000);
    if Duration::from_millis(now.clock_us / 1_000) > last.saturating_add(after) {
        *line = MemoryLine::default();
    }
}

/// A line whose places are refreshed once `after` has passed since they last were.
pub(super) struct LazyLine<'a> {
    pub(super) line: &'a mut MemoryLine,
    pub(super) after: Duration,
}

impl Line for LazyLine<'_> {
    type Error = Infallible;

    fn enter(&mut self, lease_id: LeaseId, label: &Label, now_us: u64) -> Result<(), Infallible> {
        let place = self.line.entries().find(|entry| entry.lease_id == lease_id);
        let since = place.map(|place| Duration::from_micros(now_us.saturating_sub(place.refreshed_us)));
        if since.is_some_and(|since| since < self.after) {
            return Ok(());
        }
        self.line.enter(lease_id, label, now_us)
    }

    fn leave(&mut self, lease_id: LeaseId) -> Result<bool, Infallible> {
        self.line.leave(lease_id)
    }

    fn head(&mut self, now_us: u64) -> Result<Option<LeaseId>, Infallible> {
        self.line.head(now_us)
    }

    fn ahead_of(&mut self, lease_id: LeaseId) -> Result<Option<u32>, Infallible> {
        self.line.ahead_of(lease_id)
    }

    fn count(&mut self) -> Result<u32, Infallible> {
        self.line.count()
    }
}

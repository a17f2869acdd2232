//! The queue of one resource as it was read, for the slot to decide over; what the slot wants changed is noted, not done.
//!
//! There are no dead places in it: a place hangs on a lease of its client and goes with it, and a client removes those of
//! its own that were not refreshed.

use std::convert::Infallible;

use leasehold_core::{Label, LeaseId, line::Line};

use super::view::{Seat, View};

/// The queue at one revision.
#[derive(Debug)]
pub(super) struct Seen {
    line: Vec<LeaseId>,
    /// True when the claim wants a place, new or kept.
    pub(super) entered: bool,
    /// True when the claim gives its place up.
    pub(super) left: bool,
}

impl Seen {
    pub(super) fn new(view: &View) -> Self {
        Self { line: ids(&view.line), entered: false, left: false }
    }

    /// A queue that nobody has looked at: for changes to which it does not matter.
    pub(super) fn nobody() -> Self {
        Self { line: Vec::new(), entered: false, left: false }
    }

    fn position(&self, lease_id: LeaseId) -> Option<usize> {
        self.line.iter().position(|other| *other == lease_id)
    }
}

fn ids(seats: &[Seat]) -> Vec<LeaseId> {
    seats.iter().map(|seat| seat.lease_id).collect()
}

impl Line for Seen {
    type Error = Infallible;

    fn enter(&mut self, lease_id: LeaseId, _: &Label, _: u64) -> Result<(), Infallible> {
        self.entered = true;
        if self.position(lease_id).is_none() {
            self.line.push(lease_id);
        }
        Ok(())
    }

    fn leave(&mut self, lease_id: LeaseId) -> Result<bool, Infallible> {
        let Some(at) = self.position(lease_id) else { return Ok(false) };
        self.line.remove(at);
        self.left = true;
        Ok(true)
    }

    fn head(&mut self, _: u64) -> Result<Option<LeaseId>, Infallible> {
        Ok(self.line.first().copied())
    }

    fn ahead_of(&mut self, lease_id: LeaseId) -> Result<Option<u32>, Infallible> {
        Ok(self.position(lease_id).map(|at| u32::try_from(at).unwrap_or(u32::MAX)))
    }

    fn count(&mut self) -> Result<u32, Infallible> {
        Ok(u32::try_from(self.line.len()).unwrap_or(u32::MAX))
    }
}

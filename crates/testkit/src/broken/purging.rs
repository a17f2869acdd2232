//! Broken about forgetting.

use leasehold_core::{request::Purge, slot::Now};

use super::broken_rules;
use crate::reference::Seat;

broken_rules! {
    PurgesWhatIsFree breaks "purge_leaves_what_was_used" {
        fn is_idle(&self, seat: &Seat, now: Now) -> bool {
            seat.slot.is_free(now)
        }
    }
    PurgesOnADryRun breaks "purge_forgets" {
        fn purges(&self, _purge: &Purge) -> bool {
            true
        }
    }
    OnlyTellsWhatItWouldPurge breaks "purge_forgets" {
        fn purges(&self, _purge: &Purge) -> bool {
            false
        }
    }
    FindsNothingToPurge breaks "purge_forgets" {
        fn is_idle(&self, _seat: &Seat, _now: Now) -> bool {
            false
        }
    }
}

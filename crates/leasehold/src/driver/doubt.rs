//! Doubts a TTL that is shorter than what the client has met calls for, and says so in the log: a configured TTL was right on the
//! day when it was chosen.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::observe;

use super::{Core, registry::Due};

/// Between two looks (ours: percentiles of hours do not change in less, and a look reads whole histograms).
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Between two warnings (ours: whoever reads logs by the day sees it, and a log of many clients is still legible).
const TELL_EVERY: Duration = Duration::from_secs(3_600);

/// When the next look is due, on BOOTTIME.
#[derive(Debug, Default)]
pub(super) struct Doubts(AtomicU64);

impl Doubts {
    /// Looks at the most pressing of some renewals, if it is time.
    pub(super) fn look(&self, core: &Core, batch: &[Due]) {
        let shortest = batch.iter().min_by_key(|due| due.renewal.ttl);
        let Some(due) = shortest.filter(|due| due.sent.boot_ns >= self.0.load(Ordering::Relaxed)) else {
            return;
        };
        let vitals = core.meter.vitals();
        // Not enough was measured yet: the next renewal looks again.
        let Some(needed) = vitals.needed_ttl() else { return };
        let is_short = needed > due.renewal.ttl.as_duration();
        if is_short {
            due.lease.inside(|| {
                observe::short_ttl(due.lease.identity(), core.holder_id, due.renewal.ttl, &vitals);
            });
        }
        let pause = if is_short { TELL_EVERY } else { LOOK_EVERY };
        let next_ns = due.sent.boot_ns.saturating_add(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX));
        self.0.store(next_ns, Ordering::Relaxed);
    }
}

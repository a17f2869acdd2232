//! The one clock of supervision: BOOTTIME, which also counts the time the machine slept.
//!
//! A deadline is an instant of this clock in nanoseconds since boot. It is a plain number because it crosses
//! from the front to the guard, and because both run on the same machine it means the same in both.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds since boot, sleep included.
///
/// The clock cannot fail on Linux; should it ever, the answer is "the end of time", on which every deadline has
/// passed: a supervisor that cannot tell the time must not believe that it has any left.
pub fn boottime_ns() -> u64 {
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else { return u64::MAX };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or(u64::MAX);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec()).unwrap_or(0))
}

/// A duration in the unit of deadlines.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

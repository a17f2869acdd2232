//! The only file that reads clocks.
//!
//! Everything else is handed a [`Reading`], so that tests and simulators can say what time it is. Expiry is judged on
//! CLOCK_BOOTTIME (it counts suspend and never steps); the wall clock only dates things for people and floors tokens.

use std::{
    fmt::Debug,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use leasehold_core::{
    slot::Now,
    window::{ClockRule, Reading},
};
use nix::time::{ClockId, clock_gettime};

/// Something that tells the time. Real programs use [`SystemClock`]; tests bring a [`ManualClock`].
pub trait Clock: Send + Sync + Debug {
    /// All clocks at this moment.
    fn read(&self) -> Reading;
}

/// The clocks of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn read(&self) -> Reading {
        read(ClockRule::LargestOfThree)
    }
}

/// Reads the clocks that `rule` looks at; the others stay 0.
pub fn read(rule: ClockRule) -> Reading {
    let boot_ns = nanos(ClockId::CLOCK_BOOTTIME);
    match rule {
        ClockRule::Boot => Reading { boot_ns, raw_ns: 0, real_ns: 0 },
        ClockRule::LargestOfThree => {
            let (raw_ns, real_ns) = (nanos(ClockId::CLOCK_MONOTONIC_RAW), nanos(ClockId::CLOCK_REALTIME));
            Reading { boot_ns, raw_ns, real_ns }
        }
    }
}

/// CLOCK_BOOTTIME in microseconds: the clock by which the local engines judge expiry.
pub fn boot_us() -> u64 {
    nanos(ClockId::CLOCK_BOOTTIME) / 1_000
}

/// The wall clock, µs since 1970.
pub fn unix_us() -> u64 {
    nanos(ClockId::CLOCK_REALTIME) / 1_000
}

/// Linux has these clocks since 2.6.39; one that could not be read counts as run out, which closes every window.
fn nanos(id: ClockId) -> u64 {
    clock_gettime(id).map_or(u64::MAX, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec()).unwrap_or(0))
    })
}

/// What a local engine needs for one atomic step.
pub(crate) fn now(clock: &dyn Clock) -> Now {
    let reading = clock.read();
    Now { clock_us: reading.boot_ns / 1_000, unix_us: reading.real_ns / 1_000 }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock {
    boot_ns: AtomicU64,
    real_ns: AtomicU64,
}

impl ManualClock {
    /// A clock that shows what `reading` does.
    pub const fn new(reading: Reading) -> Self {
        Self { boot_ns: AtomicU64::new(reading.boot_ns), real_ns: AtomicU64::new(reading.real_ns) }
    }

    /// A clock that shows what this machine does now.
    pub fn from_system() -> Self {
        Self::new(SystemClock.read())
    }

    /// Lets time pass, on every clock.
    pub fn advance(&self, by: Duration) {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.boot_ns.fetch_add(ns, Ordering::SeqCst);
        self.real_ns.fetch_add(ns, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an operator would.
    pub fn set_wall(&self, unix: Duration) {
        self.real_ns.store(u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn read(&self) -> Reading {
        let boot_ns = self.boot_ns.load(Ordering::SeqCst);
        Reading { boot_ns, raw_ns: boot_ns, real_ns: self.real_ns.load(Ordering::SeqCst) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_forward_and_knows_the_year() {
        let (first, second) = (SystemClock.read(), SystemClock.read());
        assert!(second.boot_ns >= first.boot_ns && second.raw_ns >= first.raw_ns);
        assert!(now(&SystemClock).unix_us > 1_700_000_000_000_000);
        assert_eq!(read(ClockRule::Boot).real_ns, 0);
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(Reading::all(5_000));
        assert_eq!(clock.read(), Reading::all(5_000));
        clock.advance(Duration::from_nanos(3));
        clock.set_wall(Duration::from_nanos(1));
        assert_eq!(clock.read(), Reading { boot_ns: 5_003, raw_ns: 5_003, real_ns: 1 });
    }
}

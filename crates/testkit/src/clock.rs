//! The one file of this crate that reads a clock. Everywhere else time is an argument or comes from here.

use std::{
    fmt::Debug,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use leasehold_core::slot::Now;

/// Where a coordinator under test takes its time from.
pub trait Clock: Send + Sync + Debug + 'static {
    /// The engine's clock and the wall clock, at this moment.
    fn now(&self) -> Now;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now { clock_us: boot_ns() / 1_000, unix_us: unix_us() }
    }
}

/// A clock that moves when told to.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

/// 2027 or so: later than any time the code could mistake for "unset", earlier than any bound.
const MANUAL_EPOCH_US: u64 = 1_800_000_000_000_000;

impl ManualClock {
    /// A clock that shows one second after its epoch.
    pub const fn new() -> Self {
        Self(AtomicU64::new(1_000_000))
    }

    /// Moves the clock ahead.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        let clock_us = self.0.load(Ordering::SeqCst);
        Now { clock_us, unix_us: MANUAL_EPOCH_US.saturating_add(clock_us) }
    }
}

/// Measures how long something took, suspend included.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(u64);

impl Stopwatch {
    /// Starts measuring now.
    pub fn start() -> Self {
        Self(boot_ns())
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(boot_ns().saturating_sub(self.0))
    }

    /// When it was started, on the clock of [`boot_ns`].
    pub const fn started_ns(self) -> u64 {
        self.0
    }
}

/// CLOCK_BOOTTIME in nanoseconds: one clock for all processes of one machine (and one time namespace), so that histories
/// written by different processes compare exactly.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn boot_ns() -> u64 {
    let read = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    // The call cannot fail for this clock on any kernel that runs Rust's std.
    read.map_or(0, |at| u64::try_from(Duration::from(at).as_nanos()).unwrap_or(u64::MAX))
}

/// Elsewhere: nanoseconds since the first call in this process. Histories of several processes do not compare.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[allow(clippy::disallowed_methods, reason = "this file is the exception")]
pub fn boot_ns() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    u64::try_from(START.get_or_init(std::time::Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The wall clock, µs since 1970.
#[allow(clippy::disallowed_methods, reason = "this file is the exception")]
pub fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Blocks this thread. Only for loops that wait for a condition with a deadline.
#[allow(clippy::disallowed_methods, reason = "this file is the exception")]
pub(crate) fn pause(by: Duration) {
    std::thread::sleep(by);
}

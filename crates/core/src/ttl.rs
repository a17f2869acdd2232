//! TTLs: how long a grant lasts without renewal. A duration with bounds, never a point in time.

use core::{fmt, time::Duration};

use crate::error::Invalid;

/// A TTL in whole milliseconds, 50 ms … 7 days.
///
/// The lower bound leaves a window worth having after the margin; the upper one is the retention of token counters.
/// Each namespace lowers the upper bound further by its own `max_ttl`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ttl(u32);

impl Ttl {
    /// 50 ms.
    pub const MIN: Self = Self(50);
    /// 7 days: the time for which idle token counters are kept.
    pub const MAX: Self = Self(7 * 24 * 3_600_000);
    /// 30 s: long enough to ride out a restart of most engines, short enough to wait for after a crash.
    pub const DEFAULT: Self = Self(30_000);
    /// 24 h: the longest TTL of a namespace on memory and SQLite, unless it says otherwise.
    pub const LOCAL_MAX: Self = Self(24 * 3_600_000);

    /// 60 s: the same on engines behind a network. It is also how long they grant nothing after a failover.
    pub const NETWORK_MAX: Self = Self(60_000);

    /// Takes a duration, rounding up to a whole millisecond.
    ///
    /// # Errors
    /// [`Invalid`] outside [`Ttl::MIN`] … [`Ttl::MAX`].
    pub fn new(duration: Duration) -> Result<Self, Invalid> {
        let ms = duration.as_nanos().div_ceil(1_000_000);
        u32::try_from(ms).map_err(|_| out_of_bounds()).and_then(|ms| Self::from_millis(u64::from(ms)))
    }

    /// Takes milliseconds.
    ///
    /// # Errors
    /// [`Invalid`] outside [`Ttl::MIN`] … [`Ttl::MAX`].
    pub fn from_millis(ms: u64) -> Result<Self, Invalid> {
        match u32::try_from(ms) {
            Ok(ms) if (Self::MIN.0..=Self::MAX.0).contains(&ms) => Ok(Self(ms)),
            _ => Err(out_of_bounds()),
        }
    }

    /// The TTL in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0 as u64
    }

    /// The TTL in microseconds, the unit of engine clocks.
    pub const fn as_micros(self) -> u64 {
        self.0 as u64 * 1_000
    }

    /// The TTL as a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }
}

const fn out_of_bounds() -> Invalid {
    Invalid::new("TTL", "must be between 50ms and 7d")
}

impl Default for Ttl {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As people would write it, and as the command line reads it: 1500ms is "1.5s", a day "1d" and not "86400s".
        match self.0 {
            ms if ms % 86_400_000 == 0 => write!(f, "{}d", ms / 86_400_000),
            ms if ms % 3_600_000 == 0 => write!(f, "{}h", ms / 3_600_000),
            ms if ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            _ => fmt::Debug::fmt(&self.as_duration(), f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_ttls_are_refused_and_never_truncated() {
        let refused = [0, 1, 49, 604_800_001, 1 << 50, u64::from(u32::MAX) + 60_001, u64::MAX];
        assert!(refused.iter().all(|&ms| Ttl::from_millis(ms).is_err()));
        assert!(Ttl::new(Duration::MAX).is_err() && Ttl::new(Duration::ZERO).is_err());
        assert_eq!(Ttl::new(Duration::from_micros(299_001)).unwrap().as_millis(), 300);
        assert_eq!(Ttl::MAX.as_micros(), 604_800_000_000);
    }

    #[test]
    fn a_ttl_is_shown_as_people_write_it() {
        use alloc::string::ToString;
        let shown = |ms| Ttl::from_millis(ms).unwrap().to_string();
        for (ms, text) in [
            (50, "50ms"),
            (1_500, "1.5s"),
            (30_000, "30s"),
            (60_000, "1m"),
            (90_000, "90s"),
            (129_600_000, "36h"),
        ] {
            assert_eq!(shown(ms), text);
        }
        assert_eq!(Ttl::MAX.to_string(), "7d");
    }
}

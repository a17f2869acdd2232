//! When a refused claimant asks again, where no event tells it.
//!
//! The default is *full jitter*: uniform between nothing and `min(cap, base·2^n)`. Contenders that were refused together
//! therefore do not come back together, at the cap least of all. The additive shape, `min(cap, base·2^n)` plus a random
//! share of a jitter window, is offered by name; its jitter is added *after* the cap, because inside it every waiter
//! that has reached the cap would sleep exactly as long as every other.

use core::time::Duration;

use crate::error::Invalid;

/// A back-off: base, cap and shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    shape: Shape,
}

/// How chance enters a delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Uniform between zero and the exponential ceiling.
    FullJitter,
    /// The exponential ceiling plus uniform between zero and the window.
    Additive {
        /// The jitter window.
        window: Duration,
    },
}

impl Backoff {
    /// 50 ms: about the time in which a short critical section ends.
    pub const DEFAULT_BASE: Duration = Duration::from_millis(50);
    /// 2 s: the longest a free resource goes unnoticed without events.
    pub const DEFAULT_CAP: Duration = Duration::from_secs(2);
    /// 100 ms: the jitter window of the additive shape.
    pub const DEFAULT_WINDOW: Duration = Duration::from_millis(100);
    /// 1 min: the largest cap and the largest jitter window (ours: beyond it a waiter looks dead).
    pub const MAX_CAP: Duration = Duration::from_secs(60);

    /// A back-off from `base` up to `cap`.
    ///
    /// # Errors
    /// [`Invalid`] unless 1 ms ≤ `base` ≤ `cap` ≤ [`Backoff::MAX_CAP`] and the additive window is at most the same.
    pub fn new(base: Duration, cap: Duration, shape: Shape) -> Result<Self, Invalid> {
        let window_fits = match shape {
            Shape::FullJitter => true,
            Shape::Additive { window } => window <= Self::MAX_CAP,
        };
        if base < Duration::from_millis(1) || base > cap || cap > Self::MAX_CAP || !window_fits {
            return Err(Invalid::new(
                "back-off",
                "needs 1ms <= base <= cap <= 1m and a jitter window of at most 1m",
            ));
        }
        Ok(Self { base, cap, shape })
    }

    /// The delay before attempt `attempt + 1`, counted from 0, drawn with `random`, uniform over all 64 bits.
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        // 2^16 times one millisecond is above any cap: the clamp loses nothing and the shift cannot overflow.
        let ceiling = self.base.saturating_mul(1 << attempt.min(16)).min(self.cap);
        match self.shape {
            Shape::FullJitter => share(ceiling, random),
            Shape::Additive { window } => ceiling + share(window, random),
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Self::DEFAULT_BASE, cap: Self::DEFAULT_CAP, shape: Shape::FullJitter }
    }
}

/// `whole · random / 2^64`: a uniform share of a duration.
pub(crate) fn share(whole: Duration, random: u64) -> Duration {
    let part = (whole.as_nanos() * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn additive() -> Backoff {
        let shape = Shape::Additive { window: Backoff::DEFAULT_WINDOW };
        Backoff::new(Backoff::DEFAULT_BASE, Backoff::DEFAULT_CAP, shape).unwrap()
    }

    proptest! {
        #[test]
        fn no_delay_is_above_its_ceiling(attempt: u32, random: u64) {
            prop_assert!(Backoff::default().delay(attempt, random) <= Backoff::DEFAULT_CAP);
            prop_assert!(additive().delay(attempt, random) <= Backoff::DEFAULT_CAP + Backoff::DEFAULT_WINDOW);
        }

        #[test]
        fn waiters_at_the_cap_do_not_sleep_alike(attempt in 6u32.., a: u64, b: u64) {
            prop_assume!(a.abs_diff(b) > u64::MAX / 1_000);
            prop_assert_ne!(Backoff::default().delay(attempt, a), Backoff::default().delay(attempt, b));
            prop_assert_ne!(additive().delay(attempt, a), additive().delay(attempt, b));
        }
    }

    #[test]
    fn the_ceiling_doubles_from_the_base_to_the_cap() {
        let ceilings = [0, 1, 2, 5, 6, 40, u32::MAX].map(|attempt| additive().delay(attempt, 0).as_millis());
        assert_eq!(ceilings, [50, 100, 200, 1_600, 2_000, 2_000, 2_000]);
    }

    #[test]
    fn settings_out_of_bounds_are_refused() {
        let ms = Duration::from_millis;
        for (base, cap) in [(0, 10), (20, 10), (50, 60_001)] {
            assert!(Backoff::new(ms(base), ms(cap), Shape::FullJitter).is_err());
        }
        assert!(Backoff::new(ms(1), ms(1), Shape::Additive { window: ms(60_001) }).is_err());
    }
}

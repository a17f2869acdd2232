//! The window: the time in which a holder may act, kept on the holder's own clocks.
//!
//! A window opens when the reply arrives but is *counted from before the request left*: whatever the network and the
//! engine did in between is time already used. With a TTL of `T`, a rate error of at most `ρ` on either clock and a
//! scheduling allowance `ε` it lasts `V = T·(1−2ρ) − ε`. While the engine counts at least `T/(1+ρ)` of true time, the
//! holder uses at most `V/(1−ρ)`, which is less: so the holder stops before the engine may grant to another.
//!
//! Elapsed time is the *largest* of what three clocks show, so every clock fault ends the window early, never late:
//! BOOTTIME counts suspend, `MONOTONIC_RAW` is not slewed by time synchronisation, REALTIME jumps when a resumed virtual
//! machine learns the time. An engine whose own expiry clock *is* this machine's BOOTTIME uses that one alone.

use core::time::Duration;

use crate::ttl::Ttl;

/// The clocks of this machine at one moment, each in nanoseconds since an epoch of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// `CLOCK_BOOTTIME`: counts suspend, never steps.
    pub boot_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`: not slewed. 0 where the rule does not need it.
    pub raw_ns: u64,
    /// `CLOCK_REALTIME`: slewed and stepped. 0 where the rule does not need it.
    pub real_ns: u64,
}

impl Reading {
    /// A reading on which every clock shows `ns`: for tests and simulators.
    pub const fn all(ns: u64) -> Self {
        Self { boot_ns: ns, raw_ns: ns, real_ns: ns }
    }

    /// This reading with every clock moved `by` ahead, saturating.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        let ns = nanos(by);
        Self {
            boot_ns: self.boot_ns.saturating_add(ns),
            raw_ns: self.raw_ns.saturating_add(ns),
            real_ns: self.real_ns.saturating_add(ns),
        }
    }
}

/// Which clocks count towards elapsed time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockRule {
    /// BOOTTIME alone: for engines that judge expiry by this machine's own BOOTTIME.
    Boot,
    /// The largest of the three: for every engine with a clock of its own.
    LargestOfThree,
}

impl ClockRule {
    /// Time elapsed from `from` to `to`. A clock that went backwards counts as zero.
    pub fn elapsed(self, from: Reading, to: Reading) -> Duration {
        let boot = to.boot_ns.saturating_sub(from.boot_ns);
        Duration::from_nanos(match self {
            Self::Boot => boot,
            Self::LargestOfThree => {
                boot.max(to.raw_ns.saturating_sub(from.raw_ns)).max(to.real_ns.saturating_sub(from.real_ns))
            }
        })
    }
}

/// How much of a TTL a holder gives away for clock error and delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Margin {
    drift_ppm: u32,
    epsilon: Duration,
}

impl Margin {
    /// ρ = 5,000 ppm per clock (1 % of the TTL in all: five times what a healthy quartz and time daemon need) and
    /// ε = 2 ms (engines expire to the millisecond; the check itself must be scheduled).
    pub const DEFAULT: Self = Self { drift_ppm: 5_000, epsilon: Duration::from_millis(2) };
    /// 100,000 ppm: the fastest slew that Linux time daemons can ask for.
    pub const MAX_DRIFT_PPM: u32 = 100_000;

    /// A margin with `drift_ppm` parts per million of rate error per clock and a fixed allowance `epsilon`.
    /// `None` when the drift is above [`Margin::MAX_DRIFT_PPM`].
    pub const fn new(drift_ppm: u32, epsilon: Duration) -> Option<Self> {
        if drift_ppm > Self::MAX_DRIFT_PPM { None } else { Some(Self { drift_ppm, epsilon }) }
    }

    /// The rate error allowed per clock, in parts per million.
    pub const fn drift_ppm(self) -> u32 {
        self.drift_ppm
    }

    /// The fixed allowance.
    pub const fn epsilon(self) -> Duration {
        self.epsilon
    }

    /// `V = T·(1−2ρ) − ε`, rounded down to the nanosecond; zero when the margin eats the whole TTL.
    pub fn window_of(self, ttl: Ttl) -> Duration {
        let ttl_ns = u128::from(ttl.as_millis()) * 1_000_000;
        let kept = ttl_ns * u128::from(1_000_000 - 2 * self.drift_ppm) / 1_000_000;
        // A TTL is at most 7 days, so `kept` fits 64 bits.
        Duration::from_nanos(u64::try_from(kept).unwrap_or(u64::MAX)).saturating_sub(self.epsilon)
    }
}

impl Default for Margin {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A window on the holder's clocks: from a request's send time, for a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    sent: Reading,
    length: Duration,
    rule: ClockRule,
}

impl Window {
    /// The window of a request that was sent no earlier than `sent` (read *before* its first byte was written).
    pub fn new(sent: Reading, ttl: Ttl, margin: Margin, rule: ClockRule) -> Self {
        Self { sent, length: margin.window_of(ttl), rule }
    }

    /// When the request left.
    pub fn sent(&self) -> Reading {
        self.sent
    }

    /// How long it lasts from `sent`.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// The local deadline on each clock: the window is closed as soon as *any* counted clock has reached its own.
    pub fn closes(&self) -> Reading {
        self.sent.plus(self.length)
    }

    /// Time used up at `now`.
    pub fn elapsed(&self, now: Reading) -> Duration {
        self.rule.elapsed(self.sent, now)
    }

    /// Time left at `now`; zero when closed.
    pub fn remaining(&self, now: Reading) -> Duration {
        self.length.saturating_sub(self.elapsed(now))
    }

    /// True once the holder may no longer act.
    pub fn is_closed(&self, now: Reading) -> bool {
        self.elapsed(now) >= self.length
    }

    /// This window, no longer than `length`.
    #[must_use]
    pub fn at_most(mut self, length: Duration) -> Self {
        self.length = self.length.min(length);
        self
    }

    /// This window, or `other` where it closes later. A renewal never narrows a window and never moves one back.
    #[must_use]
    pub fn widest(self, other: Self, now: Reading) -> Self {
        if other.remaining(now) > self.remaining(now) { other } else { self }
    }
}

/// A duration in nanoseconds, saturating at 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn ttl(ms: u64) -> Ttl {
        Ttl::from_millis(ms).unwrap()
    }

    proptest! {
        /// Safety §2: with both clocks within ρ, in either direction, the holder's window is over in true time before
        /// the engine's term is.
        #[test]
        fn a_window_is_over_before_the_engine_may_grant_again(
            ms in 50u32..604_800_000, drift_ppm in 0u32..=100_000, holder in -1.0f64..=1.0, engine in -1.0f64..=1.0,
        ) {
            let rho = f64::from(drift_ppm) / 1e6;
            let window = Margin::new(drift_ppm, Duration::ZERO).unwrap().window_of(ttl(u64::from(ms))).as_secs_f64();
            let holder_true = window / (1.0 + rho * holder);
            let engine_true = f64::from(ms) / 1e3 / (1.0 + rho * engine);
            prop_assert!(holder_true <= engine_true * (1.0 + 1e-12));
        }

        /// A step, a slew or a suspend seen by any one clock only shortens what is left.
        #[test]
        fn any_clock_that_ran_ahead_ends_the_window_early(
            at in 0u64..60 * SECOND, boot in 0u64..90 * SECOND, raw in 0u64..90 * SECOND, real in 0u64..90 * SECOND,
        ) {
            let window = Window::new(Reading::all(SECOND), ttl(30_000), Margin::DEFAULT, ClockRule::LargestOfThree);
            let even = Reading::all(SECOND + at);
            let ahead = Reading { boot_ns: even.boot_ns + boot, raw_ns: even.raw_ns + raw, real_ns: even.real_ns + real };
            prop_assert!(window.remaining(ahead) <= window.remaining(even));
            prop_assert_eq!(window.is_closed(ahead), window.remaining(ahead).is_zero());
            let closes = window.closes();
            let by_deadline = ahead.boot_ns >= closes.boot_ns || ahead.raw_ns >= closes.raw_ns || ahead.real_ns >= closes.real_ns;
            prop_assert_eq!(window.is_closed(ahead), by_deadline);
        }
    }

    #[test]
    fn a_clock_that_goes_back_never_widens_a_window() {
        let window =
            Window::new(Reading::all(10 * SECOND), ttl(1_000), Margin::DEFAULT, ClockRule::LargestOfThree);
        let stepped_back = Reading { real_ns: 0, ..Reading::all(11 * SECOND) };
        assert!(window.is_closed(stepped_back));
    }

    #[test]
    fn the_boot_rule_looks_at_nothing_else() {
        let window = Window::new(Reading::all(0), ttl(1_000), Margin::DEFAULT, ClockRule::Boot);
        assert!(!window.is_closed(Reading { boot_ns: 0, raw_ns: u64::MAX, real_ns: u64::MAX }));
    }

    #[test]
    fn the_documented_figures() {
        assert_eq!(Margin::DEFAULT.window_of(ttl(30_000)), Duration::from_millis(29_698));
        assert_eq!(Margin::new(0, Duration::from_secs(1)).unwrap().window_of(ttl(500)), Duration::ZERO);
        assert_eq!(Margin::new(100_001, Duration::ZERO), None);
    }

    #[test]
    fn a_late_answer_to_an_earlier_request_does_not_narrow_the_window() {
        let window = |sent| Window::new(Reading::all(sent), ttl(1_000), Margin::DEFAULT, ClockRule::Boot);
        let now = Reading::all(SECOND / 2);
        assert_eq!(window(SECOND / 4).widest(window(0), now), window(SECOND / 4));
    }
}

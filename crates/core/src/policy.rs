//! What a holder does about time: its TTL, when it renews, what it gives away as margin, and its limits.
//!
//! Every relation between these values is checked when the policy is built, so that no combination which must lose
//! leases (an interval above a third of the TTL, a margin that eats the window) can ever run.

use alloc::format;
use core::time::Duration;

use crate::{
    backoff::{Backoff, Shape, share},
    error::Invalid,
    request::MAX_LOCK_DELAY,
    ttl::Ttl,
    window::Margin,
};

/// ±15 %: renewals of many processes drift apart, and the second attempt still comes before 0.77 of the TTL.
pub const DEFAULT_JITTER_PERCENT: u32 = 15;
/// The largest jitter: with it the first renewal leaves at the latest at half the TTL.
pub const MAX_JITTER_PERCENT: u32 = 50;
/// 10 ms: a shorter window than this is not worth having on a machine with a scheduler.
pub const DEFAULT_MIN_WINDOW: Duration = Duration::from_millis(10);
/// 20 ms: retries of a failed renewal start no closer together than this.
const MIN_RETRY: Duration = Duration::from_millis(20);

/// A checked policy. Build one with [`Policy::builder`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    ttl: Ttl,
    renew_every: Duration,
    jitter_percent: u32,
    margin: Margin,
    min_window: Duration,
    lock_delay: Duration,
    max_hold: Option<Duration>,
    progress_timeout: Option<Duration>,
}

impl Policy {
    /// The policy of a TTL with every default, to be changed and then built.
    pub fn builder(ttl: Ttl) -> PolicyBuilder {
        PolicyBuilder(Self {
            ttl,
            renew_every: ttl.as_duration() / 3,
            jitter_percent: DEFAULT_JITTER_PERCENT,
            margin: Margin::DEFAULT,
            min_window: DEFAULT_MIN_WINDOW,
            lock_delay: Duration::ZERO,
            max_hold: None,
            progress_timeout: None,
        })
    }

    /// How long a grant lasts without renewal.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// The mean time between renewals, from send to send.
    pub fn renew_every(&self) -> Duration {
        self.renew_every
    }

    /// The jitter on that time in percent, each way.
    pub fn jitter_percent(&self) -> u32 {
        self.jitter_percent
    }

    /// What is subtracted from the TTL.
    pub fn margin(&self) -> Margin {
        self.margin
    }

    /// A grant whose window has less than this left on arrival is too late.
    pub fn min_window(&self) -> Duration {
        self.min_window
    }

    /// How much longer the engine keeps the resource after an unclean end.
    pub fn lock_delay(&self) -> Duration {
        self.lock_delay
    }

    /// The longest a lease may be held, renewals and all.
    pub fn max_hold(&self) -> Option<Duration> {
        self.max_hold
    }

    /// How long renewals go on without a sign of progress.
    pub fn progress_timeout(&self) -> Option<Duration> {
        self.progress_timeout
    }

    /// The time from one renewal's send to the next: the interval, jittered by `random`.
    pub fn renewal_interval(&self, random: u64) -> Duration {
        let spread = self.renew_every * self.jitter_percent / 100;
        self.renew_every.saturating_sub(spread) + share(2 * spread, random)
    }

    /// The time to the next attempt after `failures` failed ones in a row: full jitter from a twelfth of the TTL, never
    /// waiting for the next interval. At most a quarter of the TTL, at least a few milliseconds.
    pub fn retry_delay(&self, failures: u32, random: u64) -> Duration {
        let base = (self.ttl.as_duration() / 12).max(MIN_RETRY).min(Backoff::MAX_CAP);
        let cap = (self.ttl.as_duration() / 4).max(base).min(Backoff::MAX_CAP);
        let delay = Backoff::new(base, cap, Shape::FullJitter).unwrap_or_default().delay(failures, random);
        // Full jitter may draw zero; an engine that fails at once must not be asked in a tight loop.
        delay.max(MIN_RETRY / 4)
    }

    /// How long one call may take with `remaining` left in the window: a quarter of the TTL, never past the close.
    pub fn call_timeout(&self, remaining: Duration) -> Duration {
        (self.ttl.as_duration() / 4).min(remaining)
    }

    /// After this long without a good renewal the holder is uncertain: half the TTL.
    pub fn uncertain_after(&self) -> Duration {
        self.ttl.as_duration() / 2
    }

    /// This policy for a TTL that the engine granted longer than asked.
    #[must_use]
    pub fn granted(mut self, ttl: Ttl) -> Self {
        // The interval stays where it was asked: more often than needed is safe.
        self.ttl = ttl.max(self.ttl);
        self
    }

    /// This policy with another jitter, in percent.
    ///
    /// # Errors
    /// [`Invalid`] above [`MAX_JITTER_PERCENT`].
    pub fn with_jitter(&self, percent: u32) -> Result<Self, Invalid> {
        PolicyBuilder(Self { jitter_percent: percent, ..*self }).build()
    }

    /// This policy with another TTL; the renewal interval keeps its share of it.
    ///
    /// # Errors
    /// [`Invalid`] when the margin or the shortest window do not go with it.
    pub fn with_ttl(&self, ttl: Ttl) -> Result<Self, Invalid> {
        let share = self.renew_every.as_micros() * ttl.as_duration().as_micros();
        let interval = share / self.ttl.as_duration().as_micros().max(1);
        let interval = Duration::from_micros(u64::try_from(interval).unwrap_or(u64::MAX));
        PolicyBuilder(Self { ttl, renew_every: interval.min(ttl.as_duration() / 3), ..*self }).build()
    }
}

/// A policy that has not been checked yet.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PolicyBuilder(Policy);

impl PolicyBuilder {
    /// The mean time between renewals; default a third of the TTL, which is also the most.
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.0.renew_every = interval;
        self
    }

    /// The jitter on that interval in percent, each way; default [`DEFAULT_JITTER_PERCENT`].
    pub fn jitter_percent(mut self, percent: u32) -> Self {
        self.0.jitter_percent = percent;
        self
    }

    /// What is subtracted from the TTL; default [`Margin::DEFAULT`].
    pub fn margin(mut self, margin: Margin) -> Self {
        self.0.margin = margin;
        self
    }

    /// The shortest window worth having; default [`DEFAULT_MIN_WINDOW`].
    pub fn min_window(mut self, least: Duration) -> Self {
        self.0.min_window = least;
        self
    }

    /// How much longer the engine keeps the resource after an unclean end; default zero, at most an hour.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.0.lock_delay = delay;
        self
    }

    /// The longest a lease may be held; default no limit.
    pub fn max_hold(mut self, limit: Option<Duration>) -> Self {
        self.0.max_hold = limit;
        self
    }

    /// Renew only while the worker has shown progress within this; default no watchdog.
    pub fn progress_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.0.progress_timeout = timeout;
        self
    }

    /// Checks all relations.
    ///
    /// # Errors
    /// [`Invalid`] naming the relation that does not hold and the figures on both sides.
    pub fn build(self) -> Result<Policy, Invalid> {
        let policy = self.0;
        let third = policy.ttl.as_duration() / 3;
        if policy.renew_every > third || policy.renew_every < Duration::from_millis(5) {
            let problem = format!(
                "is {:?}; it must be at least 5ms and at most a third of the TTL, {third:?}, so that a lost renewal can be retried",
                policy.renew_every
            );
            return Err(Invalid::with("renewal interval", problem));
        }
        if policy.jitter_percent > MAX_JITTER_PERCENT {
            return Err(Invalid::new("renewal jitter", "must be at most 50 percent"));
        }
        if policy.min_window.is_zero() {
            return Err(Invalid::new("shortest window", "must be more than zero"));
        }
        let window = policy.margin.window_of(policy.ttl);
        if window < policy.min_window {
            let problem = format!(
                "of {} leaves a window of {window:?} after the margin; at least {:?} is needed: raise the TTL",
                policy.ttl, policy.min_window
            );
            return Err(Invalid::with("TTL", problem));
        }
        if policy.lock_delay > MAX_LOCK_DELAY {
            return Err(Invalid::new("lock-delay", "must be at most 1h"));
        }
        if policy.max_hold.is_some_and(|limit| limit < policy.min_window) {
            return Err(Invalid::new("max-hold", "must be at least the shortest window"));
        }
        if policy.progress_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Invalid::new("progress timeout", "must be more than zero"));
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn ttl(ms: u64) -> Ttl {
        Ttl::from_millis(ms).unwrap()
    }

    proptest! {
        /// At every legal TTL, a first renewal and one retry fit into the window.
        #[test]
        fn one_lost_renewal_is_survivable(ms in 50u64..=604_800_000, a: u64, b: u64) {
            let policy = Policy::builder(ttl(ms)).build().unwrap();
            let second = policy.renewal_interval(a) + policy.renewal_interval(b);
            prop_assert!(second < policy.margin().window_of(policy.ttl()));
            prop_assert!(policy.renewal_interval(a) >= policy.renew_every() * 84 / 100);
            prop_assert!(policy.renewal_interval(a) <= policy.renew_every() * 116 / 100);
        }

        #[test]
        fn retries_stay_within_a_quarter_of_the_ttl(ms in 80u64..=604_800_000, failures: u32, random: u64) {
            let policy = Policy::builder(ttl(ms)).build().unwrap();
            let delay = policy.retry_delay(failures, random);
            prop_assert!(!delay.is_zero() && delay <= policy.ttl().as_duration() / 4);
        }
    }

    #[test]
    fn relations_that_would_lose_leases_are_refused_with_figures() {
        let refuse = |builder: PolicyBuilder| builder.build().unwrap_err().to_string();
        let base = Policy::builder(ttl(3_000));
        assert!(refuse(base.renew_every(Duration::from_millis(1_001))).contains("third of the TTL, 1s"));
        assert!(refuse(base.renew_every(Duration::ZERO)).contains("5ms"));
        assert!(refuse(base.jitter_percent(51)).contains("50 percent"));
        assert!(
            refuse(base.margin(Margin::new(0, Duration::from_secs(3)).unwrap())).contains("raise the TTL")
        );
        assert!(refuse(base.lock_delay(Duration::from_secs(3_601))).contains("1h"));
        assert!(refuse(base.max_hold(Some(Duration::ZERO))).contains("max-hold"));
        assert!(refuse(base.progress_timeout(Some(Duration::ZERO))).contains("progress"));
        assert!(refuse(base.min_window(Duration::ZERO)).contains("window"));
    }

    #[test]
    fn another_jitter_changes_nothing_else_and_keeps_its_bound() {
        let policy = Policy::builder(ttl(3_000)).build().unwrap();
        let steady = policy.with_jitter(0).unwrap();
        assert_eq!((steady.jitter_percent(), steady.renewal_interval(u64::MAX)), (0, Duration::from_secs(1)));
        assert_eq!(steady.with_jitter(DEFAULT_JITTER_PERCENT).unwrap(), policy);
        assert!(policy.with_jitter(MAX_JITTER_PERCENT + 1).is_err());
    }

    #[test]
    fn another_ttl_keeps_the_share_of_the_interval_and_every_relation() {
        let policy = Policy::builder(ttl(3_000)).renew_every(Duration::from_millis(500)).build().unwrap();
        let longer = policy.with_ttl(ttl(9_000)).unwrap();
        assert_eq!((longer.ttl(), longer.renew_every()), (ttl(9_000), Duration::from_millis(1_500)));
        let strict = Policy::builder(ttl(3_000)).min_window(Duration::from_secs(1)).build().unwrap();
        assert!(strict.with_ttl(ttl(500)).unwrap_err().to_string().contains("raise the TTL"));
    }

    #[test]
    fn the_shortest_and_the_longest_ttl_have_a_policy() {
        assert!(Policy::builder(Ttl::MIN).build().is_ok());
        assert!(Policy::builder(Ttl::MAX).build().is_ok());
    }

    #[test]
    fn a_longer_granted_ttl_never_slows_renewals_down() {
        let policy = Policy::builder(ttl(1_000)).build().unwrap().granted(ttl(2_000));
        assert_eq!((policy.ttl(), policy.renew_every()), (ttl(2_000), Duration::from_secs(1) / 3));
    }
}

//! Under which rules operations run, and how long their keys must be remembered for that to be enough.
//!
//! A key that is forgotten while somebody may still repeat its request is no protection: the repetition is carried out again. So
//! the time for which keys are kept has a lower bound, which follows from the other figures:
//!
//! ```text
//! W ≥ max( ttl + lock_delay + max_exec , retry_horizon + queue_retention ) · (1 + 2ρ) + clock_step
//! ```
//!
//! The first term outlasts an execution that is still under way somewhere; the second every repetition that a client or a queue
//! may send. ρ is the rate error of either clock, and `clock_step` how far the database's clock may be set forward at once.

use std::time::Duration;

use leasehold_core::{Invalid, Ttl, waiter::Wait, window::Margin};

/// For how long a key is remembered after its operation is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    /// Until somebody deletes it by hand. The default, because it needs no figures to be right.
    #[default]
    Forever,
    /// This long by the database's clock. A repetition that comes later **is carried out again**.
    For(Duration),
}

/// How operations run. Every setting has a default; [`Rules::check`] says whether they fit together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Rules {
    ttl: Duration,
    wait: Wait,
    lock_delay: Duration,
    max_exec: Duration,
    retry_horizon: Duration,
    queue_retention: Duration,
    clock_step: Duration,
    keep: Keep,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            ttl: Ttl::DEFAULT.as_duration(),
            wait: Wait::For(Duration::from_secs(10)),
            lock_delay: Duration::ZERO,
            max_exec: Duration::from_secs(10),
            retry_horizon: Duration::from_secs(24 * 3_600),
            queue_retention: Duration::ZERO,
            clock_step: Duration::from_secs(60),
            keep: Keep::Forever,
        }
    }
}

impl Rules {
    /// TTL of the lease under which an operation runs; default 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait for the resource while another operation has it; default 10 s.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// As [`crate::LeaseRequest::lock_delay`]; default zero.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// The longest time that one execution may take, 1 ms or more: it is rolled back after that. Default 10 s. For an external
    /// effect it bounds the call.
    pub fn max_exec(mut self, limit: Duration) -> Self {
        self.max_exec = limit;
        self
    }

    /// For how long a client may go on repeating a request; default a day.
    pub fn retry_horizon(mut self, horizon: Duration) -> Self {
        self.retry_horizon = horizon;
        self
    }

    /// For how long a queue in front may keep a request and deliver it again; default zero: there is none.
    pub fn queue_retention(mut self, retention: Duration) -> Self {
        self.queue_retention = retention;
        self
    }

    /// How far the database's clock may be set forward at once; default a minute.
    pub fn clock_step(mut self, step: Duration) -> Self {
        self.clock_step = step;
        self
    }

    /// For how long keys are remembered; default for ever.
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// The shortest time for which keys must be remembered under these rules.
    pub fn least(&self) -> Duration {
        let execution = self.ttl.saturating_add(self.lock_delay).saturating_add(self.max_exec);
        let repetition = self.retry_horizon.saturating_add(self.queue_retention);
        let longest = execution.max(repetition).as_nanos();
        let rate = u128::from(1_000_000 + 2 * Margin::DEFAULT.drift_ppm());
        let stretched = longest.saturating_mul(rate).div_ceil(1_000_000);
        Duration::from_nanos(u64::try_from(stretched).unwrap_or(u64::MAX)).saturating_add(self.clock_step)
    }

    /// Do they fit together?
    ///
    /// # Errors
    /// [`Invalid`] for a TTL that no lease can have, for `max_exec` below a millisecond, and where keys are forgotten too early: it
    /// then shows every figure.
    pub fn check(self) -> Result<Self, Invalid> {
        Ttl::new(self.ttl)?;
        if self.max_exec < Duration::from_millis(1) || self.max_exec > Ttl::MAX.as_duration() {
            return Err(Invalid::new("max_exec", "must be between 1 ms and 7 days"));
        }
        let least = self.least();
        match self.keep {
            Keep::For(kept) if kept < least => Err(Invalid::with(
                "the time for which keys are kept",
                format!(
                    "is {kept:?}, and a repetition after that is carried out again; with these figures it must be {least:?} or more: \
                     the longer of ttl {:?} + lock_delay {:?} + max_exec {:?} and retry_horizon {:?} + queue_retention {:?}, \
                     stretched by 2ρ = {} ppm, and clock_step {:?}",
                    self.ttl,
                    self.lock_delay,
                    self.max_exec,
                    self.retry_horizon,
                    self.queue_retention,
                    2 * Margin::DEFAULT.drift_ppm(),
                    self.clock_step
                ),
            )),
            _ => Ok(self),
        }
    }

    /// What is worth knowing about rules that fit: keys that are kept for longer than the seven days for which coordinators
    /// remember the last token of a resource that nobody uses. The fence, which forgets nothing, then has the last word alone.
    pub fn warning(&self) -> Option<String> {
        let retention = Ttl::MAX.as_duration();
        match self.keep {
            Keep::For(kept) if kept > retention => Some(format!(
                "keys are kept for {kept:?}, longer than the {retention:?} for which coordinators remember tokens"
            )),
            _ => None,
        }
    }

    pub(super) fn lease(&self, request: crate::LeaseRequest) -> crate::LeaseRequest {
        request.ttl(self.ttl).waiting(self.wait).lock_delay(self.lock_delay)
    }

    pub(super) fn limit(&self) -> Duration {
        self.max_exec
    }

    /// Microseconds for which a key is kept; `None` for ever.
    pub(super) fn kept_us(&self) -> Option<i64> {
        match self.keep {
            Keep::Forever => None,
            Keep::For(kept) => Some(i64::try_from(kept.as_micros()).unwrap_or(i64::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn keys_must_outlast_executions_and_repetitions() {
        let rules = Rules::default().retry_horizon(DAY).queue_retention(DAY * 3);
        // 4 days · 1.01 + 60 s, by hand.
        assert_eq!(rules.least(), Duration::from_secs(345_600 + 3_456 + 60));
        assert!(rules.keep(Keep::For(rules.least())).check().is_ok());
        assert!(rules.keep(Keep::Forever).check().is_ok());
        let short = rules.keep(Keep::For(rules.least().saturating_sub(Duration::from_nanos(1))));
        let told = short.check().unwrap_err().to_string();
        for figure in
            ["349116s", "max_exec 10s", "retry_horizon 86400s", "queue_retention 259200s", "10000 ppm"]
        {
            assert!(told.contains(figure), "{told}");
        }
        // The other term: a long execution beside short repetitions.
        let slow = Rules::default().retry_horizon(Duration::ZERO).max_exec(DAY).clock_step(Duration::ZERO);
        assert_eq!(slow.least(), Duration::from_secs(86_430 + 864) + Duration::from_millis(300));
    }

    #[test]
    fn absurd_figures_are_refused_and_never_overflow() {
        assert!(Rules::default().max_exec(Duration::ZERO).check().is_err());
        assert!(Rules::default().ttl(Duration::ZERO).check().is_err());
        let most = Rules::default().retry_horizon(Duration::MAX).queue_retention(Duration::MAX);
        assert!(most.least() > DAY && most.keep(Keep::For(DAY)).check().is_err());
    }

    #[test]
    fn keys_that_outlive_the_coordinators_memory_are_told_of() {
        assert!(Rules::default().keep(Keep::For(DAY * 8)).warning().is_some());
        assert!(Rules::default().keep(Keep::For(DAY * 2)).warning().is_none());
        assert!(Rules::default().warning().is_none());
    }
}

//! How long connecting may take, and what is tried again: one rule for every verb that waits.

use std::time::Duration;

use leasehold::{Error, Kind, Wait, clock};

/// How long to pause before an unreachable coordinator is asked again (ours: four times a second is no load for any).
const RETRY: Duration = Duration::from_millis(250);
/// How long connecting may take (with a wait: at least).
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The wait of one program, from its first attempt to connect to the grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    wait: Wait,
    started_us: u64,
}

impl Patience {
    /// Begins now.
    pub(crate) fn begin(wait: Wait) -> Self {
        Self { wait, started_us: clock::boot_us() }
    }

    /// As if this had been the wait from the beginning.
    pub(crate) fn instead(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// What is left of the wait.
    pub(crate) fn left(&self) -> Wait {
        left(self.wait, Duration::from_micros(clock::boot_us().saturating_sub(self.started_us)))
    }

    /// How long the next attempt to connect may take.
    pub(crate) fn limit(&self) -> Duration {
        limit(self.left())
    }

    /// How long to pause after a failed attempt; `None` when it was the last one.
    pub(crate) fn pause(&self, error: &Error) -> Option<Duration> {
        pause(error, self.left())
    }
}

/// The answer of a coordinator that gave none. Connecting asks for nothing, so nothing can have been changed.
pub(crate) fn silent() -> Error {
    Error::new(Kind::Unavailable, format!("the coordinator did not answer within {CONNECT_LIMIT:?} of connecting"))
        .advise("look whether it is reachable; for a lease file, whether a process that uses it is stopped (state T in ps)")
}

fn left(wait: Wait, gone: Duration) -> Wait {
    match wait {
        Wait::For(limit) => Wait::For(limit.saturating_sub(gone)),
        other => other,
    }
}

/// One long attempt rather than many short ones: what is given up may leave a thread behind that waits for the engine.
fn limit(left: Wait) -> Duration {
    match left {
        Wait::For(left) => left.max(CONNECT_LIMIT),
        Wait::Forever => Duration::MAX,
        Wait::No => CONNECT_LIMIT,
    }
}

fn pause(error: &Error, left: Wait) -> Option<Duration> {
    match left {
        _ if !error.is_transient() => None,
        Wait::No | Wait::For(Duration::ZERO) => None,
        Wait::For(left) => Some(RETRY.min(left)),
        Wait::Forever => Some(RETRY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_shrinks_and_only_a_wait_retries() {
        let (second, error) = (Duration::from_secs(1), silent());
        assert_eq!(left(Wait::For(second), second * 2), Wait::For(Duration::ZERO));
        assert_eq!((left(Wait::No, second), left(Wait::Forever, second)), (Wait::No, Wait::Forever));
        assert_eq!(
            (pause(&error, Wait::Forever), pause(&error, Wait::For(second))),
            (Some(RETRY), Some(RETRY))
        );
        assert_eq!(pause(&error, Wait::For(RETRY / 2)), Some(RETRY / 2));
        assert_eq!((pause(&error, Wait::No), pause(&error, Wait::For(Duration::ZERO))), (None, None));
        assert_eq!(pause(&Error::new(Kind::Denied, "x"), Wait::Forever), None);
    }

    #[test]
    fn an_attempt_takes_the_limit_or_the_whole_wait() {
        assert_eq!((limit(Wait::No), limit(Wait::For(Duration::ZERO))), (CONNECT_LIMIT, CONNECT_LIMIT));
        assert_eq!(limit(Wait::For(CONNECT_LIMIT * 3)), CONNECT_LIMIT * 3);
        assert_eq!(limit(Wait::Forever), Duration::MAX);
    }
}

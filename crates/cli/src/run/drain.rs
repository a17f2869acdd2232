//! A command that was asked to end: how long it has, and when it is made to.

use std::time::Duration;

use super::nanos;

/// Signals within this time of the first one are one request (ours: no hand is faster twice on purpose).
const REPEATED_NS: u64 = 500_000_000;

/// One drain under way. Times are on BOOTTIME.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Drain {
    began_ns: u64,
    /// When the command is made to end; `None` for never.
    until_ns: Option<u64>,
    /// True once it is being made to.
    pub(super) forced: bool,
}

impl Drain {
    /// SIGTERM came.
    pub(super) fn begin(now_ns: u64, limit: Option<Duration>) -> Self {
        let until_ns = limit.map(|limit| now_ns.saturating_add(nanos(limit)));
        Self { began_ns: now_ns, until_ns, forced: false }
    }

    /// SIGTERM came again. True when that means that it takes too long for whoever asks: one request often comes as two
    /// signals.
    pub(super) fn is_urged(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= REPEATED_NS
    }

    /// When its time is over, as long as nothing has been done about that.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.until_ns.filter(|_| !self.forced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_has_its_time_and_a_later_signal_shortens_it() {
        let mut drain = Drain::begin(1_000, Some(Duration::from_nanos(500)));
        assert_eq!(drain.due_ns(), Some(1_500));
        assert!(!drain.is_urged(1_000) && !drain.is_urged(400_000_000) && drain.is_urged(600_000_000));
        drain.forced = true;
        assert_eq!(drain.due_ns(), None);
        assert_eq!(Drain::begin(1_000, None).due_ns(), None);
    }
}

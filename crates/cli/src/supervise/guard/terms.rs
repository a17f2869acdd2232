//! When things must happen: the arithmetic of deadline, grace and margin, apart from everything that waits or acts.

use crate::supervise::clock::nanos;
use crate::supervise::event::{Start, StopReason};

/// An end that has begun. It is never taken back, though a renewal may still give it its whole grace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    pub(super) reason: StopReason,
    kill_ns: u64,
}

/// The terms on which the command runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) deadline_ns: u64,
    pub(super) grace_ns: u64,
    margin_ns: u64,
    /// The lease is known to be lost before the deadline.
    pub(super) lost: bool,
    pub(super) stop: Option<Stop>,
}

impl Terms {
    pub(super) fn new(start: &Start) -> Self {
        Self {
            deadline_ns: start.deadline_ns,
            grace_ns: nanos(start.grace),
            margin_ns: nanos(start.kill_margin),
            lost: false,
            stop: None,
        }
    }

    /// Never shortens: a late message about an earlier renewal must not undo a later one.
    pub(super) fn extend(&mut self, deadline_ns: u64) {
        self.deadline_ns = self.deadline_ns.max(deadline_ns);
    }

    /// Begins an end; true if it is the first one. A second reason can only bring the kill nearer.
    pub(super) fn begin_stop(&mut self, reason: StopReason, now_ns: u64, grace_ns: u64) -> bool {
        let kill_ns = now_ns.saturating_add(grace_ns);
        if let Some(stop) = &mut self.stop {
            stop.kill_ns = stop.kill_ns.min(kill_ns);
            return false;
        }
        self.stop = Some(Stop { reason, kill_ns });
        true
    }

    /// When the deadline alone begins an end; `None` once one has begun.
    pub(super) fn term_ns(&self) -> Option<u64> {
        let term_ns = self.deadline_ns.saturating_sub(self.grace_ns).min(self.last_ns());
        self.stop.is_none().then_some(term_ns)
    }

    /// When what is left is killed; `None` before an end has begun.
    pub(super) fn kill_ns(&self) -> Option<u64> {
        self.stop.map(|stop| stop.kill_ns.min(self.last_ns()))
    }

    /// The last instant at which killing is sure to be done before the deadline.
    pub(super) fn last_ns(&self) -> u64 {
        self.deadline_ns.saturating_sub(self.margin_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn terms(deadline_ns: u64, grace: u64, margin: u64) -> Terms {
        Terms::new(&Start {
            deadline_ns,
            grace: Duration::from_nanos(grace),
            kill_margin: Duration::from_nanos(margin),
            ..Start::default()
        })
    }

    #[test]
    fn term_comes_a_grace_and_kill_a_margin_before_the_deadline() {
        let mut terms = terms(1000, 300, 50);
        assert_eq!((terms.term_ns(), terms.kill_ns()), (Some(700), None));
        assert!(terms.begin_stop(StopReason::Deadline, 700, 300));
        assert_eq!((terms.term_ns(), terms.kill_ns()), (None, Some(950)));
    }

    #[test]
    fn without_grace_the_kill_still_comes_before_the_deadline() {
        let mut terms = terms(1000, 0, 50);
        assert_eq!(terms.term_ns(), Some(950));
        terms.begin_stop(StopReason::Deadline, 950, 0);
        assert_eq!(terms.kill_ns(), Some(950));
    }

    #[test]
    fn a_renewal_never_shortens_and_never_undoes_an_end() {
        let mut terms = terms(1000, 300, 50);
        terms.extend(900);
        assert_eq!(terms.deadline_ns, 1000);
        terms.begin_stop(StopReason::Deadline, 700, 300);
        terms.extend(2000);
        assert_eq!((terms.term_ns(), terms.kill_ns()), (None, Some(1000)));
    }

    #[test]
    fn a_second_end_only_comes_sooner() {
        let mut terms = terms(10_000, 300, 50);
        assert!(terms.begin_stop(StopReason::Asked, 100, 300));
        assert!(!terms.begin_stop(StopReason::FrontGone, 150, 1000));
        assert_eq!(terms.kill_ns(), Some(400));
        assert!(!terms.begin_stop(StopReason::FrontGone, 160, 100));
        assert_eq!(terms.kill_ns(), Some(260));
        assert_eq!(terms.stop.map(|stop| stop.reason), Some(StopReason::Asked));
    }

    #[test]
    fn a_deadline_in_the_past_is_due_at_once() {
        assert_eq!(terms(5, 300, 50).term_ns(), Some(0));
    }
}

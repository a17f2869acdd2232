//! The `metrics` facade: the handles of one client.
//!
//! They are made once, when the client connects: a counter is there with zero from the beginning, so that its first
//! increase is seen as one, and recording looks nothing up. What has a further label is kept by that label's word.

use std::{collections::HashMap, fmt, sync::Mutex, time::Duration};

use leasehold_core::Namespace;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::{metric as name, sync::lock};

type Words = Vec<(&'static str, String)>;

pub(super) struct Facade {
    labels: Words,
    calls: Mutex<HashMap<(&'static str, &'static str), Histogram>>,
    renewals: Family,
    losses: Family,
    preemptions: Family,
    wait: Histogram,
    hand_over: Histogram,
    work: Histogram,
    renewal_late: Histogram,
    window_left: Histogram,
    host_pause: Histogram,
    held: Gauge,
    waiting: Gauge,
    grants: Counter,
    forced: Counter,
    quarantined: Counter,
    regressions: Counter,
    clock_anomalies: Counter,
}

impl fmt::Debug for Facade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facade").field("labels", &self.labels).finish_non_exhaustive()
    }
}

impl Facade {
    pub(super) fn new(engine: &'static str, namespace: &Namespace) -> Self {
        let labels = vec![("engine", engine.to_owned()), ("namespace", namespace.to_string())];
        let histogram = |name: &'static str| histogram!(name, &labels);
        let counter = |name: &'static str| counter!(name, &labels);
        // Fences count it; here it begins at zero.
        counter!(name::STALE_WRITES, "reason" => "stale").increment(0);
        Self {
            calls: Mutex::default(),
            renewals: Family::new(
                name::RENEWALS,
                "outcome",
                &labels,
                &["extended", "unavailable", "unknown"],
            ),
            losses: Family::new(name::LOSSES, "reason", &labels, &["window_closed"]),
            preemptions: Family::new(name::PREEMPTIONS, "answer", &labels, &["asked", "accepted", "refused"]),
            wait: histogram(name::WAIT),
            hand_over: histogram(name::HAND_OVER),
            work: histogram(name::WORK),
            renewal_late: histogram(name::RENEWAL_LATE),
            window_left: histogram(name::WINDOW_LEFT),
            host_pause: histogram(name::HOST_PAUSE),
            held: gauge!(name::HELD, &labels),
            waiting: gauge!(name::WAITING, &labels),
            grants: counter(name::GRANTS),
            forced: counter(name::EXPIRY_FORCED),
            quarantined: counter(name::QUARANTINED),
            regressions: counter(name::REGRESSIONS),
            clock_anomalies: counter(name::CLOCK_ANOMALIES),
            labels,
        }
    }

    pub(super) fn called(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        let make = || {
            let mut labels = self.labels.clone();
            labels.extend([("operation", operation.to_owned()), ("outcome", outcome.to_owned())]);
            histogram!(name::CALL, &labels)
        };
        lock(&self.calls).entry((operation, outcome)).or_insert_with(make).record(took);
    }

    pub(super) fn renewal_left(&self, late: Duration, window_left: Duration) {
        self.renewal_late.record(late);
        self.window_left.record(window_left);
    }

    pub(super) fn renewed(&self, outcome: &'static str) {
        self.renewals.count(outcome, 1);
    }

    pub(super) fn paused(&self, pause: Duration) {
        self.host_pause.record(pause);
    }

    pub(super) fn granted(&self, lapse: bool) {
        self.grants.increment(1);
        self.forced.increment(u64::from(lapse));
    }

    pub(super) fn acquired(&self, asked: Duration, woken: Option<Duration>) {
        self.wait.record(asked);
        if let Some(woken) = woken {
            self.hand_over.record(woken);
        }
    }

    pub(super) fn held(&self, more: f64) {
        self.held.increment(more);
    }

    pub(super) fn worked(&self, work: Duration) {
        self.work.record(work);
    }

    pub(super) fn lost(&self, reason: &'static str) {
        self.losses.count(reason, 1);
    }

    pub(super) fn preempted(&self, answer: &'static str) {
        self.preemptions.count(answer, 1);
    }

    pub(super) fn waiting(&self, more: f64) {
        self.waiting.increment(more);
    }

    pub(super) fn quarantined(&self) {
        self.quarantined.increment(1);
    }

    pub(super) fn regressed(&self) {
        self.regressions.increment(1);
    }

    pub(super) fn clock_stepped(&self) {
        self.clock_anomalies.increment(1);
    }
}

/// A counter for each word of one label.
struct Family {
    name: &'static str,
    label: &'static str,
    labels: Words,
    known: Mutex<HashMap<&'static str, Counter>>,
}

impl Family {
    /// `usual` are there from the beginning.
    fn new(name: &'static str, label: &'static str, labels: &Words, usual: &[&'static str]) -> Self {
        let family = Self { name, label, labels: labels.clone(), known: Mutex::default() };
        for word in usual {
            family.count(word, 0);
        }
        family
    }

    fn count(&self, word: &'static str, more: u64) {
        let make = || {
            let mut labels = self.labels.clone();
            labels.push((self.label, word.to_owned()));
            counter!(self.name, &labels)
        };
        lock(&self.known).entry(word).or_insert_with(make).increment(more);
    }
}

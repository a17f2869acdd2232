//! The name of every metric, what it counts and under which labels. A contract: dashboards and alert rules use them.
//!
//! With the feature `metrics` they go to whatever recorder of the `metrics` facade the program has installed *before* it
//! connects; without one they cost next to nothing. Labels are of low cardinality by design: the engine, the namespace,
//! and an outcome or reason out of a fixed set. Ids of leases and holders, and names of resources, go to events instead.
//!
//! Durations are in seconds, as Prometheus wants them. Its recording rules in `ops/prometheus` turn them into the figures
//! that people look at, such as `lease_acquisition_latency_p99_ms`.

/// What kind of figure a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// Only rises, within one process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Durations in seconds, to be counted in [`BUCKETS`].
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub sort: Sort,
    /// What it says, in one line.
    pub help: &'static str,
    /// The labels beside `engine` and `namespace`.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($constant:ident $sort:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        $(#[doc = $help] pub const $constant: &str = $name;)*

        /// Every metric.
        pub const ALL: &[Metric] = &[
            $(Metric { name: $name, sort: Sort::$sort, help: $help, labels: &[$($label),*] },)*
        ];
    };
}

metrics! {
    CALL Histogram "lease_call_seconds" ["operation" "outcome"]
        "Calls to the coordinator, from send to answer; outcome is ok or the kind of error.";
    WAIT Histogram "lease_wait_seconds" []
        "From asking for a lease to having it, waiting for others included.";
    HAND_OVER Histogram "lease_hand_over_seconds" []
        "From a wake to the grant that it announced.";
    WORK Histogram "lease_work_seconds" []
        "From a grant to the release by its holder.";
    RENEWAL_LATE Histogram "lease_renewal_late_seconds" []
        "How late renewals left, against when they were due.";
    WINDOW_LEFT Histogram "lease_window_left_seconds" []
        "What was left of the holder's window when a renewal left.";
    HOST_PAUSE Histogram "lease_host_pause_seconds" []
        "How late the driver's alarm woke the process.";
    HELD Gauge "leases_held" []
        "Leases held now.";
    WAITING Gauge "leases_waiting" []
        "Claims that wait now.";
    GRANTS Counter "lease_grants_total" []
        "Grants: each has a new fencing token.";
    RENEWALS Counter "lease_renewals_total" ["outcome"]
        "Renewals: extended, revoked, gone, or the kind of error.";
    LOSSES Counter "lease_losses_total" ["reason"]
        "Leases lost, by reason.";
    EXPIRY_FORCED Counter "lease_expiry_forced_total" []
        "Grants that ended by their TTL, counted by the claimant that found one.";
    PREEMPTIONS Counter "lease_preemptions_total" ["answer"]
        "Wishes that a holder has heard of (asked), and its answers: accepted, refused.";
    QUARANTINED Counter "lease_quarantined_total" []
        "Claims answered by a quarantine.";
    REGRESSIONS Counter "lease_token_regressions_total" []
        "Grants given back because their fencing token went back.";
    CLOCK_ANOMALIES Counter "lease_clock_anomalies_total" []
        "Steps of this machine's wall clock against the clock that counts suspend.";
    STALE_WRITES Counter "stale_write_rejected_total" ["reason"]
        "Writes that a fence refused. No engine or namespace: a fence knows neither.";
    OUTBOX_WAITING Gauge "outbox_waiting" []
        "Events that wait in the outbox, as the relay saw it last. No engine or namespace, as all of the outbox.";
    OUTBOX_LAG Gauge "outbox_lag" []
        "For how long the oldest of them has waited, in seconds.";
    OUTBOX_PUBLISHED Counter "outbox_published_total" []
        "Events that the relay has published.";
    OUTBOX_SET_ASIDE Counter "outbox_set_aside_total" []
        "Events that the relay has set aside, because they were refused too often.";
}

/// What the relay finds in the outbox.
#[cfg(all(feature = "effects", any(feature = "sqlite", feature = "postgres", feature = "redis")))]
pub(crate) fn outbox(waiting: u64, lag: std::time::Duration) {
    #[cfg(feature = "metrics")]
    {
        #[allow(clippy::cast_precision_loss, reason = "nobody counts 2^52 events")]
        metrics::gauge!(OUTBOX_WAITING).set(waiting as f64);
        metrics::gauge!(OUTBOX_LAG).set(lag.as_secs_f64());
    }
    #[cfg(not(feature = "metrics"))]
    let _ = (waiting, lag);
}

/// What one turn of the relay came to.
#[cfg(all(feature = "effects", any(feature = "sqlite", feature = "postgres", feature = "redis")))]
pub(crate) fn outbox_turn(published: u32, set_aside: u32) {
    #[cfg(feature = "metrics")]
    {
        metrics::counter!(OUTBOX_PUBLISHED).increment(published.into());
        metrics::counter!(OUTBOX_SET_ASIDE).increment(set_aside.into());
    }
    #[cfg(not(feature = "metrics"))]
    let _ = (published, set_aside);
}

/// Counts a write that a fence has refused, with one word of a fixed set that says why. For fences of one's own.
pub fn write_refused(reason: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(STALE_WRITES, "reason" => reason).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = reason;
}

/// Upper bounds for the histograms, in seconds. 200 ms is one of them, because an alert compares with it.
pub const BUCKETS: &[f64] = &[
    0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
    300.0, 1_800.0, 7_200.0, 86_400.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_end_as_their_sort_asks() {
        for (at, metric) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != metric.name), "{}", metric.name);
            assert_eq!(metric.sort == Sort::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert_eq!(metric.sort == Sort::Histogram, metric.name.ends_with("_seconds"), "{}", metric.name);
            assert!(metric.labels.iter().all(|label| !label.contains("id")), "{}", metric.name);
        }
    }

    #[test]
    fn bounds_rise_and_the_alerts_bound_is_one_of_them() {
        assert!(BUCKETS.is_sorted() && BUCKETS.contains(&0.2));
    }
}

//! What a client has measured about its coordinator and its machine: the figures that a TTL is derived from.
//!
//! Each kind has one histogram of fixed size (17 KiB, two significant digits, 1 µs to 7 days) for the whole life of the
//! client. Recording takes an uncontended lock for some tens of nanoseconds and happens beside calls to the coordinator,
//! never in [`crate::LeaseHandle::check`].

use std::{sync::Mutex, time::Duration};

use hdrhistogram::Histogram;
use leasehold_core::derive_ttl::{Inputs, derive};

use crate::sync::lock;

/// The longest that is told apart: the longest TTL there is.
const LONGEST_US: u64 = 604_800_000_000;
/// 1 %: finer than any TTL is chosen.
const DIGITS: u8 = 2;
/// Fewer round trips than this say nothing of a percentile (ours).
const ENOUGH: u64 = 20;

/// One kind of duration, measured over the life of a client. All zero while there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vital {
    /// How many were measured.
    pub count: u64,
    /// Half were at most this long; to 1 %.
    pub p50: Duration,
    /// 99 of 100 were at most this long; to 1 %.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// What a client has measured so far. See [`crate::Leases::vitals`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Vitals {
    /// Calls to the coordinator, from send to answer. One that was given up counts with the time that it was waited for.
    pub round_trip: Vital,
    /// How late renewals left, against when they were due. One that went along early with others counts as zero.
    pub renewal_lateness: Vital,
    /// How late the driver's alarm woke this process: it was stopped, the machine was busy or asleep.
    pub host_pause: Vital,
    /// From a grant to the end of the work under it, for leases that were released.
    pub work: Vital,
    /// From a wake to the grant that it announced: how fast a waiter takes over.
    pub hand_over: Vital,
    /// From asking for a lease to having it, waiting included.
    pub wait: Vital,
}

impl Vitals {
    /// The TTL at which a lease that is renewed in the background survives a lost renewal, by the round trips and pauses that
    /// were measured; see [`derive()`]. `None` while there were fewer than 20 round trips, and when no TTL is long enough.
    pub fn needed_ttl(&self) -> Option<Duration> {
        let measured = Inputs {
            work_p99: Some(Duration::ZERO),
            margin: Some(Duration::ZERO),
            rtt_p99: Some(self.round_trip.p99),
            pause_p99: Some(self.host_pause.p99),
            ..Inputs::default()
        };
        let derived = (self.round_trip.count >= ENOUGH).then(|| derive(&measured))?;
        derived.ok().map(|derived| derived.renewed.exact)
    }
}

/// One histogram, behind a lock of its own.
#[derive(Debug)]
pub(crate) struct Recording(Mutex<Option<Histogram<u32>>>);

impl Default for Recording {
    fn default() -> Self {
        // The bounds are constants that the histogram takes; without one there is nothing to tell.
        Self(Mutex::new(Histogram::new_with_bounds(1, LONGEST_US, DIGITS).ok()))
    }
}

impl Recording {
    pub(crate) fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        if let Some(histogram) = lock(&self.0).as_mut() {
            histogram.saturating_record(micros);
        }
    }

    pub(crate) fn vital(&self) -> Vital {
        let recording = lock(&self.0);
        let Some(histogram) = recording.as_ref().filter(|histogram| !histogram.is_empty()) else {
            return Vital::default();
        };
        let at = |quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
        Vital {
            count: histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            max: Duration::from_micros(histogram.max()),
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Recordings {
    pub(crate) round_trip: Recording,
    pub(crate) renewal_lateness: Recording,
    pub(crate) host_pause: Recording,
    pub(crate) work: Recording,
    pub(crate) hand_over: Recording,
    pub(crate) wait: Recording,
}

impl Recordings {
    pub(crate) fn vitals(&self) -> Vitals {
        Vitals {
            round_trip: self.round_trip.vital(),
            renewal_lateness: self.renewal_lateness.vital(),
            host_pause: self.host_pause.vital(),
            work: self.work.vital(),
            hand_over: self.hand_over.vital(),
            wait: self.wait.vital(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ttl_that_is_needed_grows_with_what_was_met_and_takes_enough_of_it() {
        let mut vitals = Vitals::default();
        (vitals.round_trip.count, vitals.round_trip.p99) = (ENOUGH, Duration::from_millis(10));
        let short = vitals.needed_ttl().unwrap();
        vitals.host_pause.p99 = Duration::from_secs(60);
        let long = vitals.needed_ttl().unwrap();
        assert!(short < Duration::from_secs(1) && long >= Duration::from_secs(240), "{short:?}, {long:?}");
        vitals.round_trip.count = ENOUGH - 1;
        assert_eq!(vitals.needed_ttl(), None, "too few to say");
    }

    #[test]
    fn a_recording_tells_quantiles_to_one_percent_and_bounds_what_it_keeps() {
        let recording = Recording::default();
        assert_eq!(recording.vital(), Vital::default());
        (1..=1_000).for_each(|ms| recording.record(Duration::from_millis(ms)));
        let vital = recording.vital();
        let near = |found: Duration, ms: u64| {
            let off = found.abs_diff(Duration::from_millis(ms));
            assert!(off <= Duration::from_millis(ms / 100), "{found:?} is not near {ms} ms");
        };
        assert_eq!(vital.count, 1_000);
        near(vital.p50, 500);
        near(vital.p99, 990);
        near(vital.max, 1_000);
        recording.record(Duration::MAX);
        recording.record(Duration::ZERO);
        assert_eq!(recording.vital().count, 1_002);
        assert!(recording.vital().max >= Duration::from_micros(LONGEST_US));
        let buckets = lock(&recording.0).as_ref().unwrap().distinct_values();
        assert!(buckets * size_of::<u32>() <= 18 * 1_024, "{buckets} buckets");
    }
}

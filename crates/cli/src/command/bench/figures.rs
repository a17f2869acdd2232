//! What was measured, as people and as programs read it.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::people;

/// Durations, to 1 %, from 1 µs on.
#[derive(Debug)]
pub(super) struct Recording(Option<Histogram<u32>>);

impl Default for Recording {
    fn default() -> Self {
        // An hour at most, two significant digits: bounds that the histogram takes.
        Self(Histogram::new_with_bounds(1, 3_600_000_000, 2).ok())
    }
}

impl Recording {
    pub(super) fn record(&mut self, micros: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(micros);
        }
    }

    pub(super) fn latency(&self) -> Latency {
        let Some(histogram) = self.0.as_ref().filter(|histogram| !histogram.is_empty()) else {
            return Latency::default();
        };
        Latency {
            count: histogram.len(),
            p50_us: histogram.value_at_quantile(0.5),
            p99_us: histogram.value_at_quantile(0.99),
            max_us: histogram.max(),
        }
    }
}

/// A distribution. All zero when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Latency {
    pub(super) count: u64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) max_us: u64,
}

impl Latency {
    fn row(&self, name: String, per_second: String) -> [String; 5] {
        let shown = |micros| format!("{:?}", Duration::from_micros(micros));
        [name, per_second, shown(self.p50_us), shown(self.p99_us), shown(self.max_us)]
    }
}

/// Acquire and release, again and again.
#[derive(Debug, Serialize)]
pub(super) struct Pairs {
    pub(super) tasks: u16,
    pub(super) took_ms: u64,
    pub(super) per_second: u64,
    pub(super) acquire: Latency,
    pub(super) release: Latency,
}

impl Pairs {
    pub(super) fn rows(&self) -> [[String; 5]; 2] {
        let whose = if self.tasks == 1 { "1 task".to_owned() } else { format!("{} tasks", self.tasks) };
        [
            self.acquire.row(format!("acquire, {whose}"), format!("{} pairs", self.per_second)),
            self.release.row(format!("release, {whose}"), String::new()),
        ]
    }
}

/// From the call that releases to the grant of the next in line, between clients that share nothing but the coordinator.
#[derive(Debug, Serialize)]
pub(super) struct HandOver {
    pub(super) waiters: u16,
    pub(super) latency: Latency,
}

impl HandOver {
    pub(super) fn rows(&self) -> [[String; 5]; 1] {
        [self.latency.row(format!("hand-over, {} waiting", self.waiters), String::new())]
    }
}

/// Leases that are held and renewed in the background.
#[derive(Debug, Serialize)]
pub(super) struct Renewals {
    pub(super) leases: u32,
    pub(super) ttl_ms: u64,
    pub(super) renewed: u64,
    pub(super) per_second: u64,
    /// How late renewals left.
    pub(super) late: Latency,
    pub(super) lost: u64,
    /// Of one processor, in millionths; all threads of this process.
    pub(super) cpu_ppm: u64,
}

impl Renewals {
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { leases, ttl_ms, per_second, late, lost, cpu_ppm, .. } = self;
        let ttl = people::duration(Duration::from_millis(*ttl_ms));
        let late = format!("{:?}", Duration::from_micros(late.p99_us));
        let percent = format!("{}.{:02}", cpu_ppm / 10_000, cpu_ppm % 10_000 / 100);
        vec![
            format!(
                "{leases} leases of {ttl} held: {per_second} renewals per second, p99 {late} late, {lost} lost"
            ),
            format!("  {percent} % of one processor in this process; ten times the TTL costs a tenth"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_knows_its_middle_and_its_end() {
        let mut recording = Recording::default();
        assert_eq!(recording.latency(), Latency::default());
        (1..=100).for_each(|micros| recording.record(micros));
        let Latency { count, p50_us, p99_us, max_us } = recording.latency();
        assert_eq!((count, p50_us, p99_us, max_us), (100, 50, 99, 100));
    }
}

//! Receives the library's figures through the `metrics` facade.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use leasehold::metric::{ALL, BUCKETS};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

use super::snapshot::{Figure, Snapshot};
use crate::failure::Failure;

/// All figures of this process.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<BTreeMap<(&'static str, String), Cell>>);

#[derive(Clone, Debug)]
enum Cell {
    Counter(Arc<Whole>),
    Gauge(Arc<Real>),
    Histogram(Arc<Buckets>),
}

/// A number that only rises.
#[derive(Debug, Default)]
struct Whole(AtomicU64);

/// A floating-point number, as its bits.
#[derive(Debug, Default)]
struct Real(AtomicU64);

#[derive(Debug)]
struct Buckets {
    counts: Vec<AtomicU64>,
    sum: Real,
}

impl Registry {
    /// Makes it the recorder of this process.
    pub(super) fn install(self: &Arc<Self>) -> Result<(), Failure> {
        metrics::set_global_recorder(Installed(self.clone()))
            .map_err(|_| Failure::usage("metrics are being recorded already"))
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for ((name, labels), cell) in &*self.lock() {
            let figure = match cell {
                Cell::Counter(counter) => Figure::Counter(counter.0.load(Ordering::Relaxed)),
                Cell::Gauge(gauge) => Figure::Gauge(gauge.get()),
                Cell::Histogram(histogram) => Figure::Histogram {
                    buckets: histogram.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
                    sum: histogram.sum.get(),
                },
            };
            snapshot.insert(name, labels.clone(), figure);
        }
        snapshot
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), Cell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cell under that key; `None` for a name that is none of the library's.
    fn cell(&self, key: &Key, make: impl FnOnce() -> Cell) -> Option<Cell> {
        let known = ALL.iter().find(|metric| metric.name == key.name())?;
        Some(self.lock().entry((known.name, labels(key))).or_insert_with(make).clone())
    }
}

/// The labels as they are written, without the braces.
fn labels(key: &Key) -> String {
    let mut text = String::new();
    for label in key.labels() {
        let comma = if text.is_empty() { "" } else { "," };
        let value = label.value().replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        // Writing into a String cannot fail.
        let _ = write!(text, "{comma}{}=\"{value}\"", label.key());
    }
    text
}

impl Real {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn change(&self, change: impl Fn(f64) -> f64) {
        let step = |bits| Some(change(f64::from_bits(bits)).to_bits());
        // The closure always gives a value.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self { counts: (0..=BUCKETS.len()).map(|_| AtomicU64::new(0)).collect(), sum: Real::default() }
    }
}

impl CounterFn for Whole {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

impl GaugeFn for Real {
    fn increment(&self, value: f64) {
        self.change(|now| now + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|now| now - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let at = BUCKETS.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
            self.sum.change(|sum| sum + value);
        }
    }
}

/// The recorder that the facade owns.
#[derive(Debug)]
pub(super) struct Installed(pub(super) Arc<Registry>);

impl Recorder for Installed {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.0.cell(key, || Cell::Counter(Arc::default())) {
            Some(Cell::Counter(counter)) => Counter::from_arc(counter),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.0.cell(key, || Cell::Gauge(Arc::default())) {
            Some(Cell::Gauge(gauge)) => Gauge::from_arc(gauge),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.0.cell(key, || Cell::Histogram(Arc::default())) {
            Some(Cell::Histogram(histogram)) => Histogram::from_arc(histogram),
            _ => Histogram::noop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::metric;

    use super::*;

    #[test]
    fn what_the_facade_is_told_is_what_the_snapshot_shows() {
        let registry = Arc::new(Registry::default());
        metrics::with_local_recorder(&Installed(registry.clone()), || {
            metrics::counter!(metric::GRANTS, "engine" => "a\"b\\c\nd").increment(2);
            metrics::counter!("something_else_total").increment(2);
            metrics::gauge!(metric::HELD).increment(1.5);
            let wait = metrics::histogram!(metric::WAIT);
            for seconds in [0.2, 0.200_001, 1e9] {
                wait.record(seconds);
            }
        });
        let found = registry.snapshot().0;
        assert_eq!(found[metric::GRANTS][r#"engine="a\"b\\c\nd""#], Figure::Counter(2));
        assert_eq!(found[metric::HELD][""], Figure::Gauge(1.5));
        assert_eq!(found.len(), 3, "a name that is not the library's is not shown");
        let Figure::Histogram { buckets, .. } = &found[metric::WAIT][""] else { panic!("{found:?}") };
        let at = BUCKETS.iter().position(|bound| bound.total_cmp(&0.2).is_eq()).unwrap();
        assert_eq!((buckets[at], buckets[at + 1], buckets[BUCKETS.len()]), (1, 1, 1));
    }
}

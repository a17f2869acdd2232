//! Figures at one moment: what the registry shows, what a file says, and the difference between two of them.

use std::collections::BTreeMap;

/// All figures: by name, then by labels as they are written.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Snapshot(pub(super) BTreeMap<&'static str, BTreeMap<String, Figure>>);

/// One figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Figure {
    Counter(u64),
    Gauge(f64),
    Histogram {
        /// How many fell into each bucket; the last is for what is above every bound.
        buckets: Vec<u64>,
        sum: f64,
    },
}

impl Snapshot {
    pub(super) fn insert(&mut self, name: &'static str, labels: String, figure: Figure) {
        self.0.entry(name).or_default().insert(labels, figure);
    }

    /// The counting part alone. A gauge in a file would outlive the process it is about.
    pub(super) fn counting(mut self) -> Self {
        for figures in self.0.values_mut() {
            figures.retain(|_, figure| !matches!(figure, Figure::Gauge(_)));
        }
        self.0.retain(|_, figures| !figures.is_empty());
        self
    }

    /// Adds what was counted from `before` to `now`.
    pub(super) fn add_since(&mut self, before: &Self, now: &Self) {
        for (name, figures) in &now.0 {
            for (labels, figure) in figures {
                let earlier = before.0.get(name).and_then(|figures| figures.get(labels));
                let more = earlier.map_or_else(|| figure.clone(), |earlier| figure.minus(earlier));
                let total = self.0.entry(name).or_default();
                match total.get_mut(labels) {
                    Some(total) => total.add(&more),
                    None => drop(total.insert(labels.clone(), more)),
                }
            }
        }
    }
}

impl Figure {
    fn minus(&self, earlier: &Self) -> Self {
        match (self, earlier) {
            (Self::Counter(now), Self::Counter(before)) => Self::Counter(now.saturating_sub(*before)),
            (Self::Histogram { buckets, sum }, Self::Histogram { buckets: before, sum: sum_before }) => {
                let buckets = buckets.iter().zip(before).map(|(now, before)| now.saturating_sub(*before));
                Self::Histogram { buckets: buckets.collect(), sum: sum - sum_before }
            }
            _ => self.clone(),
        }
    }

    fn add(&mut self, more: &Self) {
        match (self, more) {
            (Self::Counter(total), Self::Counter(more)) => *total = total.saturating_add(*more),
            (Self::Histogram { buckets, sum }, Self::Histogram { buckets: more, sum: sum_more }) => {
                for (total, more) in buckets.iter_mut().zip(more) {
                    *total = total.saturating_add(*more);
                }
                *sum += sum_more;
            }
            (total, more) => *total = more.clone(),
        }
    }
}

//! What the run itself uses up: the memory and descriptors of workers that live long, over time. A leak of a few bytes a grant
//! shows here, and in nothing else.

use std::{collections::HashMap, fs};

use serde::Serialize;

use super::crew::Crew;

/// Growth of one process beyond which something leaks (ours: a client's histograms, pools and caches are far below).
pub(super) const MOST_MEMORY_KIB: u64 = 64 * 1_024;
pub(super) const MOST_DESCRIPTORS: u64 = 64;

/// The most that was seen, and how much it grew in one process since that was first looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Usage {
    pub(crate) memory_kib: u64,
    pub(crate) memory_growth_kib: u64,
    pub(crate) descriptors: u64,
    pub(crate) descriptors_growth: u64,
}

/// The first look at each process.
#[derive(Debug, Default)]
pub(super) struct Samples {
    first: HashMap<u32, (u64, u64)>,
    seen: Usage,
}

impl Samples {
    /// Looks at those that are never killed, and at this process.
    pub(super) fn look(&mut self, crew: &Crew, spared: usize) {
        let workers = crew.slots.iter().take(spared).map(|slot| slot.child.pid());
        for pid in workers.chain([std::process::id()]) {
            if let Some((memory, descriptors)) = of_process(pid) {
                self.note(pid, memory, descriptors);
            }
        }
    }

    fn note(&mut self, pid: u32, memory_kib: u64, descriptors: u64) {
        let (first_kib, first_descriptors) = *self.first.entry(pid).or_insert((memory_kib, descriptors));
        let seen = &mut self.seen;
        seen.memory_kib = seen.memory_kib.max(memory_kib);
        seen.descriptors = seen.descriptors.max(descriptors);
        seen.memory_growth_kib = seen.memory_growth_kib.max(memory_kib.saturating_sub(first_kib));
        seen.descriptors_growth = seen.descriptors_growth.max(descriptors.saturating_sub(first_descriptors));
    }

    pub(super) fn usage(&self) -> Usage {
        self.seen
    }
}

impl Usage {
    /// True while nothing grows without end.
    pub(super) fn is_bounded(&self) -> bool {
        self.memory_growth_kib <= MOST_MEMORY_KIB && self.descriptors_growth <= MOST_DESCRIPTORS
    }
}

/// Resident memory in KiB, and open descriptors; `None` when it has ended.
fn of_process(pid: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let memory = resident.split_whitespace().next()?.parse().ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some((memory, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_counted_for_each_process_apart() {
        let mut samples = Samples::default();
        samples.note(1, 1_000, 10);
        samples.note(2, 5_000, 90);
        samples.note(1, 1_500, 12);
        let expected =
            Usage { memory_kib: 5_000, memory_growth_kib: 500, descriptors: 90, descriptors_growth: 2 };
        assert_eq!(samples.usage(), expected);
        assert!(expected.is_bounded());
        samples.note(1, 1_000 + MOST_MEMORY_KIB + 1, 12);
        assert!(!samples.usage().is_bounded());
        assert!(of_process(std::process::id()).is_some());
    }
}

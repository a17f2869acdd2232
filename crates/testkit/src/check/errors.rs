//! How well the clocks of a history agree.
//!
//! Processes of one machine write the same BOOTTIME, and compare exactly. Those of several machines do not: each machine's
//! times are known to within some error (half a round trip to whoever they were compared with). What holds for every choice
//! of times within the errors is *certain*, and fails; what holds for some is *possible*, and is only shown.

use std::collections::BTreeMap;

/// The error of each process's times, in nanoseconds either way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClockErrors(BTreeMap<String, u64>);

impl ClockErrors {
    /// Times of `process` may be off by `error_ns` either way.
    pub fn set(&mut self, process: &str, error_ns: u64) {
        self.0.insert(process.to_owned(), error_ns);
    }

    /// How far two processes' times may be off against each other. A process compares exactly with itself.
    pub(super) fn between(&self, one: &str, other: &str) -> u64 {
        if one == other || self.0.is_empty() {
            return 0;
        }
        let of = |process| self.0.get(process).copied().unwrap_or_default();
        of(one).saturating_add(of(other))
    }
}

//! Watches for steps of the wall clock: they are told as a metric, because whoever sets a clock should know that leases look
//! at it.

use std::time::Duration;

use leasehold_core::window::{ClockRule, Reading};

use crate::clock;

/// A difference beyond this, and beyond a tenth of the time that passed, is a step and no slewing: time synchronisation
/// slews by a tenth at most.
const LEAST_NS: u64 = 250_000_000;

/// The clocks at the last look.
#[derive(Debug)]
pub(super) struct Steps(Reading);

impl Steps {
    pub(super) fn new() -> Self {
        Self(clock::read(ClockRule::LargestOfThree))
    }

    /// True when the wall clock stepped since the last look.
    pub(super) fn found(&mut self) -> bool {
        self.stepped(clock::read(ClockRule::LargestOfThree))
    }

    fn stepped(&mut self, now: Reading) -> bool {
        let before = std::mem::replace(&mut self.0, now);
        let boot_ns = now.boot_ns.saturating_sub(before.boot_ns);
        // What the wall clock should show, and does.
        let off_ns = before.real_ns.saturating_add(boot_ns).abs_diff(now.real_ns);
        let slewed = ClockRule::Boot.elapsed(before, now).max(Duration::from_nanos(LEAST_NS * 10)) / 10;
        u128::from(off_ns) > slewed.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_either_way_is_found_once_and_slewing_is_none() {
        const S: u64 = 1_000_000_000;
        let mut steps = Steps(Reading { boot_ns: 0, raw_ns: 0, real_ns: 100 * S });
        let mut at =
            |boot: u64, real_ns: u64| steps.stepped(Reading { boot_ns: boot * S, raw_ns: 0, real_ns });
        assert!(!at(10, 110 * S));
        assert!(!at(20, 120 * S + S / 2), "slewed by a twentieth");
        assert!(at(21, 131 * S));
        assert!(!at(22, 132 * S));
        assert!(at(23, 33 * S));
        assert!(!at(24, 34 * S + S / 5));
    }
}

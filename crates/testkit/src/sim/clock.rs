//! The clocks of a simulated machine: each with a rate of its own, each able to step or to stand still.

use leasehold_core::window::{ClockRule, Reading};

const MILLION: u64 = 1_000_000;

/// One clock: a line through its last change, in true time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    anchor_ns: u64,
    value_ns: u64,
    ppm: i32,
    frozen: bool,
}

impl Clock {
    const fn new(value_ns: u64, ppm: i32) -> Self {
        Self { anchor_ns: 0, value_ns, ppm, frozen: false }
    }

    const fn pace(self) -> u64 {
        MILLION.saturating_add_signed(self.ppm as i64)
    }

    /// What it shows at a moment of true time.
    pub(super) const fn read(self, at_ns: u64) -> u64 {
        if self.frozen {
            return self.value_ns;
        }
        self.value_ns + at_ns.saturating_sub(self.anchor_ns) * self.pace() / MILLION
    }

    /// The first moment of true time at which it shows `value_ns`, as it runs now.
    pub(super) const fn when(self, value_ns: u64) -> u64 {
        let to_go = value_ns.saturating_sub(self.value_ns);
        if to_go == 0 {
            return self.anchor_ns;
        }
        if self.frozen || to_go > u64::MAX / (2 * MILLION) {
            return u64::MAX;
        }
        self.anchor_ns + (to_go * MILLION).div_ceil(self.pace())
    }

    const fn rebase(&mut self, at_ns: u64) {
        self.value_ns = self.read(at_ns);
        self.anchor_ns = at_ns;
    }

    const fn freeze(&mut self, at_ns: u64, frozen: bool) {
        self.rebase(at_ns);
        self.frozen = frozen;
    }
}

/// Which clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// CLOCK_BOOTTIME.
    Boot,
    /// `CLOCK_MONOTONIC_RAW`.
    Raw,
    /// CLOCK_REALTIME.
    Real,
}

/// 2027 or so, in nanoseconds.
const EPOCH_NS: u64 = 1_800_000_000_000_000_000;

/// One machine, and whether it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    boot: Clock,
    raw: Clock,
    real: Clock,
}

impl Machine {
    /// A machine that has run for a while, with these rate errors.
    pub(super) const fn new(up_ns: u64, boot_ppm: i32, raw_ppm: i32, real_ppm: i32) -> Self {
        Self {
            boot: Clock::new(up_ns, boot_ppm),
            raw: Clock::new(up_ns / 2, raw_ppm),
            real: Clock::new(EPOCH_NS, real_ppm),
        }
    }

    pub(super) const fn clock(&self, which: Which) -> Clock {
        match which {
            Which::Boot => self.boot,
            Which::Raw => self.raw,
            Which::Real => self.real,
        }
    }

    const fn clock_mut(&mut self, which: Which) -> &mut Clock {
        match which {
            Which::Boot => &mut self.boot,
            Which::Raw => &mut self.raw,
            Which::Real => &mut self.real,
        }
    }

    pub(super) const fn read(&self, at_ns: u64) -> Reading {
        Reading {
            boot_ns: self.boot.read(at_ns),
            raw_ns: self.raw.read(at_ns),
            real_ns: self.real.read(at_ns),
        }
    }

    /// The first moment of true time at which a window with these deadlines is closed.
    pub(super) fn closes_at(&self, closes: Reading, rule: ClockRule) -> u64 {
        let boot = self.boot.when(closes.boot_ns);
        match rule {
            ClockRule::Boot => boot,
            ClockRule::LargestOfThree => {
                boot.min(self.raw.when(closes.raw_ns)).min(self.real.when(closes.real_ns))
            }
        }
    }

    pub(super) const fn set_rate(&mut self, at_ns: u64, which: Which, ppm: i32) {
        let clock = self.clock_mut(which);
        clock.rebase(at_ns);
        clock.ppm = ppm;
    }

    pub(super) const fn step_wall(&mut self, at_ns: u64, by_ns: i64) {
        self.real.rebase(at_ns);
        self.real.value_ns = self.real.value_ns.saturating_add_signed(by_ns);
    }

    /// Sleep: the monotonic clock stands, the others go on.
    pub(super) const fn suspend(&mut self, at_ns: u64, asleep: bool) {
        self.raw.freeze(at_ns, asleep);
    }

    /// A pause of the virtual machine: every clock stands.
    pub(super) const fn freeze(&mut self, at_ns: u64, frozen: bool) {
        self.boot.freeze(at_ns, frozen);
        self.raw.freeze(at_ns, frozen);
        self.real.freeze(at_ns, frozen);
    }

    /// How far the wall clock is from where it started plus true time.
    pub(super) const fn wall_error(&self, at_ns: u64) -> i64 {
        (self.real.read(at_ns)).cast_signed() - (EPOCH_NS + at_ns).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_moment_a_clock_shows_a_value_is_the_first(ppm in -100_000i32..100_000, from in 0u64..1_000_000_000, ahead in 1u64..60_000_000_000) {
            let mut clock = Clock::new(7, ppm);
            clock.rebase(from);
            let at = clock.when(clock.read(from) + ahead);
            prop_assert!(clock.read(at) >= clock.read(from) + ahead);
            prop_assert!(clock.read(at - 1) < clock.read(from) + ahead);
        }
    }

    #[test]
    fn suspend_stops_one_clock_and_a_pause_of_the_machine_all() {
        let mut machine = Machine::new(100, 0, 0, 0);
        machine.suspend(10, true);
        machine.suspend(30, false);
        assert_eq!(machine.read(40).boot_ns, 140);
        assert_eq!(machine.read(40).raw_ns, 50 + 20);
        machine.freeze(40, true);
        assert_eq!(machine.read(90), machine.read(40));
        assert_eq!(machine.clock(Which::Boot).when(1_000), u64::MAX);
    }
}

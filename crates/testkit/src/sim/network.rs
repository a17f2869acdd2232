//! The way between a node and a server, one direction at a time.

use super::schedule::Net;
use crate::random::Choices;

const MS: u64 = 1_000_000;

/// One direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    /// Messages sent before this wait until then.
    stalled_until_ns: u64,
    /// Messages sent before this are lost.
    cut_until_ns: u64,
}

impl Link {
    pub(super) fn stall(&mut self, until_ns: u64) {
        self.stalled_until_ns = self.stalled_until_ns.max(until_ns);
    }

    pub(super) fn cut(&mut self, until_ns: u64) {
        self.cut_until_ns = self.cut_until_ns.max(until_ns);
    }

    /// When a message that is sent now arrives; `None` when it does not.
    pub(super) fn carry(&self, net: &Net, now_ns: u64, choices: &mut Choices) -> Option<u64> {
        let hit = |n: u32, choices: &mut Choices| n > 0 && choices.one_in(u64::from(n));
        if now_ns < self.cut_until_ns || hit(net.loss, choices) {
            return None;
        }
        let (least, most) = (u64::from(net.least_us) * 1_000, u64::from(net.most_us) * 1_000);
        let mut delay_ns = least + choices.below(most - least + 1);
        if hit(net.slow, choices) {
            delay_ns += choices.below(u64::from(net.slow_ms) * MS);
        }
        Some(now_ns.max(self.stalled_until_ns) + delay_ns)
    }
}

//! How many writes this process has refused: `stale_write_rejected_total`, with the reason as its one label.
//!
//! Counted here, in the process that asked the fence; whoever exports metrics reads it. Names of resources and holders are
//! in the log and never in a metric.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::fence::Refusal;

/// The metric's name.
pub const STALE_WRITE_REJECTED_TOTAL: &str = "stale_write_rejected_total";

/// The values of the label `reason`, in the order of the counters.
const REASONS: [&str; 8] = [
    "stale",
    "collision",
    "no_such_resource",
    "not_held",
    "missing_token",
    "wrong_resource",
    "token_too_high",
    "ticket",
];

static COUNTERS: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];

/// Counts one; how many there are now in all.
pub(super) fn one(refusal: &Refusal) -> u64 {
    let word = match refusal {
        Refusal::Ticket(_) => "ticket",
        other => other.word(),
    };
    for (reason, counter) in REASONS.iter().zip(&COUNTERS) {
        if *reason == word {
            counter.fetch_add(1, Ordering::Relaxed);
            crate::metric::write_refused(reason);
        }
    }
    stale_writes_rejected().iter().map(|(_, count)| count).sum()
}

/// The refusals of this process since it began: `stale_write_rejected_total` by `reason`.
pub fn stale_writes_rejected() -> [(&'static str, u64); 8] {
    let mut counts = [("", 0); REASONS.len()];
    for (at, (reason, counter)) in REASONS.iter().zip(&COUNTERS).enumerate() {
        counts[at] = (*reason, counter.load(Ordering::Relaxed));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::ticket::TicketFault;

    #[test]
    fn every_refusal_has_a_counter() {
        let total = || stale_writes_rejected().iter().map(|(_, count)| count).sum::<u64>();
        let before = total();
        let all = [
            Refusal::NoSuchResource,
            Refusal::MissingToken,
            Refusal::TokenTooHigh { limit: 1 },
            Refusal::Ticket(TicketFault::Forged),
        ];
        // Other tests of this process count too.
        let counted: Vec<u64> = all.iter().map(one).collect();
        assert!(total() >= before + 4 && counted.is_sorted(), "{counted:?}");
    }
}

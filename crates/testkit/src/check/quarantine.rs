//! L6, a quarantine ends: it lasts for the longest TTL from the loss of memory, and no longer.
//!
//! What breaks for a user: after a restart nobody is ever granted anything again.

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "L6-quarantine";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut forgot: Option<(&Event, u64)> = None;
    for event in events {
        match event.what {
            What::Forgot { for_ms } => forgot = Some((event, for_ms)),
            What::Quarantined { sent_ns, left_ms } => {
                let Some((loss, for_ms)) = forgot else { continue };
                // One part in fifty for the clocks, and a tenth of a second for rounding.
                let most_ms = for_ms.saturating_add(for_ms / 50 + 100);
                let begun_ns = sent_ns.max(loss.at_ns);
                if later(begun_ns, left_ms) > later(loss.at_ns, most_ms) {
                    let text = format!("a quarantine of {for_ms} ms has {left_ms} ms left");
                    violations.push(violation(NAME, text, &[loss, event]));
                }
            }
            _ => {}
        }
    }
}

/// So many milliseconds after a moment. A history is what somebody wrote down: its numbers may be anything.
fn later(at_ns: u64, ms: u64) -> u128 {
    u128::from(at_ns) + u128::from(ms) * 1_000_000
}

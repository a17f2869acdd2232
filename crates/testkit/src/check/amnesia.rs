//! S11, amnesia: a coordinator that may have forgotten grants makes no new one until they must have ended.
//!
//! What breaks for a user: the server is restarted, and a second holder is let in beside the one it no longer knows.

use std::collections::HashMap;

use leasehold_core::LeaseId;

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S11-amnesia";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut forgot: Option<(&Event, u64)> = None;
    let mut attempts: HashMap<LeaseId, u64> = HashMap::new();
    for event in events {
        match event.what {
            What::Forgot { for_ms } => {
                forgot = Some((event, event.at_ns.saturating_add(for_ms.saturating_mul(1_000_000))));
            }
            What::Attempt => {
                attempts.entry(event.lease_id).or_insert(event.at_ns);
            }
            What::Granted { sent_ns, open_ns, .. } => {
                let Some((loss, until_ns)) = forgot else { continue };
                // A claim from before may be answered with what was granted before.
                let attempted_ns = attempts.get(&event.lease_id).copied().unwrap_or_default();
                let asked_since = sent_ns.unwrap_or(open_ns) >= loss.at_ns && attempted_ns >= loss.at_ns;
                if asked_since && open_ns < until_ns {
                    let early = until_ns - open_ns;
                    let text =
                        format!("{} was granted {early} ns too early after a loss of memory", event.process);
                    violations.push(violation(NAME, text, &[loss, event]));
                }
            }
            _ => {}
        }
    }
}

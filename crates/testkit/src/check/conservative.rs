//! S4, conservative windows: belief never lasts longer than the TTL, counted from the send of the request that gave it, and
//! a renewal never narrows it.
//!
//! What breaks for a user: a slow network turns into two holders, on exactly the bad day the TTL was chosen for.

use std::collections::HashMap;

use leasehold_core::LeaseId;

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S4-conservative";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut grants: HashMap<(&str, LeaseId), (&Event, Option<u64>, u64)> = HashMap::new();
    for event in events {
        let key = (event.resource.as_str(), event.lease_id);
        match event.what {
            What::Granted { sent_ns, close_ns, open_ns, ttl_ms, .. } => {
                grants.insert(key, (event, ttl_ms, close_ns));
                if close_ns <= open_ns {
                    let text = "the window had closed before it opened: too late is not granted".to_owned();
                    violations.push(violation(NAME, text, &[event]));
                }
                too_long(event, None, sent_ns, close_ns, ttl_ms, violations);
            }
            What::Extended { sent_ns, close_ns, .. } => {
                let Some((granted, ttl_ms, latest)) = grants.get_mut(&key) else { continue };
                if close_ns < *latest {
                    let text = format!("a renewal narrowed the window by {} ns", *latest - close_ns);
                    violations.push(violation(NAME, text, &[*granted, event]));
                }
                *latest = (*latest).max(close_ns);
                let (granted, ttl_ms) = (*granted, *ttl_ms);
                too_long(event, Some(granted), sent_ns, close_ns, ttl_ms, violations);
            }
            _ => {}
        }
    }
}

fn too_long(
    event: &Event,
    granted: Option<&Event>,
    sent_ns: Option<u64>,
    close_ns: u64,
    ttl_ms: Option<u64>,
    violations: &mut Vec<Violation>,
) {
    let (Some(sent_ns), Some(ttl_ms)) = (sent_ns, ttl_ms) else { return };
    let most = sent_ns.saturating_add(ttl_ms.saturating_mul(1_000_000));
    if close_ns > most {
        let text = format!(
            "the window outlasts its TTL of {ttl_ms} ms, counted from the send, by {} ns",
            close_ns - most
        );
        let evidence: Vec<&Event> = granted.into_iter().chain([event]).collect();
        violations.push(violation(NAME, text, &evidence));
    }
}

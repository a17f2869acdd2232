//! L3, no orphan: a grant that nobody believes in any more is gone from the coordinator when its TTL and lock-delay are over.
//! L7, a clock that was set back locks nothing for ever, is the same seen from outside: what is left of a lease is never more
//! than its TTL.
//!
//! What breaks for a user: a resource that nobody uses cannot be had, and the only cure is an operator.

use std::{collections::HashMap, time::Duration};

use leasehold_core::LeaseId;

use super::{Event, Violation, What, history::violation};

/// The name under which an orphan is reported.
pub(super) const NAME: &str = "L3-orphan";
/// The name under which a lease beyond its own TTL is reported.
pub(super) const LOCKED: &str = "L7-locked";

/// Judges from the calm on: what is lost on the way before it may be on its way for long.
pub(super) fn judge(events: &[Event], longest: Duration, violations: &mut Vec<Violation>) {
    let mut calm_ns = None;
    let mut believed: HashMap<(&str, LeaseId), (u64, &Event)> = HashMap::new();
    for event in events {
        let key = (event.resource.as_str(), event.lease_id);
        match event.what {
            What::Calm => calm_ns = Some(event.at_ns),
            What::Released { .. } | What::Lost { .. } | What::GaveUp => {
                believed.insert(key, (event.at_ns, event));
            }
            What::Granted { close_ns, .. } | What::Extended { close_ns, .. } => {
                believed.insert(key, (close_ns, event));
            }
            What::Stands { .. } => {
                let (Some(calm_ns), Some(&(until_ns, last))) = (calm_ns, believed.get(&key)) else {
                    continue;
                };
                let alone = Duration::from_nanos(event.at_ns.saturating_sub(until_ns.max(calm_ns)));
                if alone > longest {
                    let text =
                        format!("grant {} stands {alone:?} after anybody believed in it", event.lease_id);
                    violations.push(violation(NAME, text, &[last, event]));
                    believed.remove(&key);
                }
            }
            _ => {}
        }
    }
}

pub(super) fn judge_locked(events: &[Event], violations: &mut Vec<Violation>) {
    for event in events {
        if let What::Busy { left_ms, ttl_ms } = event.what
            && left_ms > ttl_ms
        {
            let text = format!("{left_ms} ms are left of a lease of {ttl_ms} ms");
            violations.push(violation(LOCKED, text, &[event]));
        }
    }
}

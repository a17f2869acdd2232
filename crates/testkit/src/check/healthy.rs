//! L4, a healthy holder keeps its lease: where nothing is broken, no lease is lost but by a limit or an operator. L5, a stuck
//! one loses it: no belief goes beyond the holder's own limit.
//!
//! What breaks for a user: jobs are aborted for no reason; or one that hangs is never aborted.

use std::collections::{HashMap, HashSet};

use leasehold_core::LeaseId;

use super::{Event, Violation, What, history::violation};

/// The name under which a lost lease is reported.
pub(super) const NAME: &str = "L4-healthy";
/// The name under which a stuck holder is reported.
pub(super) const STUCK: &str = "L5-stuck";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut calm_ns = u64::MAX;
    let mut granted: HashMap<(&str, LeaseId), &Event> = HashMap::new();
    let mut told: HashSet<(&str, LeaseId)> = HashSet::new();
    for event in events {
        let key = (event.resource.as_str(), event.lease_id);
        match event.what {
            What::Calm => calm_ns = event.at_ns,
            // What was asked for in the storm may have little left of its window.
            What::Granted { sent_ns, open_ns, .. } if sent_ns.unwrap_or(open_ns) > calm_ns => {
                granted.insert(key, event);
            }
            What::Told => {
                told.insert(key);
            }
            What::Lost { .. } if !told.contains(&key) => {
                if let Some(grant) = granted.get(&key) {
                    let text = format!("{} lost its lease although nothing was broken", event.process);
                    violations.push(violation(NAME, text, &[*grant, event]));
                }
            }
            _ => {}
        }
    }
}

pub(super) fn judge_stuck(events: &[Event], violations: &mut Vec<Violation>) {
    let mut limits: HashMap<(&str, LeaseId), (&Event, u64)> = HashMap::new();
    for event in events {
        let key = (event.resource.as_str(), event.lease_id);
        match event.what {
            // The holder's own clock may run slow by its drift: one part in a hundred is twice that.
            What::Limited { hold_ms } => {
                let until_ns = event.at_ns.saturating_add(hold_ms.saturating_mul(1_010_000));
                limits.insert(key, (event, until_ns));
            }
            What::Held { .. } => {
                if let Some((limited, until_ns)) =
                    limits.get(&key).filter(|(_, until_ns)| event.at_ns > *until_ns)
                {
                    let beyond = event.at_ns - until_ns;
                    let text = format!("{} still held {beyond} ns beyond its limit", event.process);
                    violations.push(violation(STUCK, text, &[*limited, event]));
                }
            }
            _ => {}
        }
    }
}

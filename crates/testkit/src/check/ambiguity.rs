//! S10, ambiguity: whoever is told that nothing of its claim stands can rely on it, now and later.
//!
//! What breaks for a user: a claim that "failed" holds the resource, and nobody knows whose it is or that it should be ended.

use std::collections::HashMap;

use leasehold_core::LeaseId;

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S10-ambiguity";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut disowned: HashMap<(&str, LeaseId), &Event> = HashMap::new();
    for event in events {
        let key = (event.resource.as_str(), event.lease_id);
        match event.what {
            What::Disowned => {
                disowned.entry(key).or_insert(event);
            }
            What::Stands { .. } => {
                if let Some(before) = disowned.remove(&key) {
                    let later = event.at_ns - before.at_ns;
                    let text = format!(
                        "{} was told that nothing of claim {} stands; {later} ns later it did",
                        before.process, event.lease_id
                    );
                    violations.push(violation(NAME, text, &[before, event]));
                }
            }
            _ => {}
        }
    }
}

//! S13, effects: under one idempotency key at most one effect is committed, and effect, record and event are committed
//! together.
//!
//! What breaks for a user: the customer is charged twice; or once, and nobody downstream hears of it.

use std::collections::BTreeMap;

use super::{Event, Part, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S13-effects";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut keys: BTreeMap<(&str, u64), BTreeMap<Part, Vec<&Event>>> = BTreeMap::new();
    for event in events {
        if let What::Committed { key, part } = event.what {
            keys.entry((&event.resource, key)).or_default().entry(part).or_default().push(event);
        }
    }
    for ((_, key), parts) in &keys {
        for (part, commits) in parts {
            if let [first, second, ..] = commits[..] {
                let text = format!("{part:?} of key {key} was committed {} times", commits.len());
                violations.push(violation(NAME, text, &[first, second]));
            }
        }
        let missing =
            [Part::Effect, Part::Record, Part::Event].into_iter().find(|part| !parts.contains_key(part));
        if let (Some(missing), Some(first)) = (missing, parts.values().flatten().next()) {
            violations.push(violation(
                NAME,
                format!("{missing:?} of key {key} was never committed"),
                &[*first],
            ));
        }
    }
}

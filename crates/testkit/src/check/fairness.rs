//! Nobody starves: everybody who asks gets a share, and waits no longer than the caller's bound.
//!
//! What breaks for a user: everything is safe, and one machine's job never runs.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use leasehold_core::LeaseId;

use super::{Event, Violation, What, history::violation};

/// The name under which a long wait is reported.
pub(super) const WAIT: &str = "L1-wait";
/// The name under which a missing share is reported.
pub(super) const SHARE: &str = "L8-share";

/// What the caller expects of this history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fairness {
    /// The longest time from an attempt to its grant. Attempts that were given up, or still wait when the history ends,
    /// count with the time they waited.
    pub longest_wait: Option<Duration>,
    /// The fewest grants of a process that attempted any.
    pub least_share: u64,
}

pub(super) fn judge(events: &[Event], fairness: &Fairness, violations: &mut Vec<Violation>) {
    let mut waiting: HashMap<(&str, LeaseId), &Event> = HashMap::new();
    let mut shares: BTreeMap<&str, (u64, &Event)> = BTreeMap::new();
    let mut waits: Vec<(u64, &Event, Option<&Event>)> = Vec::new();
    for event in events {
        let key = (event.resource.as_str(), event.lease_id);
        match event.what {
            What::Attempt => {
                waiting.entry(key).or_insert(event);
                shares.entry(&event.process).or_insert((0, event));
            }
            What::Granted { .. } => {
                shares.entry(&event.process).or_insert((0, event)).0 += 1;
                if let Some(attempt) = waiting.remove(&key) {
                    waits.push((event.at_ns.saturating_sub(attempt.at_ns), attempt, Some(event)));
                }
            }
            What::GaveUp => {
                if let Some(attempt) = waiting.remove(&key) {
                    waits.push((event.at_ns.saturating_sub(attempt.at_ns), attempt, Some(event)));
                }
            }
            _ => {}
        }
    }
    let end_ns = events.last().map_or(0, |event| event.at_ns);
    waits.extend(waiting.into_values().map(|attempt| (end_ns.saturating_sub(attempt.at_ns), attempt, None)));
    if let Some(longest) = fairness.longest_wait {
        let worst = waits.into_iter().max_by_key(|&(waited_ns, ..)| waited_ns);
        if let Some((waited_ns, attempt, answer)) =
            worst.filter(|&(ns, ..)| u128::from(ns) > longest.as_nanos())
        {
            let waited = Duration::from_nanos(waited_ns);
            let text = format!("{} waited {waited:?}, longer than {longest:?}", attempt.process);
            let evidence: Vec<&Event> = [attempt].into_iter().chain(answer).collect();
            violations.push(violation(WAIT, text, &evidence));
        }
    }
    for (process, (grants, first)) in shares {
        if grants < fairness.least_share {
            let text = format!("{process} was granted {grants} times, fewer than {}", fairness.least_share);
            violations.push(violation(SHARE, text, &[first]));
        }
    }
}

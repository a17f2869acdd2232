//! L1 and L2, nobody waits for nothing: once it is calm, every claim is granted within the bound (L1), and a resource that is
//! free is not left lying while somebody waits for it (L2).
//!
//! What breaks for a user: the holder died or released, and the next in line goes on waiting.

use std::{collections::HashMap, time::Duration};

use leasehold_core::LeaseId;

use super::{Event, Violation, What, history::violation};

/// The name under which a long wait is reported.
pub(super) const WAIT: &str = "L1-wait";
/// The name under which an idle resource is reported.
pub(super) const HANDOVER: &str = "L2-handover";

pub(super) fn judge(
    events: &[Event],
    longest_wait: Duration,
    longest_idle: Duration,
    violations: &mut Vec<Violation>,
) {
    let mut calm_ns = None;
    let mut waiting: HashMap<(&str, LeaseId), &Event> = HashMap::new();
    let mut free: HashMap<&str, &Event> = HashMap::new();
    let mut late = |kind, since_ns: u64, event_ns: u64, longest: Duration, evidence: &[&Event]| {
        let took = Duration::from_nanos(event_ns.saturating_sub(since_ns));
        if took > longest {
            let text = format!("{took:?}, longer than {longest:?}");
            violations.push(violation(kind, text, evidence));
        }
    };
    let end_ns = events.last().map_or(0, |event| event.at_ns);
    for event in events {
        let key = (event.resource.as_str(), event.lease_id);
        match event.what {
            What::Calm => calm_ns = Some(event.at_ns),
            What::Attempt if calm_ns.is_some() => {
                waiting.insert(key, event);
            }
            What::Free if calm_ns.is_some() => {
                free.insert(key.0, event);
            }
            What::Stands { .. } => {
                free.remove(key.0);
            }
            What::GaveUp => {
                waiting.remove(&key);
            }
            What::Granted { .. } => {
                // The resource lay free from when both it was free and somebody waited.
                let first = waiting
                    .iter()
                    .filter(|((name, _), _)| *name == key.0)
                    .map(|(_, event)| event.at_ns)
                    .min();
                if let (Some(freed), Some(first_ns)) = (free.remove(key.0), first) {
                    late(HANDOVER, freed.at_ns.max(first_ns), event.at_ns, longest_idle, &[freed, event]);
                }
                if let Some(attempt) = waiting.remove(&key) {
                    late(WAIT, attempt.at_ns, event.at_ns, longest_wait, &[attempt, event]);
                }
            }
            _ => {}
        }
    }
    for attempt in waiting.into_values() {
        late(WAIT, attempt.at_ns, end_ns, longest_wait, &[attempt]);
    }
}

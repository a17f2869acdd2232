//! S6, the fence is monotone: a write with a lower token than one admitted before is never let in.
//!
//! What breaks for a user: the old holder, paused for a minute, wakes up and overwrites what the new one has done.

use std::collections::HashMap;

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S6-fence";

/// The resource itself says in which order it took the writes.
pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut admitted: HashMap<&str, Vec<(u64, &Event)>> = HashMap::new();
    for event in events {
        if let What::Write { admitted: true, version, .. } = event.what {
            admitted.entry(&event.resource).or_default().push((version, event));
        }
    }
    for mut writes in admitted.into_values() {
        writes.sort_by_key(|&(version, _)| version);
        let mut highest: Option<&Event> = None;
        for (version, write) in writes {
            if let Some(before) = highest.filter(|before| before.what.token() > write.what.token()) {
                let text = format!("version {version} was written by an older grant than one before it");
                violations.push(violation(NAME, text, &[before, write]));
            } else {
                highest = Some(write);
            }
        }
    }
}

//! S12, regression shows: a process never uses a grant whose token is not above every token it has seen of the resource.
//!
//! What breaks for a user: the server was restored from a backup, the program works on with a token that every fence
//! refuses, and finds out at its first write.

use std::collections::HashMap;

use leasehold_core::Token;

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S12-regression";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut known: HashMap<(&str, &str), (Token, &Event)> = HashMap::new();
    for event in events {
        let What::Granted { token, .. } = event.what else { continue };
        match known.get_mut(&(event.process.as_str(), event.resource.as_str())) {
            Some((highest, before)) if before.lease_id != event.lease_id && token <= *highest => {
                let text = format!("{} took token {token} although it knew {highest}", event.process);
                violations.push(violation(NAME, text, &[*before, event]));
            }
            Some(known) => *known = (token.max(known.0), event),
            None => {
                known.insert((&event.process, &event.resource), (token, event));
            }
        }
    }
}

//! S3, token identity: a token of a resource belongs to one grant, and a grant has one token.
//!
//! What breaks for a user: a fence cannot tell two holders apart; both are let in.

use std::collections::HashMap;

use leasehold_core::{LeaseId, Token};

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S3-identity";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut of_token: HashMap<(&str, Token), &Event> = HashMap::new();
    let mut of_grant: HashMap<(&str, LeaseId), &Event> = HashMap::new();
    for event in events {
        let Some(token) = event.what.token() else { continue };
        // A resource that protects itself sees whatever token it is sent, and a claim that arrives once more after its grant
        // has ended may be granted anew, to nobody: only what is believed counts.
        if matches!(event.what, What::Write { .. } | What::Sealed { .. } | What::Stands { .. }) {
            continue;
        }
        let resource = event.resource.as_str();
        let first = *of_token.entry((resource, token)).or_insert(event);
        if first.lease_id != event.lease_id {
            let text =
                format!("token {token} belongs to two grants, {} and {}", first.lease_id, event.lease_id);
            violations.push(violation(NAME, text, &[first, event]));
        }
        let first = *of_grant.entry((resource, event.lease_id)).or_insert(event);
        if first.what.token() != Some(token) {
            let text = format!("grant {} has a second token, {token}", event.lease_id);
            violations.push(violation(NAME, text, &[first, event]));
        }
    }
}

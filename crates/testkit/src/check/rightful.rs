//! L9, the rightful holder is not fenced out: the resource refuses nobody who comes with the highest token it has seen.
//!
//! What breaks for a user: everybody agrees who holds the lease, and its writes fail.

use std::collections::HashMap;

use leasehold_core::{LeaseId, Token};

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "L9-rightful";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut highest: HashMap<&str, (Token, LeaseId, u64)> = HashMap::new();
    for event in events {
        let (token, admitted, op_seq) = match event.what {
            What::Write { token, admitted, op_seq, .. } => (token, admitted, op_seq.unwrap_or(u64::MAX)),
            What::Sealed { token, admitted, .. } => (token, admitted, u64::MAX),
            _ => continue,
        };
        let seen = highest.get(event.resource.as_str()).copied();
        let rightful = seen.is_none_or(|(stored, holder, last)| {
            token > stored || (token == stored && holder == event.lease_id && op_seq > last)
        });
        if !admitted && rightful {
            let text = format!("token {token} was refused, and nothing newer had been there");
            violations.push(violation(NAME, text, &[event]));
        } else if admitted && seen.is_none_or(|(stored, ..)| token >= stored) {
            let last =
                if matches!(event.what, What::Write { .. }) && op_seq != u64::MAX { op_seq } else { 0 };
            let last =
                seen.filter(|(stored, ..)| *stored == token).map_or(last, |(.., before)| before.max(last));
            highest.insert(&event.resource, (token, event.lease_id, last));
        }
    }
}

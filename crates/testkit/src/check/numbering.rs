//! S8, order within a grant: the writes of one grant take effect in the order in which it numbered them.
//!
//! What breaks for a user: one holder sends two writes, they cross on the way, and the older one is what remains.

use std::collections::HashMap;

use leasehold_core::Token;

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S8-op-seq";

/// Version, number, event.
type Numbered<'a> = (u64, u64, &'a Event);

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut writes: HashMap<(&str, Token), Vec<Numbered<'_>>> = HashMap::new();
    for event in events {
        if let What::Write { token, admitted: true, version, op_seq: Some(op_seq), .. } = event.what {
            writes.entry((&event.resource, token)).or_default().push((version, op_seq, event));
        }
    }
    for mut writes in writes.into_values() {
        writes.sort_by_key(|&(version, ..)| version);
        for pair in writes.windows(2) {
            let [(_, first, before), (_, second, after)] = pair else { continue };
            if second <= first {
                let text = format!("write {second} of a grant took effect after write {first}");
                violations.push(violation(NAME, text, &[*before, *after]));
            }
        }
    }
}

//! S9, exact match: a renewal or a release changes the grant whose lease id and token it names, or nothing.
//!
//! What breaks for a user: the old thread, late, ends or extends the lease of the new one, and thinks it was its own.

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S9-exact";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    for event in events {
        let What::Changed { asked, stood, stood_token } = event.what else { continue };
        if stood != event.lease_id {
            let text = format!("a request of grant {} changed grant {stood}", event.lease_id);
            violations.push(violation(NAME, text, &[event]));
        } else if let Some(asked) = asked.filter(|asked| *asked != stood_token) {
            let text =
                format!("a request that named token {asked} changed the grant with token {stood_token}");
            violations.push(violation(NAME, text, &[event]));
        }
    }
}

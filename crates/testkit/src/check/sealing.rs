//! S7, seal before read: once a holder has shown its token to the resource, no older write takes effect there; and every
//! write is based on the version that stands just before it.
//!
//! What breaks for a user: the new holder reads the balance, the old one's last deposit lands, and the new one's write,
//! computed from what it read, erases it. Every token was in order.

use std::collections::HashMap;

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S7-seal";

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut sealed: HashMap<&str, &Event> = HashMap::new();
    let mut written: HashMap<(&str, u64), &Event> = HashMap::new();
    for event in events {
        let resource = event.resource.as_str();
        match event.what {
            What::Sealed { token, admitted: true, .. } => {
                let highest = sealed.entry(resource).or_insert(event);
                if highest.what.token() < Some(token) {
                    *highest = event;
                }
            }
            What::Write { token, admitted: true, version, based_on, .. } => {
                if let Some(seal) = sealed.get(resource).filter(|seal| seal.what.token() > Some(token)) {
                    let text = format!(
                        "version {version} was written by an older grant, after a newer one had sealed"
                    );
                    violations.push(violation(NAME, text, &[*seal, event]));
                }
                if let Some(base) = based_on.filter(|base| base.checked_add(1) != Some(version)) {
                    let text = format!("version {version} is based on {base}: what came in between is lost");
                    let between = written.get(&(resource, version.saturating_sub(1))).copied();
                    let evidence: Vec<&Event> = between.into_iter().chain([event]).collect();
                    violations.push(violation(NAME, text, &evidence));
                }
                written.insert((resource, version), event);
            }
            _ => {}
        }
    }
}

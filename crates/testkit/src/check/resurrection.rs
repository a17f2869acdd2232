//! S5, no resurrection: what was released or lost, or whose window has closed, is never held again.
//!
//! What breaks for a user: work that was stopped, because somebody else may have taken over, goes on beside him.

use std::collections::HashMap;

use leasehold_core::LeaseId;

use super::{Event, Violation, What, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S5-resurrection";

struct Life<'a> {
    last: &'a Event,
    close_ns: u64,
    ended: bool,
}

pub(super) fn judge(events: &[Event], violations: &mut Vec<Violation>) {
    let mut lives: HashMap<(&str, LeaseId), Life<'_>> = HashMap::new();
    for event in events {
        let key = (event.resource.as_str(), event.lease_id);
        let Some(life) = lives.get_mut(&key) else {
            if let What::Granted { close_ns, .. } = event.what {
                lives.insert(key, Life { last: event, close_ns, ended: false });
            }
            continue;
        };
        let believes = matches!(event.what, What::Granted { .. } | What::Extended { .. } | What::Held { .. });
        if believes && life.ended {
            let text = format!("{} believes in grant {} after it had ended", event.process, event.lease_id);
            violations.push(violation(NAME, text, &[life.last, event]));
        } else if believes && event.at_ns >= life.close_ns {
            let late = event.at_ns - life.close_ns;
            let text = format!(
                "{} believes in grant {} again, {late} ns after its window closed",
                event.process, event.lease_id
            );
            violations.push(violation(NAME, text, &[life.last, event]));
        }
        match event.what {
            What::Granted { close_ns, .. } | What::Extended { close_ns, .. } if !life.ended => {
                life.close_ns = life.close_ns.max(close_ns);
                life.last = event;
            }
            What::Released { .. } | What::Lost { .. } => {
                life.ended = true;
                life.last = event;
            }
            _ => {}
        }
    }
}

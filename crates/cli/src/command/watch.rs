//! `watch`: what changes, one line a change.
//!
//! No engine tells strangers of every change, so it looks again and again and tells the difference. What begins and ends
//! between two looks is not seen; `history` and the logs have it.

use std::{collections::BTreeMap, time::Duration};

use leasehold::{
    Leases, Resource, Token, clock,
    core::{
        record::{EndReason, Inspection, Page},
        request::Listing,
    },
};
use serde::Serialize;

use super::ls::is_shown;
use crate::{
    args::Watch,
    client, duration,
    exit::Exit,
    failure::Failure,
    interrupt::Interrupts,
    output::{json_line, raw},
    people,
    settings::Settings,
    view,
};

/// Between two looks (ours: a list each second is no load for any engine).
const EVERY: Duration = Duration::from_secs(1);
const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// All resources that are held or waited for, by name.
type Seen = BTreeMap<Resource, Inspection>;

pub(crate) fn run(args: &Watch, settings: &Settings) -> Result<Exit, Failure> {
    let every = args.every.as_deref().map_or(Ok(EVERY), |text| duration::parse("--every", text))?;
    if every < BOUNDS.0 || every > BOUNDS.1 {
        return Err(Failure::usage("--every: must be 100ms to 1m"));
    }
    let prefix = args.prefix.clone().unwrap_or_default();
    let interrupts =
        Interrupts::watch().map_err(|error| Failure::usage(format!("signals cannot be watched: {error}")))?;
    let leases = client::connect(settings, client::operator)?;
    let mut seen = Seen::new();
    let (mut first, mut reachable) = (true, true);
    loop {
        let looked = match interrupts.run(look(&leases, &prefix)) {
            Ok(looked) => looked,
            Err(signal) => return Ok(Exit::Interrupted(signal)),
        };
        match looked {
            Ok(now) => {
                let gone: Vec<Resource> =
                    seen.keys().filter(|name| !now.contains_key(*name)).cloned().collect();
                let mut ends = Seen::new();
                for name in gone {
                    // How it ended is known to the resource alone now.
                    match interrupts.run(leases.inspect(&name)) {
                        Ok(Ok(inspection)) => drop(ends.insert(name, inspection)),
                        Ok(Err(_)) => {}
                        Err(signal) => return Ok(Exit::Interrupted(signal)),
                    }
                }
                tell(&changes(&seen, &now, &ends, first), &leases, settings)?;
                (seen, first, reachable) = (now, false, true);
            }
            Err(error) if error.is_transient() && !first => {
                if reachable {
                    settings.output.note(&format!("{error}; looking again"));
                }
                reachable = false;
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(signal) = interrupts.pause(every) {
            return Ok(Exit::Interrupted(signal));
        }
    }
}

/// All pages of the list.
async fn look(leases: &Leases, prefix: &str) -> Result<Seen, leasehold::Error> {
    let mut seen = Seen::new();
    let mut after: Option<Resource> = None;
    loop {
        let listing = Listing { prefix: prefix.to_owned(), after, ..Listing::new() };
        let Page { items, more, .. } = leases.list(listing).await?;
        after = items.last().map(|item| item.resource.clone());
        let shown = |item: &Inspection| is_shown(prefix, &item.resource);
        seen.extend(items.into_iter().filter(shown).map(|item| (item.resource.clone(), item)));
        if !more || after.is_none() {
            return Ok(seen);
        }
    }
}

/// One change of one resource.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Change {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// `held` (at the beginning), `granted`, `ended`, `revoked`, `waiting`.
    #[allow(clippy::struct_field_names, reason = "the field's name in the JSON")]
    change: &'static str,
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    fencing_token: Option<u64>,
    holder_id: Option<String>,
    label: Option<String>,
    /// How it ended: `released`, `expired`, `revoked`, or unknown.
    reason: Option<&'static str>,
    waiting: u32,
}

/// What happened between two looks, per resource: an end, then a beginning, then the queue.
fn changes(before: &Seen, now: &Seen, ends: &Seen, first: bool) -> Vec<Change> {
    let mut found = Vec::new();
    let nothing = Inspection {
        record: None,
        last_end: None,
        waiting: 0,
        waiters: Vec::new(),
        last_token: None,
        last_success_us: None,
        ..match now.values().next().or_else(|| before.values().next()) {
            Some(any) => any.clone(),
            None => return found,
        }
    };
    let mut names: Vec<&Resource> = before.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let was = before.get(name).unwrap_or(&nothing);
        let is = now.get(name).or_else(|| ends.get(name)).unwrap_or(&nothing);
        let change = |change, of: &Inspection, reason| Change {
            at: None,
            change,
            resource: view::name(name),
            namespace: String::new(),
            fencing_token: of.record.as_ref().map(|record| record.token.get()),
            holder_id: of.record.as_ref().map(|record| record.holder_id.to_string()),
            label: of.record.as_ref().map(|record| record.label.as_str().to_owned()),
            reason,
            waiting: is.waiting,
        };
        let (old, new) = (was.record.as_ref(), is.record.as_ref());
        let same = old.map(|record| record.token) == new.map(|record| record.token);
        if let Some(old) = old.filter(|_| !same) {
            found.push(change("ended", was, reason(is, old.token)));
        }
        if new.is_some() && !same {
            found.push(change(if first { "held" } else { "granted" }, is, None));
        }
        let newly_revoked = new.is_some_and(|new| new.revoked.is_some())
            && !(same && old.is_some_and(|old| old.revoked.is_some()));
        if newly_revoked {
            found.push(change("revoked", is, None));
        }
        if was.waiting != is.waiting {
            found.push(change("waiting", is, None));
        }
    }
    found
}

/// How the grant under this token ended, where the resource remembers that one.
fn reason(is: &Inspection, token: Token) -> Option<&'static str> {
    is.last_end.as_ref().filter(|end| end.token == token).map(|end| EndReason::word(&end.reason))
}

fn tell(changes: &[Change], leases: &Leases, settings: &Settings) -> Result<(), Failure> {
    let now_us = clock::unix_us();
    let mut text = String::new();
    for change in changes {
        if settings.output.is_json() {
            let change = Change {
                at: people::exact_instant(now_us),
                namespace: leases.namespace().as_str().to_owned(),
                ..change.clone()
            };
            text.push_str(&json_line(&change)?);
        } else {
            text.push_str(&people::visible(&format!("{}  {}", people::instant(now_us), words(change))));
            text.push('\n');
        }
    }
    if text.is_empty() { Ok(()) } else { raw(text.as_bytes()) }
}

fn words(change: &Change) -> String {
    let holder = change.label.as_deref().filter(|label| !label.is_empty()).unwrap_or("-");
    let token = change.fencing_token.map_or_else(|| "-".to_owned(), |token| token.to_string());
    let name = &change.resource;
    match change.change {
        "ended" => {
            format!("{name}  ended ({})  {holder}  token {token}", change.reason.unwrap_or("not known how"))
        }
        "waiting" => format!("{name}  waiting {}", change.waiting),
        other => format!("{name}  {other}  {holder}  token {token}"),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{
        HolderId, Label, LeaseId, Ttl,
        core::record::{End, Notice, Record},
    };

    use super::*;

    fn token(n: u64) -> Token {
        Token::new(n).unwrap()
    }

    fn item(held: Option<u64>, revoked: bool, waiting: u32, ended: Option<(u64, EndReason)>) -> Inspection {
        let id = LeaseId::from_bytes([0; 16]);
        let notice = Notice { by: Label::default(), reason: Label::default() };
        let record = held.map(|n| Record {
            lease_id: id,
            token: token(n),
            ttl: Ttl::DEFAULT,
            remaining: Duration::from_secs(1),
            granted_us: 0,
            holder_id: HolderId::from_bytes([0; 16]),
            label: Label::new("web").unwrap(),
            revoked: revoked.then_some(notice),
        });
        let last_end = ended.map(|(n, reason)| End {
            lease_id: id,
            token: token(n),
            reason,
            by: Label::default(),
            at_us: 0,
        });
        Inspection {
            resource: Resource::new("r").unwrap(),
            record,
            last_token: None,
            last_end,
            last_success_us: None,
            waiters: Vec::new(),
            waiting,
        }
    }

    fn seen(item: Inspection) -> Seen {
        Seen::from([(item.resource.clone(), item)])
    }

    fn told(before: &Seen, now: &Seen, ends: &Seen, first: bool) -> Vec<String> {
        changes(before, now, ends, first).iter().map(words).collect()
    }

    #[test]
    fn each_change_is_one_line_and_no_change_is_none() {
        let none = Seen::new();
        let held = seen(item(Some(1), false, 0, None));
        assert_eq!(told(&none, &held, &none, true), ["r  held  web  token 1"]);
        assert_eq!(told(&none, &held, &none, false), ["r  granted  web  token 1"]);
        assert_eq!(told(&held, &held, &none, false), [""; 0]);
        let queue = seen(item(Some(1), true, 2, None));
        assert_eq!(told(&held, &queue, &none, false), ["r  revoked  web  token 1", "r  waiting 2"]);
        assert_eq!(told(&queue, &queue, &none, false), [""; 0]);
        let next = seen(item(Some(2), false, 1, Some((1, EndReason::Expired))));
        let expected = ["r  ended (expired)  web  token 1", "r  granted  web  token 2", "r  waiting 1"];
        assert_eq!(told(&queue, &next, &none, false), expected);
        let ends = seen(item(None, false, 0, Some((2, EndReason::Released))));
        assert_eq!(told(&next, &none, &ends, false), ["r  ended (released)  web  token 2", "r  waiting 0"]);
        // What came and went between two looks leaves an end that is not this one's.
        let later = seen(item(None, false, 0, Some((5, EndReason::Released))));
        assert_eq!(told(&held, &none, &later, false), ["r  ended (not known how)  web  token 1"]);
    }
}

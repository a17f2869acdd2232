//! `ls`: who holds what. Page after page, so that a hundred thousand resources need no memory for all of them.

use leasehold::{
    Leases, Resource,
    blocking::block_on,
    checkpoint::is_checkpoint,
    clock,
    core::{
        record::{Inspection, Page},
        request::Listing,
    },
    preempt::is_wish,
    settings::stored::is_settings,
    skip::is_skip,
};

use crate::{
    args::Ls,
    client,
    exit::Exit,
    failure::Failure,
    output::{json_line, raw},
    people,
    settings::Settings,
    table::table,
    view::ResourceLine,
};

const HEAD: [&str; 7] = ["RESOURCE", "HOLDER", "SINCE", "AGE", "TOKEN", "REMAINING", "WAITING"];

pub(crate) fn run(args: &Ls, settings: &Settings) -> Result<Exit, Failure> {
    let prefix = args.prefix.clone().unwrap_or_default();
    let leases = client::connect(settings, client::operator)?;
    let mut after: Option<Resource> = None;
    let mut first = true;
    loop {
        let listing = Listing { prefix: prefix.clone(), after, limit: Listing::MAX, free_too: args.all };
        let mut page = block_on(leases.list(listing))?;
        if first && let Some(left) = page.quarantine {
            settings.output.note(&format!("quarantine: grants start in {}", people::duration(left)));
        }
        after = page.items.last().map(|item| item.resource.clone());
        page.items.retain(|item| is_shown(&prefix, &item.resource));
        write(&page, &leases, settings, first)?;
        first = false;
        if !page.more || after.is_none() {
            return Ok(Exit::Done);
        }
    }
}

/// False for what is no resource of anybody's: operators' wishes, notes of runs that were not needed, checkpoints,
/// and the settings of all. Who looks for them, by a
/// prefix that names nothing else, finds them.
pub(super) fn is_shown(prefix: &str, resource: &Resource) -> bool {
    let is_ours =
        |name: &Resource| is_wish(name) || is_skip(name) || is_settings(name) || is_checkpoint(name);
    !is_ours(resource) || Resource::new(prefix).is_ok_and(|prefix| is_ours(&prefix))
}

fn write(page: &Page, leases: &Leases, settings: &Settings, first: bool) -> Result<(), Failure> {
    let output = settings.output;
    let mut text = String::new();
    if output.is_json() {
        for item in &page.items {
            text.push_str(&json_line(&ResourceLine::of(leases.namespace(), item))?);
        }
    } else if !page.items.is_empty() {
        text = page_table(&page.items, clock::unix_us(), first);
    } else if first {
        output.detail(|| "nothing is held".to_owned());
    }
    raw(text.as_bytes())
}

/// A page for people.
fn page_table(items: &[Inspection], now_us: u64, head: bool) -> String {
    let rows: Vec<[String; 7]> = items.iter().map(|item| row(item, now_us)).collect();
    table(head.then_some(HEAD), &rows)
}

fn row(item: &Inspection, now_us: u64) -> [String; 7] {
    let none = || "-".to_owned();
    let waiting = item.waiting.to_string();
    // Resources and labels show themselves harmlessly.
    let name = item.resource.to_string();
    let Some(record) = &item.record else {
        let last = item.last_token.map_or_else(none, |token| format!("({token})"));
        return [name, "(free)".to_owned(), none(), none(), last, none(), waiting];
    };
    let remaining = people::duration(record.remaining);
    let remaining = if record.revoked.is_some() { format!("{remaining} (revoked)") } else { remaining };
    [
        name,
        if record.label.is_empty() { none() } else { record.label.to_string() },
        people::instant(record.granted_us),
        people::duration(people::age(record.granted_us, now_us)),
        record.token.to_string(),
        remaining,
        waiting,
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::{HolderId, Label, LeaseId, Token, Ttl, core::record::Record};

    use super::*;

    fn item(name: &str, label: Option<&str>) -> Inspection {
        let token = Token::new(17).unwrap();
        let record = label.map(|label| Record {
            lease_id: LeaseId::from_bytes([0; 16]),
            token,
            ttl: Ttl::DEFAULT,
            remaining: Duration::from_millis(24_300),
            granted_us: 1_767_323_045_000_000,
            holder_id: HolderId::from_bytes([0; 16]),
            label: Label::new(label).unwrap(),
            revoked: None,
        });
        Inspection {
            resource: Resource::new(name).unwrap(),
            record,
            last_token: Some(token),
            last_end: None,
            last_success_us: None,
            waiters: Vec::new(),
            waiting: 2,
        }
    }

    #[test]
    fn the_table_is_aligned_and_harmless() {
        let items = [item("nightly", Some("web1:1:backup")), item("a\nb", None)];
        let expected = "\
RESOURCE  HOLDER         SINCE                 AGE    TOKEN  REMAINING  WAITING
nightly   web1:1:backup  2026-01-02T03:04:05Z  2m 5s  17     24.3s      2
a\\u{a}b   (free)         -                     -      (17)   -          2
";
        assert_eq!(page_table(&items, 1_767_323_170_000_000, true), expected);
    }
}

//! `history`: the grants of a resource, the latest first: who held it, from when to when, and how that ended; and
//! who came for nothing, because the work had been done already.

use leasehold::{
    Label,
    blocking::block_on,
    clock,
    core::record::{EndReason, Inspection, Past},
    preempt::handed_over,
    skip::Skipped,
};

use crate::{
    args::History,
    client,
    exit::Exit,
    failure::Failure,
    message,
    output::{json_line, raw},
    people,
    settings::{self, Settings},
    table::table,
    view::HistoryLine,
};

const HEAD: [&str; 6] = ["TOKEN", "HOLDER", "SINCE", "FOR", "END", "BY"];

pub(crate) fn run(args: &History, settings: &Settings) -> Result<Exit, Failure> {
    let resource = settings::resource(&args.resource)?;
    let leases = client::connect(settings, client::operator)?;
    // The standing grant is asked for first: one that ends in between is then shown twice at worst, and never missed.
    let standing = block_on(leases.inspect(&resource))?;
    let past = block_on(leases.history(&resource))?;
    let limit = args.limit.map_or(usize::MAX, usize::from);
    let past = merge(past, block_on(leases.skipped(&resource))?, limit);
    if settings.output.is_json() {
        let standing = HistoryLine::standing(leases.namespace(), &standing);
        let ended = past.iter().map(|entry| match entry {
            Entry::Ended(past) => HistoryLine::ended(leases.namespace(), &resource, past),
            Entry::Skipped(skipped) => HistoryLine::skipped(leases.namespace(), &resource, skipped),
        });
        let mut text = String::new();
        for line in standing.into_iter().chain(ended) {
            text.push_str(&json_line(&line)?);
        }
        raw(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    let now_us = clock::unix_us();
    let rows: Vec<[String; 6]> = present(&standing, now_us).into_iter().chain(past.iter().map(row)).collect();
    if rows.is_empty() {
        settings.output.detail(|| format!("{resource} has no history"));
    } else {
        raw(table(Some(HEAD), &rows).as_bytes())?;
    }
    Ok(Exit::Done)
}

/// A line below the standing grant.
enum Entry {
    Ended(Past),
    Skipped(Skipped),
}

impl Entry {
    /// When it began, by the engine's clock.
    fn at_us(&self) -> u64 {
        match self {
            Self::Ended(past) => past.granted_us,
            Self::Skipped(skipped) => skipped.at_us,
        }
    }
}

/// Both in one order, the latest first. Each of them has its own already, and keeps it.
fn merge(past: Vec<Past>, skipped: Vec<Skipped>, limit: usize) -> Vec<Entry> {
    let mut past = past.into_iter().map(Entry::Ended).peekable();
    let mut skipped = skipped.into_iter().map(Entry::Skipped).peekable();
    let next = || match (past.peek(), skipped.peek()) {
        (Some(ended), Some(skip)) if ended.at_us() > skip.at_us() => past.next(),
        (_, Some(_)) => skipped.next(),
        _ => past.next(),
    };
    std::iter::from_fn(next).take(limit).collect()
}

/// The grant that stands.
fn present(standing: &Inspection, now_us: u64) -> Option<[String; 6]> {
    let record = standing.record.as_ref()?;
    let end = if record.revoked.is_some() { "(revoked)" } else { "(held)" };
    Some([
        record.token.to_string(),
        name(&record.label.to_string()),
        people::instant(record.granted_us),
        people::duration(people::age(record.granted_us, now_us)),
        end.to_owned(),
        String::new(),
    ])
}

fn row(entry: &Entry) -> [String; 6] {
    match entry {
        Entry::Ended(past) => ended(past),
        Entry::Skipped(skipped) => not_needed(skipped),
    }
}

/// Somebody came, and there was nothing to do.
fn not_needed(skipped: &Skipped) -> [String; 6] {
    let none = || "-".to_owned();
    let since = people::age(skipped.last_success_us, skipped.at_us);
    let why = format!(
        "the last success had begun {} before: once per {}",
        people::duration(since),
        people::duration(skipped.once_per)
    );
    let (by, at) = (name(&skipped.label.to_string()), people::instant(skipped.at_us));
    [none(), by, at, none(), "skipped".to_owned(), why]
}

fn ended(past: &Past) -> [String; 6] {
    let handed_over = handed_over(&past.end.reason);
    let by = match &past.end.reason {
        EndReason::Revoked(why) => {
            let why = handed_over.map_or(why.clone(), Label::from_lossy);
            let text = message::by_and_why(&past.end.by.to_string(), &why.to_string());
            text.trim_start_matches("by ").to_owned()
        }
        _ => String::new(),
    };
    [
        past.end.token.to_string(),
        name(&past.label.to_string()),
        people::instant(past.granted_us),
        people::duration(people::age(past.granted_us, past.end.at_us)),
        handed_over.map_or_else(|| past.end.reason.word(), |_| "preempted").to_owned(),
        by,
    ]
}

fn name(label: &str) -> String {
    if label.is_empty() { "-".to_owned() } else { label.to_owned() }
}

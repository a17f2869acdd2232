//! The report as one page that needs nothing else: the timeline as a picture, and the table.

use std::{collections::HashMap, fmt::Write as _};

use leasehold::clock;
use leasehold_testkit::{
    check::{Event, What},
    clock::boot_ns,
};

use super::{Report, lines, plan::CONTROL};
use crate::{
    people,
    timeline::{Finish, Grant, Story, escaped, svg},
};

/// More bars than that are a blur: the last ones before the end, or around the violation, are drawn.
const DRAWN_NS: u64 = 20_000_000_000;

/// The page.
pub(crate) fn page(report: &Report, events: &[Event]) -> String {
    let mut rows = String::new();
    for line in &report.invariants {
        let word = if line.pass { "PASS" } else { "FAIL" };
        // Writing into a String cannot fail.
        let _ = writeln!(
            rows,
            "<tr class=\"{word}\"><td>{}</td><td>{}</td><td>{}</td><td>{word}</td></tr>",
            escaped(line.invariant),
            line.violations,
            escaped(&line.text)
        );
    }
    let text: Vec<String> = lines(report).iter().map(|line| escaped(&people::visible(line))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>leasehold verify</title>\n\
         <style>body{{font-family:sans-serif;max-width:72rem;margin:1rem auto}}td{{padding:.2rem .8rem}}\
         .FAIL{{background:#f8d0d0}}pre{{overflow-x:auto}}</style>\n<body><h1>leasehold verify</h1>\n\
         <table><tr><th></th><th>violations</th><th>of what</th><th></th></tr>\n{rows}</table>\n\
         <h2>Who held what</h2>\n{}\n\
         <p>Bars are grants as their holders believed in them, white lines renewals, red ones losses, red diamonds writes that the \
         fence refused; a dashed end is a holder that was killed. Point at a bar for its figures.</p>\n\
         <h2>The report</h2>\n<pre>{}</pre>\n</body></html>\n",
        svg(&story(report, events)),
        text.join("\n")
    )
}

/// The grants of the part that is drawn.
fn story(report: &Report, events: &[Event]) -> Story {
    let evidence = report.violations.iter().flat_map(|violation| &violation.evidence);
    let last_ns = evidence.map(|event| event.at_ns).max().map(|at_ns| at_ns + DRAWN_NS / 2);
    let last_ns = last_ns.or_else(|| events.last().map(|event| event.at_ns)).unwrap_or(0);
    let (now_ns, now_us) = (boot_ns(), clock::unix_us());
    let unix_us = |ns: u64| {
        let ago_us = now_ns.saturating_sub(ns) / 1_000;
        i64::try_from(now_us.saturating_sub(ago_us)).unwrap_or(i64::MAX)
    };
    let mut story = Story::default();
    let mut of_claim: HashMap<(&str, leasehold::LeaseId), u64> = HashMap::new();
    let drawn = |event: &&Event| {
        event.at_ns + DRAWN_NS >= last_ns && event.at_ns <= last_ns && !event.resource.starts_with(CONTROL)
    };
    for event in events.iter().filter(drawn) {
        let at_us = unix_us(event.at_ns);
        let claim = (event.resource.as_str(), event.lease_id);
        let tale = story.tales.entry((String::new(), event.resource.clone())).or_default();
        match event.what {
            What::Granted { token, open_ns, close_ns, .. } => {
                of_claim.insert(claim, token.get());
                story.holders.entry(event.process.clone()).or_default().label.clone_from(&event.process);
                let ttl_us = i64::try_from(close_ns.saturating_sub(open_ns) / 1_000).unwrap_or(i64::MAX);
                let (from_us, alive_us) = (unix_us(open_ns), at_us);
                let (holder_id, lease_id) = (event.process.clone(), event.lease_id.to_string());
                let grant = Grant { holder_id, lease_id, from_us, ttl_us, alive_us, ..Grant::default() };
                tale.grants.insert(token.get(), grant);
            }
            What::Write { token, admitted: false, .. } => tale.bounced.push((at_us, token.get(), None)),
            _ => {
                if let Some(grant) = of_claim.get(&claim).and_then(|token| tale.grants.get_mut(token)) {
                    hear(grant, event, at_us);
                }
            }
        }
    }
    story
}

fn hear(grant: &mut Grant, event: &Event, at_us: i64) {
    grant.alive_us = grant.alive_us.max(at_us);
    let reason = match event.what {
        What::Extended { .. } => {
            grant.renewed.push(at_us);
            return;
        }
        What::Released { .. } => "released",
        What::Lost { .. } => "lost",
        _ => return,
    };
    grant.finish.get_or_insert(Finish { at_us, reason: reason.to_owned() });
}

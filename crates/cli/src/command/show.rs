//! `show`: everything about one resource.

use leasehold::{
    Leases,
    blocking::block_on,
    clock,
    core::record::{EndReason, Inspection},
};

use crate::{
    args::Show,
    client,
    exit::Exit,
    failure::Failure,
    message, people,
    settings::{self, Settings},
    view::ResourceLine,
};

pub(crate) fn run(args: &Show, settings: &Settings) -> Result<Exit, Failure> {
    let resource = settings::resource(&args.resource)?;
    let leases = client::connect(settings, client::operator)?;
    let found = block_on(leases.inspect(&resource))?;
    settings.output.result(&ResourceLine::whole(leases.namespace(), &found), || describe(&found, &leases))?;
    Ok(Exit::Done)
}

fn describe(found: &Inspection, leases: &Leases) -> Vec<String> {
    let now_us = clock::unix_us();
    let mut rows = vec![("resource", found.resource.to_string()), ("place", message::place(leases))];
    match &found.record {
        None => rows.push(("holder", "nobody".to_owned())),
        Some(record) => {
            let label =
                if record.label.is_empty() { "without a name".to_owned() } else { record.label.to_string() };
            rows.push(("holder", label));
            rows.extend(message::record_lines(record));
            rows.push(("ttl", people::duration(record.ttl.as_duration())));
            rows.push(("lease id", record.lease_id.to_string()));
            rows.push(("holder id", record.holder_id.to_string()));
        }
    }
    rows.push((
        "last token",
        found.last_token.map_or_else(|| "none yet".to_owned(), |token| token.to_string()),
    ));
    if let Some(end) = &found.last_end {
        let verb = end.reason.word();
        let why = if let EndReason::Revoked(why) = &end.reason { why.to_string() } else { String::new() };
        let by = message::by_and_why(&end.by.to_string(), &why);
        let by = if matches!(end.reason, EndReason::Expired) { format!("(held {by})") } else { by };
        rows.push((
            "last end",
            format!("{verb} {by}, token {}, {}", end.token, people::since(end.at_us, now_us)),
        ));
    }
    if let Some(started_us) = found.last_success_us {
        rows.push(("last success", format!("started {}", people::since(started_us, now_us))));
    }
    rows.push(("waiting", found.waiting.to_string()));
    let mut lines: Vec<String> =
        rows.into_iter().map(|(name, value)| format!("{name:12}  {value}")).collect();
    for (place, waiter) in found.waiters.iter().enumerate() {
        let label =
            if waiter.label.is_empty() { "without a name".to_owned() } else { waiter.label.to_string() };
        lines.push(format!("{:>12}  {label}, waited {}", place + 1, people::duration(waiter.waited)));
    }
    lines
}

//! `init`: prepares a namespace, or changes its settings.

use leasehold::{
    blocking::block_on,
    core::{record::Prepared, request::Preparation},
};

use crate::{
    args::Init, client, duration, exit::Exit, failure::Failure, people, settings::Settings, view::InitLine,
};

pub(crate) fn run(args: &Init, settings: &Settings) -> Result<Exit, Failure> {
    let max_ttl = args.max_ttl.as_deref().map(|text| duration::ttl("--max-ttl", text)).transpose()?;
    let leases = client::connect(settings, client::operator)?;
    let prepared = block_on(leases.prepare(Preparation { fresh: args.fresh, max_ttl }))?;
    let line = InitLine::new(leases.namespace(), &prepared);
    settings.output.confirm(&line, || describe(&prepared, &line.namespace))?;
    Ok(Exit::Done)
}

fn describe(prepared: &Prepared, namespace: &str) -> String {
    let made = if prepared.created { "is made" } else { "was there already" };
    let grants = match prepared.quarantine {
        None => "it grants at once".to_owned(),
        Some(left) => format!("it grants in {}", people::duration(left)),
    };
    format!(
        "namespace {namespace} {made} on {}; TTLs up to {}; {grants}",
        prepared.place,
        people::duration(prepared.max_ttl.as_duration())
    )
}

//! `check`: is it still mine? For a script, before the step that cannot be undone.
//!
//! The answer is as old as its way here: a process can be stopped between it and the step. Only a fence at the resource
//! closes that gap.

use leasehold::Leases;

use crate::{
    args, client,
    exit::Exit,
    failure::Failure,
    grant::{Named, Standing, describe, lasts},
    settings::Settings,
    view::CheckLine,
};

pub(crate) fn run(args: &args::Grant, settings: &Settings) -> Result<Exit, Failure> {
    let named = Named::check(args)?;
    let leases = client::connect(settings, client::caller)?;
    let standing = named.standing(&leases)?;
    answer(&named, &standing, &leases, settings)
}

/// Both answers are results and stand on the standard output as JSON; for people a no goes where every no goes.
fn answer(named: &Named, standing: &Standing, leases: &Leases, settings: &Settings) -> Result<Exit, Failure> {
    let output = settings.output;
    let (record, exit) = match standing {
        Standing::Yours(record) => (Some(record), Exit::Done),
        _ => (None, Exit::NotHeld),
    };
    if !output.is_json() && record.is_none() {
        return Err(named.not_held(standing));
    }
    let line = CheckLine {
        held: record.is_some(),
        reason: record.is_none().then(|| describe(standing).0),
        grant: named.line(leases, record),
        exit_code: exit.code(),
    };
    let words = || record.map(|record| format!("{} is held under token {}", named.resource, lasts(record)));
    output.confirm(&line, || words().unwrap_or_default())?;
    Ok(exit)
}

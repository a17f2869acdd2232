//! `release`: the holder ends its grant.

use leasehold::{
    blocking::block_on,
    core::{record::Released, request::Release},
};

use crate::{
    args, client,
    exit::Exit,
    failure::Failure,
    grant::{Named, Standing},
    settings::Settings,
    view::{self, ReleaseLine},
};

use super::renew::unknown_answer;

pub(crate) fn run(args: &args::Grant, settings: &Settings) -> Result<Exit, Failure> {
    let named = Named::check(args)?;
    let leases = client::connect(settings, client::caller)?;
    let lease_id = match named.standing(&leases)? {
        Standing::Yours(record) => record.lease_id,
        other => return end_what_is_ending(&named, &other, &leases, settings),
    };
    end(&named, lease_id, &leases, settings)
}

/// A grant that was revoked, or whose window is all but closed, still keeps the resource busy: its holder has stopped, and
/// says so.
fn end_what_is_ending(
    named: &Named,
    standing: &Standing,
    leases: &leasehold::Leases,
    settings: &Settings,
) -> Result<Exit, Failure> {
    let busy = matches!(standing, Standing::Closing)
        || matches!(standing, Standing::Gone(leasehold::core::record::Gone::Revoked { remaining, .. }) if !remaining.is_zero());
    let record = if busy { block_on(leases.inspect(&named.resource))?.record } else { None };
    match record.filter(|record| record.token == named.token) {
        Some(record) => end(named, record.lease_id, leases, settings),
        None => Err(named.not_held(standing)),
    }
}

fn end(
    named: &Named,
    lease_id: leasehold::LeaseId,
    leases: &leasehold::Leases,
    settings: &Settings,
) -> Result<Exit, Failure> {
    let release =
        Release { resource: named.resource.clone(), lease_id, token: Some(named.token), succeeded: false };
    match block_on(leases.release_once(release))? {
        Released::Ended => {
            let line = ReleaseLine {
                resource: view::name(&named.resource),
                namespace: leases.namespace().as_str().to_owned(),
                place: leases.profile().place.clone(),
                lease_id: lease_id.to_string(),
                fencing_token: named.token.get(),
                released: true,
            };
            settings
                .output
                .confirm(&line, || format!("{} is released, token {}", named.resource, named.token))?;
            Ok(Exit::Done)
        }
        Released::NotHeld(gone) => Err(named.not_held(&Standing::Gone(gone))),
        _ => Err(unknown_answer()),
    }
}

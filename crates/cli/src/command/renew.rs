//! `renew`: the same grant, for its TTL from now. It never creates one and never shortens one.

use leasehold::{
    blocking::block_on,
    core::{record::Renewed, request::Renewal},
};

use crate::{
    args, client, duration,
    exit::Exit,
    failure::Failure,
    grant::{Named, Standing, lasts},
    settings::Settings,
};

pub(crate) fn run(args: &args::Renew, settings: &Settings) -> Result<Exit, Failure> {
    let named = Named::check(&args.grant)?;
    let ttl = args.ttl.as_deref().map(|text| duration::ttl("--ttl", text)).transpose()?;
    let leases = client::connect(settings, client::caller)?;
    let mut record = named.record(&leases)?;
    let renewal = Renewal {
        resource: named.resource.clone(),
        lease_id: record.lease_id,
        token: named.token,
        ttl: ttl.unwrap_or(record.ttl),
        lock_delay: std::time::Duration::ZERO,
    };
    match block_on(leases.renew_once(renewal))? {
        Renewed::Extended { ttl } => {
            // Where the grant lasts longer than that already, it stays as it is.
            if ttl.as_duration() >= record.remaining {
                record.ttl = ttl;
                record.remaining = ttl.as_duration();
            }
            let line = named.line(&leases, Some(&record));
            settings
                .output
                .confirm(&line, || format!("{} is renewed under token {}", named.resource, lasts(&record)))?;
            Ok(Exit::Done)
        }
        Renewed::Gone(gone) => Err(named.not_held(&Standing::Gone(gone))),
        _ => Err(unknown_answer()),
    }
}

/// A coordinator of a later version answered with something this program does not know.
pub(super) fn unknown_answer() -> Failure {
    leasehold::Error::new(
        leasehold::Kind::Unknown,
        "the coordinator gave an answer that this version does not know",
    )
    .into()
}

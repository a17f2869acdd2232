//! What a shell job shows at a fence, and at which.
//!
//! Inside `leasehold run` the environment names all of it. A script that has only the token (`leasehold acquire` prints
//! nothing else) leaves the lease id to the coordinator, which has it in the record under that token while the grant stands.

use leasehold::{
    Resource, Url,
    blocking::block_on,
    fence::{Fence, OpSeq, Pass},
};

use crate::{
    args::{FenceGrant, FencePlace},
    client,
    exit::Exit,
    failure::Failure,
    grant::{Named, Standing},
    settings::{self, Settings, text, variable},
};

/// The resource: what was typed, else `$LEASEHOLD_RESOURCE`.
pub(super) fn resource(typed: Option<&str>) -> Result<Resource, Failure> {
    match typed {
        Some(name) => settings::resource(name),
        None => match text("LEASEHOLD_RESOURCE", &variable)? {
            Some(name) => settings::resource(&name),
            None => Err(Failure::usage("no resource is named")
                .advise("name the one that is written to, or run this under `leasehold run`")),
        },
    }
}

/// The pass of a write.
pub(super) fn read(typed: Option<&str>, grant: &FenceGrant, settings: &Settings) -> Result<Pass, Failure> {
    let resource = resource(typed)?;
    let token = settings::token(&token(grant, &resource)?)?;
    let lease_id = settings::lease_id(grant.lease_id.as_deref(), &resource, token, &variable)?;
    let lease_id = match lease_id {
        Some(lease_id) => lease_id,
        None => ask(&Named::by_token(resource.clone(), token), settings)?,
    };
    let holder = settings.holder.clone().unwrap_or_else(client::caller);
    let pass = Pass::new(settings.namespace.clone(), resource, token, lease_id).held_by(holder);
    match &grant.op_seq {
        None => Ok(pass),
        Some(number) => {
            let read = number.parse::<OpSeq>();
            read.map(|op_seq| pass.numbered(op_seq))
                .map_err(|invalid| Failure::usage(format!("--op-seq: {number}: {invalid}")))
        }
    }
}

/// The token: what was typed, else `$LEASEHOLD_TOKEN` where it belongs to this resource.
fn token(grant: &FenceGrant, resource: &Resource) -> Result<String, Failure> {
    if let Some(token) = &grant.token {
        return Ok(token.clone());
    }
    let own = variable("LEASEHOLD_RESOURCE").is_some_and(|name| name == *resource.as_str());
    match text("LEASEHOLD_TOKEN", &variable)?.filter(|_| own) {
        Some(token) => Ok(token),
        None => Err(Failure::answer(
            Exit::Usage,
            "missing_token",
            format!("the write to {resource} shows no fencing token"),
        )
        .advise("give --token, or run this under `leasehold run`")),
    }
}

fn ask(named: &Named, settings: &Settings) -> Result<leasehold::LeaseId, Failure> {
    let leases = client::connect(settings, client::caller)?;
    match named.standing(&leases)? {
        Standing::Yours(record) => Ok(record.lease_id),
        other => Err(named.not_held(&other)),
    }
}

/// The fence's URL: what was typed, else `$LEASEHOLD_FENCE`, else the file beside the lease file. A fence must be the same one for
/// everybody who may hold the lease; what is shared by those who share the leases is.
pub(super) fn store(place: &FencePlace, settings: &Settings) -> Result<String, Failure> {
    if let Some(url) = &place.store {
        return named(url);
    }
    if let Some(url) = text("LEASEHOLD_FENCE", &variable)? {
        return named(&url);
    }
    match Url::parse(&settings.url)? {
        Url::Sqlite { .. } => {
            // The lease file's one name, whatever it was reached by.
            let leases = client::connect(settings, client::operator)?;
            let place = leases.profile().place.clone();
            block_on(leases.close(std::time::Duration::ZERO));
            let path = place.strip_prefix("sqlite:").unwrap_or(&place);
            Ok(format!("sqlite:{}", Fence::file_beside(std::path::Path::new(path)).display()))
        }
        // Where the leases are the data may be, and the fence with it; whether it is installed shows at the first question.
        Url::Network(address) if matches!(address.scheme.as_str(), "postgres" | "postgresql") => Ok(settings.url.clone()),
        _ => Err(Failure::usage("this coordinator keeps no fence for shell jobs").advise(
            "give --store URL or LEASEHOLD_FENCE: one that everybody who writes there asks too, such as sqlite:PATH",
        )),
    }
}

/// The database into which a fence is installed: what was typed, else `$LEASEHOLD_FENCE`, else the coordinator.
pub(super) fn database(place: &FencePlace, settings: &Settings) -> Result<String, Failure> {
    match &place.store {
        Some(url) => Ok(url.clone()),
        None => Ok(text("LEASEHOLD_FENCE", &variable)?.unwrap_or_else(|| settings.url.clone())),
    }
}

/// A fence that ends with this process would let everybody in.
fn named(url: &str) -> Result<String, Failure> {
    match Url::parse(url)? {
        Url::Memory { .. } => {
            Err(Failure::usage("memory: is a fence inside one process, and this process ends")
                .advise("use sqlite:PATH for a file"))
        }
        _ => Ok(url.to_owned()),
    }
}

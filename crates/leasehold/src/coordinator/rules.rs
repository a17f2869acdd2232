//! What the engines that run [`leasehold_core::slot`] themselves have in common: the checks before a request is applied,
//! and the shape of what they tell.

use std::time::Duration;

use leasehold_core::{
    Error, Kind, Resource, Ttl,
    line::Entry,
    record::{Inspection, WaiterInfo},
    request::{Claim, Listing, Renewal},
    slot::{Held, Now, Slot},
    token::NoToken,
};

/// Refuses a claim that is out of bounds.
pub(crate) fn check_claim(claim: &Claim, max_ttl: Ttl) -> Result<(), Error> {
    claim.check().map_err(|invalid| Error::from(invalid).on(&claim.resource))?;
    check_ttl(claim.ttl, max_ttl).map_err(|error| error.on(&claim.resource))
}

/// Refuses a renewal that is out of bounds: the namespace's, or those of the running grant where they are wider, because a
/// lower bound counts from the next grant. A grant that does not stand has none; the slot then says what became of it.
pub(crate) fn check_renewal(renewal: &Renewal, slot: &Slot, max_ttl: Ttl) -> Result<(), Error> {
    if renewal.lock_delay > leasehold_core::request::MAX_LOCK_DELAY {
        return Err(Error::new(Kind::Invalid, "lock-delay must be at most 1h").on(&renewal.resource));
    }
    let renewed = |held: &&Held| held.lease_id == renewal.lease_id && held.token == renewal.token;
    match slot.held.as_ref().filter(renewed) {
        Some(held) => {
            check_ttl(renewal.ttl, max_ttl.max(held.ttl)).map_err(|error| error.on(&renewal.resource))
        }
        None => Ok(()),
    }
}

fn check_ttl(ttl: Ttl, max_ttl: Ttl) -> Result<(), Error> {
    if ttl <= max_ttl { Ok(()) } else { Err(too_long(ttl, max_ttl)) }
}

/// The refusal of a TTL above the namespace's bound.
pub(crate) fn too_long(ttl: Ttl, max_ttl: Ttl) -> Error {
    Error::new(
        Kind::Invalid,
        format!("TTL {ttl} is above the longest that this namespace allows ({max_ttl})"),
    )
    .advise("ask for a shorter TTL and renew, or raise the bound with `leasehold init --max-ttl`")
}

/// Refuses a page that is out of bounds.
pub(crate) fn check_listing(listing: &Listing) -> Result<(), Error> {
    // No name starts with what cannot be a name: without this check an encoder might take it for "all".
    if !listing.prefix.is_empty() {
        Resource::new(&listing.prefix)?;
    }
    if (1..=Listing::MAX).contains(&listing.limit) {
        return Ok(());
    }
    Err(Error::new(Kind::Invalid, format!("a page must have 1 to {} resources", Listing::MAX)))
}

/// The error for a resource that can have no token.
pub(crate) fn no_token(reason: NoToken) -> Error {
    let kind = match reason {
        NoToken::WildFloor { .. } => Kind::Invalid,
        _ => Kind::Unsupported,
    };
    Error::new(kind, reason.to_string())
}

/// The refusal of `fresh` on a namespace that exists.
pub(crate) fn not_fresh(namespace: &str) -> Error {
    Error::new(Kind::Invalid, format!("the namespace {namespace} exists already, so it cannot be made fresh"))
        .advise("use it as it is; leave out --fresh to change its settings")
}

/// One resource as it is told.
pub(crate) fn inspection(
    resource: Resource,
    slot: &Slot,
    waiters: Vec<WaiterInfo>,
    waiting: u32,
    now: Now,
) -> Inspection {
    Inspection {
        resource,
        record: slot.record(now),
        last_token: slot.last_token,
        last_end: slot.previous_end(now),
        last_success_us: slot.last_success_us,
        waiters,
        waiting,
    }
}

/// One waiter as it is told.
pub(crate) fn waiter(entry: &Entry, now: Now) -> WaiterInfo {
    let waited = Duration::from_micros(now.clock_us.saturating_sub(entry.joined_us));
    WaiterInfo { lease_id: entry.lease_id, label: entry.label.clone(), waited }
}

/// Time from now to `until_us`, if any is left.
pub(crate) fn left(until_us: u64, now: Now) -> Option<Duration> {
    until_us.checked_sub(now.clock_us).filter(|&left| left > 0).map(Duration::from_micros)
}

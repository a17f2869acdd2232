//! Who holds what, and what travels when a lease passes from one process to another.

use crate::{id::LeaseId, name::Resource, token::Token, ttl::Ttl, window::Reading};

/// Who holds what: the identity that every request about a lease carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The held thing.
    pub resource: Resource,
    /// The grant's lease id.
    pub lease_id: LeaseId,
    /// Its token.
    pub token: Token,
}

/// A lease on its way from one process to another of the same machine, whose clocks read the same in both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Belief {
    /// Who holds what.
    pub identity: Identity,
    /// The TTL that runs.
    pub ttl: Ttl,
    /// When the last request with a good answer was sent: the window counts from here.
    pub sent: Reading,
    /// When the lease was granted: `max_hold` counts from here.
    pub opened: Reading,
}

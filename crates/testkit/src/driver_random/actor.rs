//! One actor: what it asks for, and what it believes.

use std::time::Duration;

use leasehold_core::{
    Token,
    request::{Claim, Release, Renewal},
};

/// A grant as its holder knows it.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    pub(super) claim: Claim,
    pub(super) token: Token,
    pub(super) close_us: u64,
    /// Set by an operator: renewals may be refused.
    pub(super) revoked: bool,
}

impl Belief {
    pub(super) fn renewal(&self) -> Renewal {
        Renewal {
            resource: self.claim.resource.clone(),
            lease_id: self.claim.lease_id,
            token: self.token,
            ttl: self.claim.ttl,
            lock_delay: self.claim.lock_delay,
        }
    }

    pub(super) fn release(&self, succeeded: bool) -> Release {
        Release {
            resource: self.claim.resource.clone(),
            lease_id: self.claim.lease_id,
            token: Some(self.token),
            succeeded,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Actor {
    /// Asked for, and not answered with a grant yet.
    pub(super) waiting: Option<Claim>,
    /// Believed in.
    pub(super) held: Option<Belief>,
    /// Believed in once.
    pub(super) past: Option<Belief>,
    /// The last claim that was sent.
    pub(super) last: Option<Claim>,
}

/// Windows give away 1 % and 2 ms of a TTL.
pub(super) fn window_us(ttl: leasehold_core::Ttl) -> u64 {
    let window: Duration = leasehold_core::window::Margin::DEFAULT.window_of(ttl);
    u64::try_from(window.as_micros()).unwrap_or(u64::MAX)
}

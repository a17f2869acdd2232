//! What is asked of a coordinator. Every request that changes something names resource, lease id and (once there is one)
//! token; nothing is extended or ended by name alone.

use alloc::string::String;
use core::time::Duration;

use crate::{
    error::Invalid,
    id::{HolderId, Label, LeaseId},
    name::Resource,
    token::Token,
    ttl::Ttl,
};

/// Asks for a grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The thing to hold.
    pub resource: Resource,
    /// Names this claim. Retries of the same acquire call repeat it and are recognised by it.
    pub lease_id: LeaseId,
    /// The process run that asks.
    pub holder_id: HolderId,
    /// What people call the asker.
    pub label: Label,
    /// How long the grant shall last without renewal.
    pub ttl: Ttl,
    /// How much longer the engine keeps the resource after the TTL when the grant ends uncleanly. For resources that
    /// cannot fence: it outlasts whatever the old holder still had under way.
    pub lock_delay: Duration,
    /// The highest token the asker has seen for this resource.
    pub floor: Option<Token>,
    /// True when the asker will wait: a busy answer then leaves a place in the queue. False: try once, never passing
    /// those who wait.
    pub queue: bool,
    /// Answer [`crate::record::Acquired::AlreadyDone`] when the last successful run of the resource *started* less than
    /// this ago by the engine's clock.
    pub once_per: Option<Duration>,
}

/// Asks to extend a grant: same lease id, same token, not yet expired. Never creates, never shortens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// The held thing.
    pub resource: Resource,
    /// The grant's lease id.
    pub lease_id: LeaseId,
    /// The grant's token.
    pub token: Token,
    /// How long it shall last from now. Where this would end earlier than the grant already does, the end stays.
    pub ttl: Ttl,
    /// As in [`Claim::lock_delay`].
    pub lock_delay: Duration,
}

/// Ends a grant by its holder, or takes a claim back whose outcome the claimant does not know. One that was revoked and still
/// stands ends as revoked, by whoever did that; a success is recorded all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// The held thing.
    pub resource: Resource,
    /// The grant's, or the claim's, lease id.
    pub lease_id: LeaseId,
    /// The grant's token; `None` only by a claimant who never learnt it. Then whatever this lease id has is ended, its
    /// place in the queue included.
    pub token: Option<Token>,
    /// True when the work done under the grant succeeded: recorded, in the same step, as the last successful run.
    pub succeeded: bool,
}

/// Ends another's grant, by an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revocation {
    /// The held thing.
    pub resource: Resource,
    /// The grant to end. It is named so that a late command cannot hit the successor.
    pub token: Token,
    /// Who revokes.
    pub by: Label,
    /// Why.
    pub reason: Label,
    /// False: renewals are refused, and the resource stays busy until the grant's end or its holder's release. True: the
    /// resource is free at once, and only fences stand between the old holder and the new one.
    pub now: bool,
}

/// Asks for a page of resources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Only resources whose name starts with this; empty for all.
    pub prefix: String,
    /// Only resources after this one, in the engine's order: the last of the previous page.
    pub after: Option<Resource>,
    /// At most this many: 1 … [`Listing::MAX`].
    pub limit: u16,
    /// True: also resources that are free now but remembered (their token counter, their last end).
    pub free_too: bool,
}

impl Listing {
    /// The largest page (ours: keeps one answer below a megabyte).
    pub const MAX: u16 = 1_000;

    /// All resources now held or waited for, from the first.
    pub const fn new() -> Self {
        Self { prefix: String::new(), after: None, limit: Self::MAX, free_too: false }
    }
}

impl Default for Listing {
    fn default() -> Self {
        Self::new()
    }
}

/// Prepares a namespace on an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Preparation {
    /// Skips the first quarantine: the operator vouches that nobody can hold a lease of this namespace. Refused where the
    /// namespace already exists.
    pub fresh: bool,
    /// The longest TTL that the namespace shall allow; `None` leaves it as it is, or the engine's default.
    pub max_ttl: Option<Ttl>,
}

/// Looks at some resources of a namespace, and forgets those that are idle: free, waited for by nobody, and neither claimed nor
/// renewed nor released for [`Purge::IDLE`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Purge {
    /// Only resources after this one, in the engine's order: [`crate::record::Purged::next`] of the step before.
    pub after: Option<Resource>,
    /// True: nothing is changed, and what would be forgotten is told.
    pub dry_run: bool,
}

impl Purge {
    /// The retention of token counters, of the mark of the last success, and of the history.
    pub const IDLE: Duration = Ttl::MAX.as_duration();
}

/// Longest `once_per`: the retention of token counters, which also keep the mark of the last success.
pub const MAX_ONCE_PER: Duration = Ttl::MAX.as_duration();
/// Longest lock-delay (ours: one hour, well above the minute that the first lease service defaulted to).
pub const MAX_LOCK_DELAY: Duration = Duration::from_secs(3_600);

impl Claim {
    /// Checks what the types do not: bounds of the lock-delay and the once-per period.
    ///
    /// # Errors
    /// [`Invalid`] naming the bound.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.lock_delay > MAX_LOCK_DELAY {
            return Err(Invalid::new("lock-delay", "must be at most 1h"));
        }
        if self.once_per.is_some_and(|period| period.is_zero() || period > MAX_ONCE_PER) {
            return Err(Invalid::new("once-per period", "must be more than zero and at most 7d"));
        }
        Ok(())
    }
}

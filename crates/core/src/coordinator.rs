//! The contract between Leasehold and an engine.
//!
//! A coordinator speaks to one engine about one namespace. It translates requests into the engine's language and answers
//! back, each in one atomic step of the engine, and does nothing else: it never retries, never waits for a grant, never
//! decides when a holder stops believing. Whoever implements it proves it with the conformance suite of
//! `leasehold-testkit`, whose cases carry the names of the clauses below.
//!
//! # Clauses
//!
//! 1. **One holder.** At any moment of the engine's order at most one unexpired grant exists per resource.
//! 2. **Rising tokens.** A later grant of a resource has a higher token than every earlier one, across release, expiry,
//!    revocation, purge, restart and crash; and a token above the claim's `floor`. Renewal keeps the token.
//! 3. **Exact match.** Renew and release match lease id *and* token; no match changes nothing and says what is there.
//!    Release without a token matches the claimant's own lease id.
//! 4. **Renew never creates and never shortens.** An expired, released or revoked grant is gone, even if nobody took it.
//! 5. **A repeated claim is recognised.** The same lease id gets the same grant again, its TTL re-armed, never a second
//!    one. After that grant has ended it is [`Acquired::Spent`], for as long as no later grant has ended too: a duplicate
//!    that is later still gets a grant of its own, under a higher token that nobody uses, which its TTL ends.
//! 6. **At least the TTL.** The engine keeps a grant for the TTL it answered (and the lock-delay), counted from when it
//!    applied the request, by its own clock and nobody's wall clock.
//! 7. **Unknown stays unknown.** A call whose request may have been applied and whose answer is missing ends with
//!    [`Kind::Unknown`]; one that certainly had no effect with
//!    [`Kind::Unavailable`].
//! 8. **Amnesia shows.** An engine that may have forgotten grants answers [`Acquired::Quarantined`] until every forgotten
//!    grant must have ended, also to a repeated claim whose grant it still knows: that grant may be one that was followed by
//!    another. Renewals, which only a holder that believes sends, and releases are answered as ever.
//! 9. **The queue.** Where there is one: a queueing claim that is not granted leaves, in the same atomic step, an entry
//!    that lives [`crate::line::ENTRY_LIFE`] and is refreshed by asking again; a freed resource is kept for the first in
//!    line for [`crate::line::RESERVATION`] and a wake is sent to it alone; a claim that does not queue passes no live waiter,
//!    unless none has taken the free resource for [`crate::line::FORSAKEN`]; a dead waiter blocks nobody who queues for longer
//!    than the reservation.
//! 10. **Durable before answered.** A grant, a release and a revocation that were answered survive a crash of the engine,
//!     or the guarantee label says otherwise.
//!
//! # Cancel safety
//!
//! Dropping a future returned here before it is ready leaves the outcome unknown: the request may or may not be applied.
//! It must leave nothing else behind, and later calls must work.
//!
//! # Executors
//!
//! Futures may be polled from any executor, or from none. A coordinator that needs a runtime brings its own.

use alloc::{boxed::Box, vec::Vec};
use core::{fmt::Debug, future::Future, pin::Pin};

use crate::{
    error::{Error, Kind},
    name::Resource,
    profile::Profile,
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
};

/// The future of one call.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// An engine that decides who holds. See the [module's clauses](self) for what an implementation promises.
pub trait Coordinator: Send + Sync + Debug + 'static {
    /// What this engine is, can do and guarantees.
    fn profile(&self) -> &Profile;

    /// Asks for a grant.
    fn acquire(&self, claim: Claim) -> Call<'_, Acquired>;

    /// Extends grants, many in one step where the engine can; one answer per renewal, in order. The outer error is for the
    /// whole batch, the inner ones for single renewals.
    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>>;

    /// Ends a grant, or takes back a claim.
    fn release(&self, release: Release) -> Call<'_, Released>;

    /// Ends another's grant.
    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked>;

    /// Reads one resource, from the authority and never from a copy.
    fn inspect(&self, resource: Resource) -> Call<'_, Inspection>;

    /// Reads the grants of one resource that have ended, the latest first: at least the last [`Past::KEPT`], each written in
    /// the same atomic step as its end, or for one that expired in the step that found it. An engine that keeps none answers
    /// [`Kind::Unsupported`], as here.
    fn history(&self, resource: Resource) -> Call<'_, Vec<Past>> {
        let what = "this engine keeps no history of ended grants";
        let error = Error::new(Kind::Unsupported, what).on(&resource).at(&self.profile().place);
        Box::pin(async move { Err(error) })
    }

    /// Reads a page of resources.
    fn list(&self, listing: Listing) -> Call<'_, Page>;

    /// Looks at some resources, a bounded number, and forgets those that nobody has used for [`Purge::IDLE`]: what engines do
    /// by themselves now and then. Safe beside every other request and beside others who do the same; tokens go on rising
    /// (clause 2). An engine that keeps nothing to be forgotten in this way answers [`Kind::Unsupported`], as here.
    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        let _ = purge;
        let what = "this engine has no housekeeping that can be asked for";
        let error = Error::new(Kind::Unsupported, what).at(&self.profile().place);
        Box::pin(async move { Err(error) })
    }

    /// Makes the namespace, or changes its settings.
    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared>;

    /// The next wake for a claim or grant made through this coordinator. Pending for ever where the engine has none. Only
    /// one such call is under way at a time; dropping it loses no later wake.
    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>>;

    /// Ends what this client would otherwise leave to run out by itself: nothing that a grant or a claim hangs on. Asked for once,
    /// when nobody will ask for anything else any more, and dropped when it takes long: whoever comes after must not depend on it.
    /// An engine where a client leaves nothing behind does nothing, as here.
    fn farewell(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {})
    }
}

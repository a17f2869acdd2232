//! Settings of an operator: what a program's leases are asked with where its code does not say, by resource, and changeable while
//! it runs.
//!
//! ```text
//!   file ──look, every two seconds──▶ Rules ──▶ Leases::retune ──┬─▶ held leases: their TTL, from the next renewal
//!   flag service, test, … ───────────▶                           └─▶ later claims and grants: TTL, wait, hold limit
//! ```
//!
//! What the code of a program sets ([`crate::LeaseRequest::ttl`] and the like) is the last word, as an option is on the command
//! line. A change counts as a whole or not at all, and shortens nothing that was granted.

mod duration;
#[cfg(feature = "settings")]
mod file;
mod parse;
mod rules;

use std::{sync::Arc, time::Duration};

use leasehold_core::{Error, Invalid, Ttl};

#[cfg(feature = "settings")]
pub use self::file::{File, Follower};
pub use self::rules::{Limit, Rules, Tuning};
pub use self::{duration::duration, parse::setting};
use crate::{Lease, Leases, Worker, coordinator, leases::Client, observe, shared::Shared, sync::lock};

impl Leases {
    /// The settings in force.
    pub fn rules(&self) -> Rules {
        Rules::clone(&self.client().rules.load())
    }

    /// Other settings from now on, in place of all that were in force.
    ///
    /// A lease whose request set no TTL asks for the new one at its next renewal; it is never shortened ([`Lease::set_ttl`]). Waits
    /// count from the next request, hold limits from the next grant, a [drain timeout](Lease::drain_timeout) from the next
    /// look at it.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`]: a TTL is longer than the namespace allows, or does not go with the policy of a lease that is held.
    /// Then nothing has changed, for no lease.
    pub fn retune(&self, rules: Rules) -> Result<(), Error> {
        let client = self.client();
        let profile = client.coordinator().profile();
        if let Some(ttl) = rules.longest_ttl().filter(|ttl| *ttl > profile.max_ttl) {
            return Err(coordinator::too_long(ttl, profile.max_ttl).at(&profile.place));
        }
        let registry = &client.driver.core.registry;
        for lease in registry.following() {
            let ttl = rules.ttl_of(&lease.identity().resource);
            let fits = lease.look(|holder, _| holder.policy().with_ttl(ttl).map(drop));
            fits.map_err(|invalid| Error::from(invalid).on(&lease.identity().resource))?;
        }
        // One after the other, and no grant in between: the last settings are those that every lease has.
        let alone = lock(&client.retuning);
        client.rules.store(Arc::new(rules));
        let tuned: Vec<Tuned> = registry.following().iter().map(|lease| client.tune(lease)).collect();
        drop(alone);
        // Whoever listens may ask this client something.
        tuned.iter().for_each(Tuned::tell);
        Ok(())
    }
}

/// A lease that follows the settings, and what became of it.
struct Tuned {
    lease: Arc<Shared>,
    was: Ttl,
    now: Result<Ttl, Invalid>,
}

impl Tuned {
    fn tell(&self) {
        let Self { lease, was, now } = self;
        match now {
            Ok(now) if now == was => {}
            Ok(now) => lease.inside(|| observe::retuned(lease.identity(), lease.holder_id(), *was, *now)),
            Err(invalid) => observe::not_retuned(lease.identity(), lease.holder_id(), *was, invalid),
        }
    }
}

impl Client {
    /// Lets a lease have its TTL from the settings. Alone: see [`Client::retuning`].
    fn tune(&self, lease: &Arc<Shared>) -> Tuned {
        let ttl = self.rules.load().ttl_of(&lease.identity().resource);
        let (tuned, _) = lease.alter(|holder| {
            let was = holder.policy().ttl();
            (Tuned { lease: Arc::clone(lease), was, now: holder.set_ttl(ttl).map(|()| ttl) }, None)
        });
        tuned
    }

    /// The same for a lease that has just been registered and was asked for with this TTL: the settings may have changed since.
    pub(crate) fn tune_granted(&self, lease: &Arc<Shared>, asked: Ttl) {
        let alone = lock(&self.retuning);
        let differs = self.rules.load().ttl_of(&lease.identity().resource) != asked;
        let tuned = differs.then(|| self.tune(lease));
        drop(alone);
        tuned.iter().for_each(Tuned::tell);
    }
}

impl Lease {
    /// How long a drain of this lease may take by the [settings](Leases::retune) in force: twice the TTL unless they say
    /// otherwise; `None` for as long as it takes. Nothing happens by itself when it is over: it is for
    /// [`Worker::drain`] and the like.
    pub fn drain_timeout(&self) -> Option<Duration> {
        match self.client().rules.load().of(self.resource()).drain_timeout {
            None => Some(self.ttl() * 2),
            Some(Limit::After(limit)) => Some(limit),
            Some(Limit::None) => None,
        }
    }
}

impl Worker {
    /// As [`Lease::drain_timeout`], for [`Worker::drain`]; `None` also once it is concluded.
    pub fn drain_timeout(&self) -> Option<Duration> {
        self.guard().and_then(Lease::drain_timeout)
    }
}

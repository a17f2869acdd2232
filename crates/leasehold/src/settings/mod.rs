//! Settings of an operator: what a program's leases are asked with where its code does not say, by resource, and changeable while
//! it runs.
//!
//! ```text
//!   file ──look, every two seconds──▶ Rules ─ Leases::retune ─▶ own ─────┬─▶ held leases: TTL, jitter, from the next renewal
//!   flag service, test, … ───────────▶                            over    │
//!   coordinator ──look, every few seconds──▶ Rules ───────────▶ common ──┴─▶ later claims and grants: all of them
//! ```
//!
//! What the code of a program sets ([`crate::LeaseRequest::ttl`] and the like) is the last word, as an option is on the command
//! line; then its own settings, then those that the coordinator keeps for all. A change counts as
//! a whole or not at all, and shortens nothing that was granted.

mod duration;
#[cfg(feature = "settings")]
mod file;
#[cfg(feature = "settings")]
mod follower;
mod layers;
mod parse;
mod rules;
#[cfg(feature = "settings")]
pub mod stored;

use std::{sync::Arc, time::Duration};

use leasehold_core::{Error, Invalid, Resource, Ttl};

pub(crate) use self::layers::Layers;
pub use self::rules::{Limit, Rules, Tuning};
pub use self::{duration::duration, parse::setting};
#[cfg(feature = "settings")]
pub use self::{file::File, follower::Follower};
use crate::{Lease, Leases, Worker, leases::Client, observe, shared::Shared, sync::lock};

impl Leases {
    /// This client's own settings. Where they say nothing, those count that the coordinator keeps, if the client follows them.
    pub fn rules(&self) -> Rules {
        self.client().rules.load().own.clone()
    }

    /// The settings that the coordinator keeps, as far as this client follows them.
    pub fn common_rules(&self) -> Rules {
        self.client().rules.load().common.clone()
    }

    /// The settings of one resource that count now, whoever they are from.
    pub fn tuning(&self, resource: &Resource) -> Tuning {
        self.client().rules.load().of(resource)
    }

    /// Other settings of this client from now on, in place of all of its own that were in force.
    ///
    /// A lease whose request set no TTL asks for the new one at its next renewal; it is never shortened ([`Lease::set_ttl`]).
    /// Another jitter counts from the next renewal too. Waits count from the next request, hold limits from the next grant, a
    /// [drain timeout](Lease::drain_timeout) from the next look at it.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`]: a TTL is longer than the namespace allows, a jitter is above its bound, or a TTL does not
    /// go with the policy of a lease that is held. Then nothing has changed, for no lease.
    pub fn retune(&self, rules: Rules) -> Result<(), Error> {
        self.client().replace(rules, |layers| &mut layers.own)
    }
}

impl Client {
    /// Other settings in place of some that were in force: all of them, for every lease, or nothing.
    fn replace(&self, rules: Rules, layer: impl FnOnce(&mut Layers) -> &mut Rules) -> Result<(), Error> {
        let profile = self.coordinator().profile();
        rules.check(profile.max_ttl, &profile.place)?;
        // One after the other, and no grant in between: the last settings are those that every lease has.
        let alone = lock(&self.retuning);
        let mut layers = Layers::clone(&self.rules.load());
        *layer(&mut layers) = rules;
        let leases = self.driver.core.registry.all();
        for lease in leases.iter().filter(|lease| lease.follows) {
            let ttl = layers.ttl_of(&lease.identity().resource);
            // Whether it is still held is nothing to be told of here, under the lock.
            let (fits, _) = lease.alter(|holder| (holder.policy().with_ttl(ttl).map(drop), None));
            fits.map_err(|invalid| Error::from(invalid).on(&lease.identity().resource))?;
        }
        self.rules.store(Arc::new(layers));
        let tuned: Vec<Tuned> =
            self.driver.core.registry.all().iter().map(|lease| self.tune(lease)).collect();
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
    /// Lets a lease have its jitter from the settings, and its TTL if it follows them. Alone: see [`Client::retuning`].
    fn tune(&self, lease: &Arc<Shared>) -> Tuned {
        let tuning = self.rules.load().of(&lease.identity().resource);
        let (tuned, _) = lease.alter(|holder| {
            let was = holder.policy().ttl();
            let ttl = tuning.ttl.unwrap_or_default();
            let jittered = holder.set_jitter(tuning.jitter_percent());
            let now = if lease.follows { holder.set_ttl(ttl).map(|()| ttl) } else { Ok(was) };
            (Tuned { lease: Arc::clone(lease), was, now: jittered.and(now) }, None)
        });
        tuned
    }

    /// The same for a lease that has just been registered, and was asked for with this jitter and, where it follows the
    /// settings, with this TTL: they may have changed since.
    pub(crate) fn tune_granted(&self, lease: &Arc<Shared>, asked: Option<Ttl>, jitter_percent: u32) {
        let alone = lock(&self.retuning);
        let tuning = self.rules.load().of(&lease.identity().resource);
        let differs = tuning.jitter_percent() != jitter_percent
            || asked.is_some_and(|asked| tuning.ttl.unwrap_or_default() != asked);
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

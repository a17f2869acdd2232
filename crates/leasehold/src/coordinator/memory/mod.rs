//! An engine in this process's memory: for tests, examples, and coordination between tasks of one program.
//!
//! It makes every promise of the contract except durability: when the process ends, the store ends with all its holders.
//! Several coordinators on one [`MemoryStore`] contend as processes on a server would.

mod store;

use std::sync::Arc;

use leasehold_core::{
    Call, Coordinator, Namespace, Resource,
    profile::{Capabilities, Guarantee, Profile, Promise, QueueOrder},
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
    window::ClockRule,
};

use super::mailbox::Mailbox;
use crate::guarantees::Deployment;
pub use store::MemoryStore;

/// A coordinator of one namespace in a [`MemoryStore`].
///
/// Every call is finished at its first poll.
#[derive(Debug)]
pub struct MemoryCoordinator {
    store: MemoryStore,
    namespace: Namespace,
    profile: Profile,
    mailbox: Arc<Mailbox>,
}

impl MemoryCoordinator {
    /// Connects to a namespace of `store`, making it when it is new.
    pub fn new(store: MemoryStore, namespace: Namespace) -> Self {
        let profile = profile(store.max_ttl(&namespace));
        Self { store, namespace, profile, mailbox: Arc::new(Mailbox::default()) }
    }
}

/// What it guarantees.
const GUARANTEE: Guarantee = Guarantee {
    windows: Promise::Yes("A1, one process"),
    tokens: Promise::Limited("while the process lives; across runs unless the wall clock is set back"),
    after_failover: "nothing survives the process, its holders included",
    caveat: "nothing outside this process is coordinated",
};
pub(crate) const DEPLOYMENTS: &[Deployment] =
    &[Deployment { url: "memory:NAME", what: "the tasks of one process, tests", guarantee: GUARANTEE }];

fn profile(max_ttl: leasehold_core::Ttl) -> Profile {
    Profile {
        engine: "memory",
        place: "memory:".to_owned(),
        capabilities: Capabilities {
            queue: QueueOrder::Fifo,
            wakes: true,
            once_per: true,
            history: true,
            ttl_step_ms: core::num::NonZeroU32::MIN,
        },
        clock: ClockRule::Boot,
        max_ttl,
        guarantee: GUARANTEE,
    }
}

impl Coordinator for MemoryCoordinator {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(async move { self.store.acquire(&self.namespace, &claim, &self.mailbox) })
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, leasehold_core::Error>>> {
        Box::pin(async move { Ok(self.store.renew(&self.namespace, &renewals)) })
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(async move { self.store.release(&self.namespace, &release) })
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        Box::pin(async move { self.store.revoke(&self.namespace, &revocation) })
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        Box::pin(async move { Ok(self.store.inspect(&self.namespace, resource)) })
    }

    fn history(&self, resource: Resource) -> Call<'_, Vec<Past>> {
        Box::pin(async move { Ok(self.store.history(&self.namespace, &resource)) })
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(async move { self.store.list(&self.namespace, &listing) })
    }

    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        Box::pin(async move { Ok(self.store.purge(&self.namespace, &purge)) })
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        Box::pin(async move { self.store.prepare(&self.namespace, preparation) })
    }

    fn next_wake(&self) -> std::pin::Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(self.mailbox.next())
    }
}

#[cfg(test)]
mod tests;

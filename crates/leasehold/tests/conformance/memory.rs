//! Memory.

use std::{sync::Arc, time::Duration};

use leasehold::coordinator::memory::{MemoryCoordinator, MemoryStore};
use leasehold_core::{Coordinator, Namespace, Ttl, profile::Capabilities, request::Preparation};
use leasehold_testkit::suite::{Connecting, Engine, Hook, Loss};

use crate::{
    CAN, NOTHING_IS_LOST,
    spaces::{Ahead, Spaces},
};

pub(crate) struct Memory(Spaces<MemoryStore>);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(Spaces::new())
    }

    fn store(&self, namespace: &Namespace) -> (Arc<Ahead>, MemoryStore) {
        self.0.get(namespace, |clock| MemoryStore::with_clock(clock))
    }
}

impl Engine for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        CAN
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        let client = MemoryCoordinator::new(self.store(namespace).1, namespace.clone());
        Box::pin(async move { Ok(Arc::new(client) as Arc<dyn Coordinator>) })
    }

    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        let store = self.store(namespace).1;
        Hook::Here(Box::pin(async move {
            let client = MemoryCoordinator::new(store.clone(), namespace.clone());
            client.prepare(Preparation { fresh: false, max_ttl: Some(max_ttl) }).await?;
            store.forget(namespace);
            Ok(Arc::new(client) as Arc<dyn Coordinator>)
        }))
    }

    fn crash<'a>(&'a self, _namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        Hook::Inapplicable("memory ends with its process, its holders included")
    }

    fn lossy<'a>(&'a self, _: &'a Namespace, _: Loss) -> Hook<Connecting<'a>> {
        Hook::Inapplicable(NOTHING_IS_LOST)
    }

    fn pass_time<'a>(&'a self, namespace: &'a Namespace, by: Duration) -> Hook<()> {
        self.store(namespace).0.skip(by);
        Hook::Here(())
    }
}

//! The reference engine as the suite sees it: every hook is there, so every case runs in full.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use leasehold_core::{Coordinator, Namespace, Ttl, profile::Capabilities};

use super::{Client, Loss, Reference, lock};
use crate::suite::{Connecting, Engine, Hook};

impl Reference {
    fn connected(&self, namespace: &Namespace, loss: Option<Loss>) -> Connecting<'static> {
        let client = Client::new(self.space(namespace, None), loss);
        Box::pin(async move { Ok(Arc::new(client) as Arc<dyn Coordinator>) })
    }
}

impl Engine for Reference {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        super::client::CAPABILITIES
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        self.connected(namespace, None)
    }

    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        let space = self.space(namespace, Some(max_ttl));
        let now = space.now();
        let mut state = lock(&space.state);
        state.quarantine_until_us = now.clock_us.saturating_add(state.max_ttl.as_micros());
        drop(state);
        Hook::Here(self.connected(namespace, None))
    }

    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        let space = self.space(namespace, None);
        let mut state = lock(&space.state);
        state.mail.clear();
        state.seats.values_mut().for_each(|seat| self.rules.after_crash(seat));
        drop(state);
        Hook::Here(self.connected(namespace, None))
    }

    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        Hook::Here(self.connected(namespace, Some(loss)))
    }

    fn pass_time<'a>(&'a self, namespace: &'a Namespace, by: Duration) -> Hook<()> {
        let us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.space(namespace, None).skipped_us.fetch_add(us, Ordering::SeqCst);
        Hook::Here(())
    }
}

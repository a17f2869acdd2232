//! A cluster that has gone back in time: restored from an old snapshot, and nobody has said so.
//!
//! Nothing in etcd tells. But revisions only rise, and every answer that we ask for is of the cluster's agreed state: an answer
//! with a lower revision than one that came before the question left proves it. A client that has lived through a restore does
//! then what the operator should have done: the namespace is quarantined, and its base raised above all tokens that were
//! given before. Clients that come later cannot know; they rely on it, or on the operator.

use std::sync::atomic::Ordering;

use leasehold_core::Error;

use super::{
    engine::{Engine, ROUNDS},
    proto::{Compare, RequestOp},
};
use crate::clock;

impl Engine {
    /// The highest revision that any answer has shown so far. To be taken before a question leaves.
    pub(super) fn reached(&self) -> u64 {
        self.reached.load(Ordering::SeqCst)
    }

    /// An answer showed this revision. True when the cluster has gone back since `before` was reached.
    pub(super) fn went_back(&self, before: u64, revision: u64) -> bool {
        self.reached.fetch_max(revision, Ordering::SeqCst);
        revision < before
    }

    /// Quarantines the namespace and raises its base, unless somebody has done so.
    pub(super) async fn announce_restore(&self, before: u64) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let space = self.space().await?;
            let Some((mut meta, written)) = space.meta else {
                // Announced already: whoever comes first quarantines it.
                self.reached.store(space.revision, Ordering::SeqCst);
                return Ok(());
            };
            let given = self.recent.base().unwrap_or(meta.base).saturating_add(before);
            if meta.base >= given {
                self.reached.store(space.revision, Ordering::SeqCst);
                return Ok(());
            }
            tracing::error!(
                place = self.place,
                namespace = self.namespace.as_str(),
                "etcd has gone back in time, from revision {before} to {}: the namespace is quarantined",
                space.revision
            );
            meta.base = given.max(clock::unix_us());
            let change =
                vec![RequestOp::put(self.keys.meta(), &meta, 0), self.quarantining(meta.max_ttl()?).await?];
            self.change(vec![Compare::written(self.keys.meta(), written)], change).await?;
        }
        Ok(())
    }
}

//! The history: grants that have ended, the last [`Past::KEPT`] of each resource.
//!
//! They stand in a ring of keys, each written in the transaction that ends its grant, so the ring never grows and needs no
//! housekeeping but that of its resource.

use std::sync::Arc;

use leasehold_core::{Error, Resource, record::Past};

use super::{
    engine::Engine,
    proto::{RangeRequest, RequestOp},
    record::{PastRecord, State, decode},
};

/// Places of a ring.
const PLACES: u64 = Past::KEPT as u64;

impl Engine {
    /// What the transaction that writes `state` after `before` writes into the history, if it ends a grant.
    pub(super) fn note_end(
        &self,
        resource: &Resource,
        before: &State,
        state: &mut State,
    ) -> Option<RequestOp> {
        let past = state.follow(before)?;
        Some(RequestOp::put(self.keys.past(resource, past.nth % PLACES), &past, 0))
    }

    pub(super) async fn history(self: Arc<Self>, resource: Resource) -> Result<Vec<Past>, Error> {
        let view = self.read(&resource).await?;
        let kept = self.range(RangeRequest::below(self.keys.pasts(&resource))).await?;
        let now = Self::now();
        let mut found: Vec<Past> = self.slot(&resource, &view, now)?.lapsed(now).into_iter().collect();
        let kept = kept.kvs.iter().map(|key| decode("a grant in the history", &key.value));
        let mut kept: Vec<PastRecord> = kept.collect::<Result<_, _>>()?;
        // An end between the two reads is among both: it is told once.
        kept.retain(|past| past.nth <= view.state.ends);
        kept.sort_by_key(|past| std::cmp::Reverse(past.nth));
        for past in &kept {
            found.push(past.to_past()?);
        }
        found.truncate(Past::KEPT);
        Ok(found)
    }
}

//! Forgetting resources that nobody has used for a week.
//!
//! Tokens need no counter to survive that: they lie above the namespace's base plus the cluster's revision, which only rises.
//! Only a resource whose tokens were lifted above that (by what a claimant had seen elsewhere) has a counter worth keeping;
//! the base is raised by as much in the same step.

use std::sync::Arc;

use leasehold_core::{Error, Resource, Ttl, record::Purged, request::Purge};
use tokio::sync::Mutex;

use super::{
    engine::Engine,
    failure::Fail,
    keys::resource_of,
    proto::{Compare, RangeRequest, RangeResponse, RequestOp, after_all},
    record::{State, decode},
    rpc::Effect,
};
use crate::clock;

/// Seven days, the retention of token counters.
const RETENTION_US: u64 = Ttl::MAX.as_micros();
/// States looked at in one step.
const STEP: i64 = 64;
/// Time between the steps of one client.
const PAUSE_US: u64 = 60_000_000;
/// One in so many short-lived clients takes a step.
const CHANCE: u64 = 16;

/// Where looking for idle resources goes on, and when.
#[derive(Debug, Default)]
pub(super) struct Chore {
    round: Mutex<Round>,
}

#[derive(Debug, Default)]
struct Round {
    begun: bool,
    next_us: u64,
    after: Option<Resource>,
}

impl Engine {
    /// Looks after a few idle resources now and then, in the background.
    pub(super) fn tidy_up(self: &Arc<Self>) {
        let engine = Arc::clone(self);
        let Ok(mut round) = engine.chore.round.try_lock() else { return };
        let now_us = clock::boot_us();
        if !std::mem::replace(&mut round.begun, true) && !self.jitter.draw().is_multiple_of(CHANCE) {
            round.next_us = now_us + PAUSE_US;
        }
        if now_us < round.next_us {
            return;
        }
        round.next_us = now_us + PAUSE_US;
        drop(round);
        let task = tokio::spawn(async move { engine.purge_some(clock::unix_us()).await.is_ok() });
        self.keep(task.abort_handle());
    }

    /// Takes one step. How many were forgotten.
    pub(super) async fn purge_some(self: Arc<Self>, now_us: u64) -> Result<usize, Error> {
        let mut round = self.chore.round.lock().await;
        let purged = self.purge_step(&Purge { after: round.after.take(), dry_run: false }, now_us).await?;
        round.after = purged.next;
        Ok(purged.idle.len())
    }

    /// One step for somebody who asks.
    pub(super) async fn purge(self: Arc<Self>, purge: Purge) -> Result<Purged, Error> {
        self.purge_step(&purge, clock::unix_us()).await.map_err(|error| error.at(&self.place))
    }

    async fn purge_step(&self, purge: &Purge, now_us: u64) -> Result<Purged, Error> {
        let root = self.keys.states();
        // Right behind a key is the same key with a zero byte.
        let from = purge.after.as_ref().map_or_else(
            || root.clone().into_bytes(),
            |after| [self.keys.state(after).as_bytes(), b"\0"].concat(),
        );
        let range =
            RangeRequest { range_end: after_all(root.as_bytes()), limit: STEP, ..RangeRequest::one(from) };
        let answer: RangeResponse =
            self.rpc.call("/etcdserverpb.KV/Range", range, Effect::None).await.map_err(Fail::of_read)?;
        let mut purged = Purged { looked_at: answer.kvs.len() as u64, ..Purged::default() };
        purged.next = answer.kvs.last().filter(|_| answer.more).and_then(|key| resource_of(&key.key, &root));
        for key in answer.kvs {
            let Some(resource) = resource_of(&key.key, &root) else { continue };
            let state: State = decode("a resource's state", &key.value)?;
            if now_us.saturating_sub(state.touched_us) < RETENTION_US {
                continue;
            }
            let Some(change) = self.forgetting(&resource, now_us).await? else { continue };
            if purge.dry_run || self.attempt(change.0, change.1).await.map_err(Fail::of_write)?.is_some() {
                purged.idle.push(resource);
            }
        }
        Ok(purged)
    }

    /// What forgets one resource and on which condition, if it is free and nobody waits.
    async fn forgetting(
        &self,
        resource: &Resource,
        now_us: u64,
    ) -> Result<Option<(Vec<Compare>, Vec<RequestOp>)>, Error> {
        let view = self.read(resource).await?;
        let Some((mut meta, meta_written)) = view.meta else { return Ok(None) };
        let idle = now_us.saturating_sub(view.state.touched_us) >= RETENTION_US;
        if view.written == 0 || view.mark.is_some() || !view.line.is_empty() || !idle {
            return Ok(None);
        }
        let mut compare = view.unchanged(&self.keys, resource);
        compare.push(Compare::written(self.keys.meta(), meta_written));
        let mut change = vec![
            RequestOp::delete(self.keys.state(resource)),
            RequestOp::delete_below(self.keys.pasts(resource)),
        ];
        let reached = meta.base.saturating_add(view.revision);
        if view.state.last_token > reached {
            meta.base = view.state.last_token.saturating_sub(view.revision);
            change.push(RequestOp::put(self.keys.meta(), &meta, 0));
        }
        Ok(Some((compare, change)))
    }
}

//! Forgetting resources that nobody has used for a week.
//!
//! Tokens need no counter to survive that: they lie above the namespace's base plus the cluster's revision, which only rises.
//! Only a resource whose tokens were lifted above that (by what a claimant had seen elsewhere) has a counter worth keeping;
//! the base is raised by as much in the same step.

use std::sync::{Arc, Mutex};

use leasehold_core::{Error, Resource, Ttl, record::Purged, request::Purge};

use super::{
    engine::Engine,
    failure::Fail,
    keys::resource_of,
    proto::{Compare, RangeRequest, RangeResponse, RequestOp, after_all},
    record::{State, Turn, decode},
    rpc::Effect,
};
use crate::{clock, sync::lock};

/// Seven days, the retention of token counters.
const RETENTION_US: u64 = Ttl::MAX.as_micros();
/// States looked at in one step.
const STEP: i64 = 64;
/// Time between steps, whichever client makes them.
const PAUSE_US: u64 = 60_000_000;
/// One in so many short-lived clients looks whether it is time for a step.
const CHANCE: u64 = 16;

/// When this client looks again whether it is time for a step; `None` before its first grant.
#[derive(Debug, Default)]
pub(super) struct Chore(Mutex<Option<u64>>);

impl Chore {
    /// True when it is time to look, at most once a minute.
    fn is_due(&self, now_us: u64, random: u64) -> bool {
        let mut next_us = lock(&self.0);
        let due = match *next_us {
            Some(next_us) => now_us >= next_us,
            None => random.is_multiple_of(CHANCE),
        };
        if due || next_us.is_none() {
            *next_us = Some(now_us.saturating_add(PAUSE_US));
        }
        due
    }
}

impl Engine {
    /// Looks after a few idle resources now and then, in the background.
    pub(super) fn tidy_up(self: &Arc<Self>) {
        if !self.chore.is_due(clock::boot_us(), self.jitter.draw()) {
            return;
        }
        let engine = Arc::clone(self);
        let task = tokio::spawn(async move { engine.purge_in_turn(clock::unix_us()).await.is_ok() });
        self.keep(task.abort_handle());
    }

    /// Makes the next step, unless some client has made one in the last minute: all that use the namespace take turns, and go on
    /// where the last one stopped. How many were forgotten; `None` when it is not time.
    pub(super) async fn purge_in_turn(&self, now_us: u64) -> Result<Option<usize>, Error> {
        let range = RangeRequest::one(self.keys.turn());
        let answer: RangeResponse =
            self.rpc.call("/etcdserverpb.KV/Range", range, Effect::None).await.map_err(Fail::of_read)?;
        let (turn, written) = match answer.kvs.first() {
            Some(key) => (decode::<Turn>("whose turn it is to forget", &key.value)?, key.mod_revision),
            None => (Turn::default(), 0),
        };
        // A clock that is far behind is not waited for.
        if now_us.abs_diff(turn.at_us) < PAUSE_US {
            return Ok(None);
        }
        let taken = Turn { at_us: now_us, ..turn };
        let Some(written) = self.pass(written, &taken).await? else { return Ok(None) };
        let after = Resource::decode(&taken.after).ok();
        let purged = self.purge_some(after, now_us).await?;
        let next = purged.next.as_ref().map(Resource::encode).unwrap_or_default();
        self.pass(written, &Turn { after: next, ..taken }).await?;
        Ok(Some(purged.idle.len()))
    }

    /// Writes whose turn it was, if nobody has since. When that was written.
    async fn pass(&self, written: i64, turn: &Turn) -> Result<Option<i64>, Error> {
        let compare = vec![Compare::written(self.keys.turn(), written)];
        let change = vec![RequestOp::put(self.keys.turn(), turn, 0)];
        let made = self.attempt(compare, change).await.map_err(Fail::of_write)?;
        Ok(made.map(|made| made.header.unwrap_or_default().revision))
    }

    /// One step, whosever turn it is.
    pub(super) async fn purge_some(&self, after: Option<Resource>, now_us: u64) -> Result<Purged, Error> {
        self.purge_step(&Purge { after, dry_run: false }, now_us).await
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

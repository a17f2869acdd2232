//! Looking: one resource, or a page of them. Always at the cluster's agreed state, never at a member's own.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use leasehold_core::{
    Error, Label, Resource,
    record::{Inspection, Page, WaiterInfo},
    request::Listing,
};
use tokio::task::JoinSet;

use super::{
    engine::Engine,
    failure::Fail,
    keys::{claimant_of, resource_of},
    proto::{KeyValue, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse, after_all},
    record::{Place, State, decode},
    rpc::Effect,
    view::{Tie, View},
};
use crate::coordinator::rules;

/// Reads that go into one transaction; etcd refuses more than 128.
const BATCH: usize = 100;
/// Questions after leases that are under way at once.
const AT_ONCE: usize = 64;

/// A resource on a page.
#[derive(Debug, Default)]
struct Found {
    mark: Option<Tie>,
    waiting: u32,
}

impl Engine {
    pub(super) async fn inspect(self: Arc<Self>, resource: Resource) -> Result<Inspection, Error> {
        let (view, places) = tokio::try_join!(
            self.read(&resource),
            self.range(RangeRequest::below(self.keys.line(&resource)).by_age())
        )?;
        let remaining = self.remaining_of(&view).await;
        let now_us = Self::now().unix_us;
        let waiters: Vec<WaiterInfo> = places.kvs.iter().filter_map(|key| waiter(key, now_us)).collect();
        let waiting = u32::try_from(waiters.len()).unwrap_or(u32::MAX);
        let named = waiters.into_iter().take(Inspection::MAX_WAITERS).collect();
        self.tell_of(resource, &view, remaining, named, waiting)
    }

    fn tell_of(
        &self,
        resource: Resource,
        view: &View,
        remaining: Duration,
        waiters: Vec<WaiterInfo>,
        waiting: u32,
    ) -> Result<Inspection, Error> {
        let now = Self::now();
        let left_us = u64::try_from(remaining.as_micros()).unwrap_or(u64::MAX);
        let slot = view.slot(now, left_us, now.clock_us).map_err(|error| self.here(error, &resource))?;
        Ok(rules::inspection(resource, &slot, waiters, waiting, now))
    }

    pub(super) async fn range(&self, range: RangeRequest) -> Result<RangeResponse, Error> {
        let answer = self.rpc.call("/etcdserverpb.KV/Range", range, Effect::None).await;
        answer.map_err(|fail: Fail| fail.of_read().at(&self.place))
    }

    pub(super) async fn list(self: Arc<Self>, listing: Listing) -> Result<Page, Error> {
        rules::check_listing(&listing)?;
        let limit = usize::from(listing.limit);
        let mut found = self.find(&listing, limit + 1).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let (items, space) = tokio::try_join!(Arc::clone(&self).tell_all(found), self.space())?;
        let quarantine = match (space.quarantine, space.meta) {
            (Some(tie), Some((meta, _))) => Some(self.quarantine_left(tie, &meta).await),
            _ => None,
        };
        Ok(Page { items, more, quarantine })
    }

    /// The first resources that the listing asks for, in the order of their keys.
    async fn find(&self, listing: &Listing, limit: usize) -> Result<Vec<(Resource, Found)>, Error> {
        // One more: the last page's resource may be among them.
        let most = i64::try_from(limit + 1).unwrap_or(i64::MAX);
        let prefix =
            if listing.prefix.is_empty() { String::new() } else { Resource::new(&listing.prefix)?.encode() };
        let after = listing.after.as_ref().map(Resource::encode);
        let below = |root: &str| {
            let from = after.as_ref().filter(|after| **after >= prefix).unwrap_or(&prefix);
            let from = format!("{root}{from}");
            let end = after_all(format!("{root}{prefix}").as_bytes());
            RangeRequest { range_end: end, ..RangeRequest::one(from) }.keys_only()
        };
        let marks = RangeRequest { limit: most, ..below(&self.keys.marks()) };
        let places = below(&self.keys.lines());
        let states = RangeRequest { limit: most, ..below(&self.keys.states()) };
        let (marks, places) = tokio::try_join!(self.range(marks), self.range(places))?;
        let mut found: BTreeMap<String, (Resource, Found)> = BTreeMap::new();
        for key in &marks.kvs {
            if let Some(entry) = entry(&mut found, key, &self.keys.marks()) {
                entry.mark = Some(Tie::from(key));
            }
        }
        for key in &places.kvs {
            if let Some(entry) = entry(&mut found, key, &self.keys.lines()) {
                entry.waiting += 1;
            }
        }
        if listing.free_too {
            for key in &self.range(states).await?.kvs {
                entry(&mut found, key, &self.keys.states());
            }
        }
        // Keys of places sort otherwise than names: some of what comes before the page is among them.
        if let Some(after) = after {
            found = found.split_off(&format!("{after}\0"));
        }
        Ok(found.into_values().take(limit).collect())
    }

    /// What is to be told of resources that were found.
    async fn tell_all(self: Arc<Self>, found: Vec<(Resource, Found)>) -> Result<Vec<Inspection>, Error> {
        let mut items = Vec::with_capacity(found.len());
        for part in found.chunks(BATCH) {
            let success: Vec<RequestOp> = part
                .iter()
                .map(|(resource, _)| RangeRequest::one(self.keys.state(resource)).into())
                .collect();
            let question = TxnRequest { success, ..TxnRequest::default() };
            let answer: TxnResponse = self
                .rpc
                .call("/etcdserverpb.KV/Txn", question, Effect::None)
                .await
                .map_err(|fail: Fail| fail.of_read().at(&self.place))?;
            let mut views = Vec::with_capacity(part.len());
            for ((_, found), answer) in part.iter().zip(answer.responses) {
                views.push(view_of(found, answer.into_keys().first())?);
            }
            let remaining = Arc::clone(&self).remaining_of_all(&views).await;
            for (((resource, found), view), remaining) in part.iter().zip(&views).zip(remaining) {
                items.push(self.tell_of(resource.clone(), view, remaining, Vec::new(), found.waiting)?);
            }
        }
        Ok(items)
    }

    async fn remaining_of_all(self: Arc<Self>, views: &[View]) -> Vec<Duration> {
        let mut all = vec![Duration::ZERO; views.len()];
        for (part, from) in views.chunks(AT_ONCE).zip((0..).step_by(AT_ONCE)) {
            let mut tasks = JoinSet::new();
            for (at, view) in part.iter().enumerate() {
                if let Some(mark) = view.mark {
                    let (engine, term_s) = (Arc::clone(&self), view.state.term_s());
                    tasks.spawn(async move { (from + at, engine.remaining(mark.lease, term_s).await) });
                }
            }
            while let Some(done) = tasks.join_next().await {
                if let Ok((at, remaining)) = done {
                    all[at] = remaining;
                }
            }
        }
        all
    }
}

/// The entry of the resource that a key names.
fn entry<'a>(
    found: &'a mut BTreeMap<String, (Resource, Found)>,
    key: &KeyValue,
    root: &str,
) -> Option<&'a mut Found> {
    let resource = resource_of(&key.key, root)?;
    Some(&mut found.entry(resource.encode()).or_insert_with(|| (resource, Found::default())).1)
}

/// A resource as a page shows it. One whose grant was made or ended between the reads is told as it was last.
fn view_of(found: &Found, state: Option<&KeyValue>) -> Result<View, Error> {
    let state: State = state.map_or(Ok(State::default()), |key| decode("a resource's state", &key.value))?;
    let mark = found.mark.filter(|_| state.held.is_some());
    Ok(View {
        revision: 0,
        assumed: false,
        meta: None,
        quarantine: None,
        state,
        written: 0,
        mark,
        line: Vec::new(),
    })
}

fn waiter(key: &KeyValue, now_us: u64) -> Option<WaiterInfo> {
    let place: Place = decode("a place in the queue", &key.value).ok()?;
    Some(WaiterInfo {
        lease_id: claimant_of(&key.key)?,
        label: Label::from_lossy(&place.label),
        waited: Duration::from_micros(now_us.saturating_sub(place.joined_us)),
    })
}

//! Places in the queue, and who is woken.
//!
//! All places of a client hang on one lease of [`ENTRY_LIFE`], kept alive while there are any: they die with the client. A
//! place that is not refreshed by asking again is removed by its own client after the same time, so a claimant that was
//! forgotten inside a living client blocks nobody either.
//!
//! A follower goes with each place. It watches the place right in front; the first in line watches the mark of the grant.
//! So a change wakes one waiter, however long the queue is. Wakes are hints: a follower that has lost sight reads anew.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{LeaseId, Resource, line::ENTRY_LIFE, record::Wake, request::Claim};
use tokio::{sync::Notify, task::AbortHandle};

use super::{
    engine::Engine,
    failure::Fail,
    proto::{Compare, Event, RequestOp},
    terms::{Armed, seconds},
    view::{Seat, View},
    watches::Watch,
};
use crate::{clock, sync::lock};

/// Between two looks at the places of this client.
const ROUND: Duration = Duration::from_secs(5);
/// The lease of the places is kept alive when it is so old: a third of its life.
const BEAT_US: u64 = 15_000_000;
const LIFE_US: u64 = 45_000_000;
/// A follower that cannot read waits so long before it tries again.
const PAUSE: Duration = Duration::from_millis(250);

/// The places of one client.
#[derive(Debug, Default)]
pub(super) struct Places {
    lease: tokio::sync::Mutex<Option<Armed>>,
    seats: Mutex<HashMap<LeaseId, Seated>>,
    /// Rung when there is a place to look after.
    taken: Notify,
}

#[derive(Debug)]
struct Seated {
    resource: Resource,
    created: i64,
    refreshed_us: u64,
    follower: AbortHandle,
}

impl Places {
    /// A claim has asked again. False when its place is not followed.
    pub(super) fn refresh(&self, lease_id: LeaseId, created: i64) -> bool {
        match lock(&self.seats).get_mut(&lease_id) {
            Some(seated) if seated.created == created => {
                seated.refreshed_us = clock::boot_us();
                true
            }
            _ => false,
        }
    }

    /// A claim has no place any more, or is about to give it up.
    pub(super) fn forget(&self, lease_id: LeaseId) {
        if let Some(seated) = lock(&self.seats).remove(&lease_id) {
            seated.follower.abort();
        }
    }

    /// Forgets all. Their lease, if there is one.
    pub(super) fn clear(&self) -> Option<i64> {
        lock(&self.seats).drain().for_each(|(_, seated)| seated.follower.abort());
        self.lease.try_lock().ok()?.take().map(|armed| armed.lease)
    }

    fn stale(&self, now_us: u64) -> Vec<(LeaseId, Resource, i64)> {
        let stale = |(id, seated): (&LeaseId, &Seated)| {
            let old = now_us.saturating_sub(seated.refreshed_us) >= LIFE_US;
            old.then(|| (*id, seated.resource.clone(), seated.created))
        };
        lock(&self.seats).iter().filter_map(stale).collect()
    }

    fn is_empty(&self) -> bool {
        lock(&self.seats).is_empty()
    }
}

impl Engine {
    /// The lease for a new place.
    pub(super) async fn waiting_lease(&self) -> Result<i64, Fail> {
        let mut lease = self.places.lease.lock().await;
        let now_us = clock::boot_us();
        if let Some(armed) = *lease {
            if now_us.saturating_sub(armed.since_us) < LIFE_US / 2 {
                return Ok(armed.lease);
            }
            // Places that are there hang on this one: it is left only when it is gone, and they with it.
            match self.keepalive.send(armed.lease).await {
                Ok(beat) if beat.ttl == 0 => {}
                Ok(_) => {
                    *lease = Some(Armed { since_us: now_us, ..armed });
                    return Ok(armed.lease);
                }
                Err(_) => return Ok(armed.lease),
            }
        }
        let armed = self.grant_lease(ENTRY_LIFE.as_secs()).await?;
        *lease = Some(armed);
        Ok(armed.lease)
    }

    /// etcd does not know the lease of our places.
    pub(super) async fn lost_waiting_lease(&self, lost: i64) {
        self.places.lease.lock().await.take_if(|armed| armed.lease == lost);
    }

    /// Goes with a place from the revision of `view` on.
    pub(super) fn follow(self: &Arc<Self>, claim: &Claim, view: View) {
        let (resource, lease_id) = (&claim.resource, claim.lease_id);
        let asked_s = seconds(claim.ttl, claim.lock_delay);
        let Some(seat) = view.seat(lease_id) else { return };
        let (engine, what) = (Arc::clone(self), resource.clone());
        let task = tokio::spawn(async move { engine.following(what, lease_id, asked_s, view).await });
        let seated = Seated {
            resource: resource.clone(),
            created: seat.created,
            refreshed_us: clock::boot_us(),
            follower: task.abort_handle(),
        };
        if let Some(old) = lock(&self.places.seats).insert(lease_id, seated) {
            old.follower.abort();
        }
        self.places.taken.notify_one();
        if self.is_closed() {
            self.places.forget(lease_id);
        }
    }

    async fn following(&self, resource: Resource, lease_id: LeaseId, asked_s: u64, mut view: View) {
        // The grant after which the claim has been woken already.
        let mut woken = None;
        while let Some(at) = view.line.iter().position(|seat| seat.lease_id == lease_id) {
            let after = view.revision.cast_signed();
            match at.checked_sub(1).and_then(|front| view.line.get(front)) {
                Some(Seat { lease_id: front, .. }) => {
                    self.until(self.keys.place(&resource, *front), after, Event::is_removal).await;
                }
                None if view.quarantine.is_some() => {
                    self.until(self.keys.quarantine(), after, Event::is_removal).await;
                }
                None if view.mark.is_some() => {
                    // It is the next: its lease shall be there when it is woken.
                    Box::pin(self.expect_grant(asked_s)).await;
                    if self.until(self.keys.mark(&resource), after, Event::is_removal).await {
                        woken = Some(view.state.last_token);
                        self.mailbox.push(Wake::Lease(lease_id));
                    }
                }
                None => {
                    if woken != Some(view.state.last_token) {
                        woken = Some(view.state.last_token);
                        self.mailbox.push(Wake::Lease(lease_id));
                    }
                    self.until(self.keys.mark(&resource), after, |_| true).await;
                }
            }
            view = self.read_patiently(&resource).await;
        }
        lock(&self.places.seats).remove(&lease_id);
    }

    /// Waits for a change of a key after a revision. False when it may have been missed.
    async fn until(&self, key: String, after: i64, what: impl Fn(&Event) -> bool) -> bool {
        let mut watch: Watch = self.watches.open(key, after);
        while let Some(event) = watch.next().await {
            if what(&event) {
                return true;
            }
        }
        // The way to etcd was interrupted, or it has forgotten the revision.
        tokio::time::sleep(PAUSE).await;
        false
    }

    async fn read_patiently(&self, resource: &Resource) -> View {
        loop {
            // Boxed: there may be very many who wait.
            match Box::pin(self.read(resource)).await {
                Ok(view) => return view,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Looks after the places of a client. Ended with the client.
pub(super) async fn look_after(engine: Arc<Engine>) {
    loop {
        if engine.places.is_empty() {
            engine.places.taken.notified().await;
            continue;
        }
        engine.remove_stale_places().await;
        engine.keep_places().await;
        tokio::time::sleep(ROUND).await;
    }
}

impl Engine {
    async fn remove_stale_places(&self) {
        for (lease_id, resource, created) in self.places.stale(clock::boot_us()) {
            let key = self.keys.place(&resource, lease_id);
            let compare = vec![Compare::created(key.clone(), created)];
            // When this fails the place goes with the client.
            if self.attempt(compare, vec![RequestOp::delete(key)]).await.is_ok() {
                self.places.forget(lease_id);
            }
        }
    }

    async fn keep_places(&self) {
        let mut lease = self.places.lease.lock().await;
        let Some(armed) = *lease else { return };
        let now_us = clock::boot_us();
        if now_us.saturating_sub(armed.since_us) < BEAT_US || self.places.is_empty() {
            return;
        }
        match self.keepalive.send(armed.lease).await {
            Ok(beat) if beat.ttl == 0 => *lease = None,
            Ok(_) => *lease = Some(Armed { since_us: now_us, ..armed }),
            Err(_) => {}
        }
    }
}

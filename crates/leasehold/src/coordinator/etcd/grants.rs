//! What a client remembers of its own grants: where they hang, and what was written with them.
//!
//! It saves reading before a renewal or a release. It decides nothing: what it says is either compared by etcd in the same
//! step, or verified afterwards. (Where grants share a lease it also says whose time is over: see [`super::shared`].)

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use leasehold_core::{LeaseId, Resource, Token, request::Renewal};
use tokio::task::AbortHandle;

use super::{record::State, terms::Armed};
use crate::sync::lock;

/// One grant.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) resource: Resource,
    pub(super) token: Token,
    /// The lease that its mark hangs on.
    pub(super) armed: Armed,
    /// The revision at which mark and state were written, both in one step; 0 while that is not known to have been done.
    pub(super) written: i64,
    /// What the mark says.
    pub(super) mark: Vec<u8>,
    pub(super) state: State,
    /// True when something has happened to it.
    pub(super) doubtful: bool,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    watcher: Option<AbortHandle>,
    /// True once this client has begun to end it, because its time is over.
    ending: bool,
}

/// The grants of one client.
#[derive(Debug, Default)]
pub(super) struct Grants {
    entries: Mutex<HashMap<LeaseId, Entry>>,
}

/// What must be kept alive and compared to renew a grant.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) lease: i64,
    pub(super) term_s: u64,
    pub(super) mark: Vec<u8>,
}

impl Grants {
    /// Remembers a grant, or what is new about it. False when it is being ended: then nothing is new about it.
    pub(super) fn note(&self, lease_id: LeaseId, known: Known) -> bool {
        let mut entries = lock(&self.entries);
        match entries.get_mut(&lease_id) {
            Some(entry) if entry.ending && entry.known.armed.lease == known.armed.lease => false,
            Some(entry) => {
                let ours = entry.known.armed.ours && entry.known.armed.lease == known.armed.lease;
                entry.known = known;
                entry.known.armed.ours |= ours;
                entry.ending = false;
                true
            }
            None => {
                entries.insert(lease_id, Entry { known, watcher: None, ending: false });
                true
            }
        }
    }

    /// Remembers who watches over a grant. False when the grant is not known (any more), or is watched over already.
    pub(super) fn watched_by(&self, lease_id: LeaseId, watcher: AbortHandle) -> bool {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get_mut(&lease_id).filter(|entry| entry.watcher.is_none()) {
            entry.watcher = Some(watcher);
            return true;
        }
        watcher.abort();
        false
    }

    /// What the mark says, as far as is known.
    pub(super) fn mark(&self, lease_id: LeaseId) -> Option<Vec<u8>> {
        lock(&self.entries).get(&lease_id).map(|entry| entry.known.mark.clone())
    }

    /// How a renewal is done without reading first; `None` when the grant is not known here, its lease is too short for what is
    /// asked, or it should be over by now.
    pub(super) fn quick(&self, renewal: &Renewal, asked_s: u64, now_us: u64) -> Option<Hold> {
        let entries = lock(&self.entries);
        let Entry { known, ending, .. } = entries.get(&renewal.lease_id)?;
        let alive = now_us.saturating_sub(known.armed.since_us) < known.armed.term_s * 1_000_000;
        (known.token == renewal.token
            && known.resource == renewal.resource
            && known.written > 0
            && !known.doubtful
            && !ending
            && asked_s <= known.armed.term_s
            && alive)
            .then(|| Hold { lease: known.armed.lease, term_s: known.armed.term_s, mark: known.mark.clone() })
    }

    /// A grant was renewed by a request that left at `sent_us`. False when it is being ended: the renewal does not count.
    pub(super) fn renewed(&self, lease_id: LeaseId, sent_us: u64) -> bool {
        match lock(&self.entries).get_mut(&lease_id) {
            Some(entry) if entry.ending => false,
            Some(entry) => {
                entry.known.armed.since_us = entry.known.armed.since_us.max(sent_us);
                true
            }
            None => true,
        }
    }

    /// True while this client ends a grant.
    pub(super) fn is_ending(&self, lease_id: LeaseId) -> bool {
        lock(&self.entries).get(&lease_id).is_some_and(|entry| entry.ending)
    }

    /// The grants whose time has been over for `slack_us`, from now on being ended; and when the next one will be.
    pub(super) fn overdue(&self, now_us: u64, slack_us: u64) -> (Vec<(LeaseId, Known)>, Option<u64>) {
        let (mut over, mut next) = (Vec::new(), None::<u64>);
        for (lease_id, entry) in lock(&self.entries).iter_mut() {
            let end_us = entry.known.armed.since_us + entry.known.armed.term_s * 1_000_000 + slack_us;
            if end_us <= now_us {
                entry.ending = true;
                over.push((*lease_id, entry.known.clone()));
            } else {
                next = Some(next.map_or(end_us, |next| next.min(end_us)));
            }
        }
        (over, next)
    }

    /// Something has happened to a grant.
    pub(super) fn doubt(&self, lease_id: LeaseId) {
        if let Some(entry) = lock(&self.entries).get_mut(&lease_id) {
            entry.known.doubtful = true;
        }
    }

    /// Nobody watches over a grant any more.
    pub(super) fn unwatched(&self, lease_id: LeaseId) {
        if let Some(entry) = lock(&self.entries).get_mut(&lease_id) {
            entry.watcher = None;
        }
    }

    /// Forgets a grant, and stops watching over it.
    pub(super) fn forget(&self, lease_id: LeaseId) -> Option<Known> {
        let entry = lock(&self.entries).remove(&lease_id)?;
        if let Some(watcher) = entry.watcher {
            watcher.abort();
        }
        Some(entry.known)
    }

    /// The leases that grants hang on, as far as is known.
    pub(super) fn leases(&self) -> HashSet<i64> {
        lock(&self.entries).values().map(|entry| entry.known.armed.lease).collect()
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        for (_, entry) in lock(&self.entries).drain() {
            if let Some(watcher) = entry.watcher {
                watcher.abort();
            }
        }
    }
}

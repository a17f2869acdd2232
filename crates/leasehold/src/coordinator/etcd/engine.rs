//! What all calls of one client share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    Error, Namespace, Resource, Ttl,
    record::{Acquired, Gone, Released, Renewed, Revoked},
    slot::{Now, Slot},
};
use tokio::{sync::Semaphore, task::AbortHandle};

use super::{
    failure::Fail,
    free::Free,
    grants::Grants,
    keepalive::KeepAlive,
    keys::Keys,
    options::Options,
    proto::{Compare, RequestOp, TxnResponse},
    purge::Chore,
    recent::Recent,
    rpc::Rpc,
    terms::Terms,
    view::{self, View},
    waiting::Places,
    watches::Watches,
};
use crate::{clock, coordinator::mailbox::Mailbox, random::Jitter, sync::lock};

/// A change that fails because something else changed is decided anew at most so often (ours: far more than tasks that want
/// one resource can get in each other's way).
pub(super) const ROUNDS: usize = 200;

/// Changes of one client that are under way at once (ours: enough to fill every write to a disk; etcd refuses everybody's
/// requests when some thousands are waiting).
const CHANGES: usize = 256;

/// One client of one namespace.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) rpc: Arc<Rpc>,
    pub(super) keys: Keys,
    pub(super) namespace: Namespace,
    pub(super) place: String,
    pub(super) keepalive: KeepAlive,
    pub(super) watches: Watches,
    pub(super) terms: Terms,
    pub(super) shared_lease: bool,
    pub(super) grants: Grants,
    pub(super) places: Places,
    pub(super) free: Free,
    pub(super) mailbox: Mailbox,
    pub(super) jitter: Jitter,
    pub(super) chore: Chore,
    pub(super) recent: Recent,
    /// The namespace's longest TTL as this client was told.
    told: Mutex<Option<Ttl>>,
    tasks: Mutex<Vec<AbortHandle>>,
    closed: AtomicBool,
    /// Changes that may be under way at once.
    changes: Semaphore,
    /// The highest revision that an answer has shown.
    pub(super) reached: AtomicU64,
}

impl Engine {
    pub(super) fn new(options: &Options, rpc: Arc<Rpc>, namespace: Namespace) -> Result<Self, Error> {
        Ok(Self {
            keys: Keys::new(&options.prefix, &namespace),
            keepalive: KeepAlive::start(Arc::clone(&rpc)),
            watches: Watches::start(Arc::clone(&rpc)),
            rpc,
            namespace,
            place: options.place.clone(),
            terms: Terms::default(),
            shared_lease: options.shared_lease,
            grants: Grants::default(),
            places: Places::default(),
            free: Free::default(),
            mailbox: Mailbox::default(),
            jitter: Jitter::seeded()?,
            chore: Chore::default(),
            recent: Recent::default(),
            told: Mutex::new(options.max_ttl),
            tasks: Mutex::default(),
            closed: AtomicBool::new(false),
            changes: Semaphore::new(CHANGES),
            reached: AtomicU64::new(0),
        })
    }

    /// The clocks now.
    pub(super) fn now() -> Now {
        Now { clock_us: clock::boot_us(), unix_us: clock::unix_us() }
    }

    pub(super) fn told(&self) -> Option<Ttl> {
        *lock(&self.told)
    }

    pub(super) fn tell(&self, max_ttl: Ttl) {
        *lock(&self.told) = Some(max_ttl);
    }

    /// Keeps a task until the client is closed.
    pub(super) fn keep(&self, task: AbortHandle) {
        let mut tasks = lock(&self.tasks);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
        drop(tasks);
        if self.is_closed() {
            self.stop();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Ends what goes on in the background. The leases that would only run out.
    pub(super) fn close(&self) -> Vec<i64> {
        self.closed.store(true, Ordering::SeqCst);
        self.stop();
        let mut leases = self.terms.drain(&self.grants.leases());
        self.grants.clear();
        // Last, and so the first to go: others wait behind the places on it.
        leases.extend(self.places.clear());
        leases
    }

    fn stop(&self) {
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
    }

    pub(super) async fn read(&self, resource: &Resource) -> Result<View, Error> {
        loop {
            let before = self.reached();
            let view = view::read(&self.rpc, &self.keys, resource)
                .await
                .map_err(|error| self.here(error, resource))?;
            if !self.went_back(before, view.revision) {
                self.recent.saw(&view);
                return Ok(view);
            }
            self.announce_restore(before).await?;
        }
    }

    /// Makes a change if everything is still as compared.
    pub(super) async fn attempt(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
    ) -> Result<Option<TxnResponse>, Fail> {
        // A semaphore that is never closed always gives.
        let _turn = self.changes.acquire().await;
        let made = view::attempt(&self.rpc, compare, success).await?;
        if let Some(made) = &made {
            self.went_back(0, made.header.map_or(0, |header| header.revision.unsigned_abs()));
        }
        Ok(made)
    }

    /// An error, with where and on what.
    pub(super) fn here(&self, error: Error, resource: &Resource) -> Error {
        error.at(&self.place).on(resource)
    }

    /// The error of a request that was overtaken again and again.
    pub(super) fn overtaken(&self, resource: &Resource) -> Error {
        let error =
            Error::new(leasehold_core::Kind::Unavailable, "others changed the resource again and again")
                .advise("ask again");
        self.here(error, resource)
    }

    /// The slot as of now. How long a grant still lives is only bounded here: nothing is decided by it, and answers that tell
    /// it are [completed](Self::complete).
    pub(super) fn slot(&self, resource: &Resource, view: &View, now: Now) -> Result<Slot, Error> {
        let free_since_us = if view.mark.is_some() || view.quarantine.is_some() || view.line.is_empty() {
            self.free.over(resource);
            now.clock_us
        } else {
            self.free.seen(resource, view.state.last_token, now.clock_us)
        };
        view.slot(now, view.state.term_s() * 1_000_000, free_since_us)
            .map_err(|error| self.here(error, resource))
    }

    /// How long the grant that was seen still lives at most.
    pub(super) async fn remaining_of(&self, view: &View) -> Duration {
        match view.mark {
            Some(mark) => self.remaining(mark.lease, view.state.term_s()).await,
            None => Duration::ZERO,
        }
    }
}

/// An answer that tells how long a grant still lives.
pub(super) trait Tells {
    /// Where it says so.
    fn remaining(&mut self) -> Option<&mut Duration>;
}

impl Tells for Gone {
    fn remaining(&mut self) -> Option<&mut Duration> {
        match self {
            // Zero: it was freed at once.
            Self::Revoked { remaining, .. } if !remaining.is_zero() => Some(remaining),
            _ => None,
        }
    }
}

impl Tells for Renewed {
    fn remaining(&mut self) -> Option<&mut Duration> {
        match self {
            Self::Gone(gone) => gone.remaining(),
            _ => None,
        }
    }
}

impl Tells for Released {
    fn remaining(&mut self) -> Option<&mut Duration> {
        match self {
            Self::NotHeld(gone) => gone.remaining(),
            _ => None,
        }
    }
}

impl Tells for Revoked {
    fn remaining(&mut self) -> Option<&mut Duration> {
        match self {
            Self::Ended { record, .. } | Self::OtherToken(record) => Some(&mut record.remaining),
            _ => None,
        }
    }
}

impl Tells for Acquired {
    fn remaining(&mut self) -> Option<&mut Duration> {
        match self {
            Self::Busy(busy) => Some(&mut busy.holder.remaining),
            _ => None,
        }
    }
}

impl Engine {
    /// Puts what etcd says remains of the grant into an answer that tells it.
    pub(super) async fn complete(&self, answer: &mut impl Tells, view: &View) {
        if let Some(remaining) = answer.remaining() {
            *remaining = self.remaining_of(view).await;
        }
    }
}

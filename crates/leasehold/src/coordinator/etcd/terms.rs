//! etcd leases for grants: one for each grant, or one for all of a client (`shared_lease`).
//!
//! A lease of etcd is only a countdown that takes the keys on it along. One whose grant was released has nothing on it any
//! more; instead of being revoked it is kept for the next grant of the same length, which saves two commits out of four. It
//! hangs on one grant at a time, and one that finds no use runs out by itself.

use std::{
    collections::{HashMap, HashSet},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{Resource, Ttl};
use tokio::task::JoinSet;

use super::{
    engine::Engine,
    failure::Fail,
    keepalive::Beat,
    proto::{Done, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, TimeToLiveResponse},
    rpc::Effect,
};
use crate::{clock, sync::lock};

/// Spare leases that a client keeps (ours: as many as tasks of one program that take turns at once).
const MAX_SPARES: usize = 128;

/// A lease whose countdown begins after it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Armed {
    pub(super) lease: i64,
    /// What it was made for, seconds.
    pub(super) asked_s: u64,
    /// What etcd made of that: never less.
    pub(super) term_s: u64,
    /// When it was armed at the latest known time, µs of BOOTTIME, before the request left.
    pub(super) since_us: u64,
    /// True when this client has made it, so that nobody else uses it.
    pub(super) ours: bool,
}

type Answer = Pin<Box<dyn Future<Output = Result<Beat, Fail>> + Send>>;

/// A lease that is armed, or about to be.
pub(super) struct Arming {
    pub(super) armed: Armed,
    /// The answer to the keepalive that arms it; none for a new lease, which the whole cluster has agreed on.
    beat: Option<Answer>,
}

impl From<Armed> for Arming {
    fn from(armed: Armed) -> Self {
        Self { armed, beat: None }
    }
}

/// The leases of one client that are not known to hang on a grant, or that hang on many.
#[derive(Debug, Default)]
pub(super) struct Terms {
    spares: Mutex<Vec<Armed>>,
    /// By what they were made for. Held while one is made, so that all who come at once share it.
    shared: tokio::sync::Mutex<HashMap<u64, Armed>>,
}

/// Whole seconds that cover a TTL and a lock-delay.
pub(super) fn seconds(ttl: Ttl, lock_delay: Duration) -> u64 {
    let whole = ttl.as_duration().saturating_add(lock_delay);
    whole.as_secs() + u64::from(whole.subsec_nanos() > 0)
}

/// The TTL that a lease of so many seconds gives, after the lock-delay.
pub(super) fn given(term_s: u64, lock_delay: Duration, asked: Ttl) -> Ttl {
    let given = Duration::from_secs(term_s).saturating_sub(lock_delay);
    Ttl::new(given.min(Ttl::MAX.as_duration())).unwrap_or(asked).max(asked)
}

impl Engine {
    /// A lease for a grant of `asked_s` seconds, counting from now at the earliest.
    pub(super) async fn arm(&self, asked_s: u64) -> Result<Arming, Fail> {
        if self.shared_lease {
            return self.arm_shared(asked_s).await;
        }
        match self.terms.take_spare(asked_s) {
            Some(spare) => Ok(self.rearm(spare)),
            None => self.grant_lease(asked_s).await.map(Arming::from),
        }
    }

    async fn arm_shared(&self, asked_s: u64) -> Result<Arming, Fail> {
        let mut leases = self.terms.shared.lock().await;
        if let Some(shared) = leases.get(&asked_s).copied() {
            if shared.is_safe(clock::boot_us()) {
                return Ok(self.rearm(shared));
            }
            // It may be running out: a grant must not be hung on it before etcd has said that it lives.
            let since_us = clock::boot_us();
            if let Ok(beat) = self.keepalive.send(shared.lease).await
                && beat.ttl > 0
            {
                let armed = Armed { since_us, ..shared };
                leases.insert(asked_s, armed);
                return Ok(Arming { armed, beat: Some(Box::pin(std::future::ready(Ok(beat)))) });
            }
        }
        let armed = self.grant_lease(asked_s).await?;
        leases.insert(asked_s, armed);
        Ok(armed.into())
    }

    /// A lease is not there any more: it is shared no longer.
    pub(super) async fn lost_lease(&self, lease: i64) {
        if self.shared_lease {
            self.terms.shared.lock().await.retain(|_, shared| shared.lease != lease);
        }
    }

    /// True for the lease that grants of this client share.
    pub(super) async fn is_our_shared(&self, lease: i64) -> bool {
        self.shared_lease && self.terms.shared.lock().await.values().any(|shared| shared.lease == lease)
    }

    /// Starts a lease's countdown anew. The answer comes while the grant is made: see [`Engine::sure`].
    fn rearm(&self, lease: Armed) -> Arming {
        let armed = Armed { since_us: clock::boot_us(), ..lease };
        Arming { armed, beat: Some(Box::pin(self.keepalive.send(lease.lease))) }
    }

    /// Whether a grant that was made, in a raft term, hangs on a lease that lives. A new lease does. One from before was armed
    /// anew by a keepalive, which counts when it was answered in the same term: the leader who took it was the leader still.
    /// Else it is asked again, and verified.
    pub(super) async fn sure(
        &self,
        resource: &Resource,
        arming: Arming,
        written: i64,
        term: u64,
    ) -> Result<bool, Fail> {
        let Some(beat) = arming.beat else { return Ok(true) };
        if beat.await.is_ok_and(|beat| beat.ttl > 0 && beat.term == term) {
            return Ok(true);
        }
        let alive = self.keep_alive(resource, arming.armed.lease, written).await?;
        if !alive {
            self.lost_lease(arming.armed.lease).await;
        }
        Ok(alive)
    }

    /// Makes a lease. One that nobody learns of ends by itself.
    pub(super) async fn grant_lease(&self, asked_s: u64) -> Result<Armed, Fail> {
        let since_us = clock::boot_us();
        let question = LeaseGrantRequest { ttl: i64::try_from(asked_s).unwrap_or(i64::MAX), id: 0 };
        let answer: LeaseGrantResponse =
            self.rpc.call("/etcdserverpb.Lease/LeaseGrant", question, Effect::None).await?;
        if !answer.error.is_empty() || answer.id == 0 {
            return Err(Fail::Wrong(answer.error));
        }
        let term_s = u64::try_from(answer.ttl).unwrap_or(0);
        if term_s < asked_s {
            return Err(Fail::Wrong(format!("it gave {term_s} s instead of {asked_s}")));
        }
        Ok(Armed { lease: answer.id, asked_s, term_s, since_us, ours: true })
    }

    /// Ends a lease, and everything that hangs on it.
    pub(super) async fn revoke_lease(&self, lease: i64) -> Result<(), Fail> {
        let question = LeaseRequest { id: lease };
        let ended: Result<Done, Fail> =
            self.rpc.call("/etcdserverpb.Lease/LeaseRevoke", question, Effect::Some).await;
        match ended {
            Ok(_) | Err(Fail::NoLease) => Ok(()),
            Err(fail) => Err(fail),
        }
    }

    /// Ends many leases, the last one first.
    pub(super) async fn revoke_all(self: Arc<Self>, leases: Vec<i64>) {
        let mut tasks = JoinSet::new();
        for lease in leases.into_iter().rev() {
            let engine = Arc::clone(&self);
            tasks.spawn(async move { engine.revoke_lease(lease).await });
        }
        // One that could not be ended runs out by itself.
        while tasks.join_next().await.is_some() {}
    }

    /// How long a lease still lives at most, if nobody keeps it alive. etcd answers in whole seconds, rounded down.
    pub(super) async fn remaining(&self, lease: i64, term_s: u64) -> Duration {
        let question = LeaseRequest { id: lease };
        let answer: Result<TimeToLiveResponse, Fail> =
            self.rpc.call("/etcdserverpb.Lease/LeaseTimeToLive", question, Effect::None).await;
        match answer {
            Ok(answer) if answer.ttl < 0 => Duration::from_millis(1),
            Ok(answer) => Duration::from_secs((answer.ttl.unsigned_abs() + 1).min(term_s.max(1))),
            // What is not known is bounded by what was given.
            Err(_) => Duration::from_secs(term_s.max(1)),
        }
    }

    /// Makes a lease for a grant that is expected soon, unless one is there.
    pub(super) async fn expect_grant(&self, asked_s: u64) {
        if !self.shared_lease
            && !self.terms.has_spare(asked_s)
            && let Ok(armed) = self.grant_lease(asked_s).await
        {
            self.terms.put_spare(armed);
        }
    }

    /// A lease on which nothing hangs any more.
    pub(super) fn give_back(&self, armed: Armed) {
        if armed.ours && !self.shared_lease {
            self.terms.put_spare(armed);
        }
    }
}

impl Terms {
    fn take_spare(&self, asked_s: u64) -> Option<Armed> {
        let now_us = clock::boot_us();
        let mut spares = lock(&self.spares);
        // A keepalive of a lease that is just running out would wait for its end.
        spares.retain(|spare| spare.is_safe(now_us));
        let at = spares.iter().rposition(|spare| spare.asked_s == asked_s)?;
        Some(spares.swap_remove(at))
    }

    fn has_spare(&self, asked_s: u64) -> bool {
        lock(&self.spares).iter().any(|spare| spare.asked_s == asked_s)
    }

    fn put_spare(&self, armed: Armed) {
        let mut spares = lock(&self.spares);
        if spares.len() < MAX_SPARES {
            spares.push(armed);
        }
    }

    /// The leases that would only run out now: the spare ones, and those shared ones that no grant hangs on.
    pub(super) fn drain(&self, used: &HashSet<i64>) -> Vec<i64> {
        let mut unused: Vec<Armed> = std::mem::take(&mut *lock(&self.spares));
        if let Ok(mut shared) = self.shared.try_lock() {
            unused.extend(
                shared.drain().map(|(_, shared)| shared).filter(|shared| !used.contains(&shared.lease)),
            );
        }
        unused.into_iter().map(|armed| armed.lease).collect()
    }
}

impl Armed {
    /// True while it is certain not to run out in the next half second: etcd then still has it when what is sent now arrives.
    fn is_safe(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.since_us) < (self.term_s * 1_000_000).saturating_sub(500_000)
    }

    /// A lease that was found to hang on a grant, and armed by a request that left at `since_us`.
    pub(super) fn found(lease: i64, term_s: u64, since_us: u64) -> Self {
        Self { lease, asked_s: term_s, term_s, since_us, ours: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_promise_more_than_etcd_gave() {
        let ttl = |ms| Ttl::from_millis(ms).unwrap();
        assert_eq!(seconds(ttl(50), Duration::ZERO), 1);
        assert_eq!(seconds(ttl(2_000), Duration::ZERO), 2);
        assert_eq!(seconds(ttl(2_000), Duration::from_millis(1)), 3);
        assert_eq!(given(2, Duration::ZERO, ttl(50)), ttl(2_000));
        assert_eq!(given(5, Duration::from_millis(2_500), ttl(2_000)), ttl(2_500));
    }
}

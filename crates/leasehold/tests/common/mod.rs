//! What the library's tests share: a coordinator that can be made to fail, delay and count.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Error, Kind, Label, Leases, Namespace, Resource,
    coordinator::memory::{MemoryCoordinator, MemoryStore},
};
use leasehold_core::{
    Call, Coordinator,
    profile::Profile,
    record::{Acquired, Inspection, Page, Prepared, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Release, Renewal, Revocation},
    window::ClockRule,
};

/// What the faulty coordinator does, changed while it runs.
#[derive(Debug, Default)]
pub struct Faults {
    /// Nothing reaches the engine: Unavailable.
    pub unreachable: AtomicBool,
    /// Requests are applied and their answers never come.
    pub silent: AtomicBool,
    /// Acquires are applied and then fail with Unknown, this many times.
    pub lose_acquire_answers: AtomicUsize,
    /// Acquires are held up on their way, and nobody knows: Unknown, this many times.
    pub hold_up_acquires: AtomicUsize,
    /// Answers to acquires come this late; the acquires are applied at once.
    pub delay_acquire_answers_ms: AtomicUsize,
    /// The engine is not told which tokens the client knows, as one that lost its memory would not act on it.
    pub forget_floors: AtomicBool,
    /// Releases fail with Unavailable, this many times.
    pub refuse_releases: AtomicUsize,
    pub acquires: AtomicUsize,
    pub renewals: AtomicUsize,
    pub renew_calls: AtomicUsize,
    pub releases: AtomicUsize,
    /// The lease ids of all claims, in order.
    pub claims: Mutex<Vec<leasehold::LeaseId>>,
}

#[derive(Debug)]
pub struct Faulty {
    inner: MemoryCoordinator,
    profile: Profile,
    pub faults: Arc<Faults>,
}

fn take_one(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl Faulty {
    async fn answer<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if self.faults.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        answer
    }

    fn reach(&self) -> Result<(), Error> {
        if self.faults.unreachable.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Unavailable, "the engine is down"));
        }
        Ok(())
    }
}

impl Coordinator for Faulty {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(async move {
            self.faults.acquires.fetch_add(1, Ordering::SeqCst);
            self.faults.claims.lock().unwrap().push(claim.lease_id);
            self.reach()?;
            if take_one(&self.faults.hold_up_acquires) {
                return Err(Error::new(Kind::Unknown, "it is on its way"));
            }
            let floor = claim.floor.filter(|_| !self.faults.forget_floors.load(Ordering::SeqCst));
            let answer = self.inner.acquire(Claim { floor, ..claim }).await;
            let late = self.faults.delay_acquire_answers_ms.load(Ordering::SeqCst);
            if late > 0 {
                tokio::time::sleep(ms(late as u64)).await;
            }
            if take_one(&self.faults.lose_acquire_answers) {
                return Err(Error::new(Kind::Unknown, "the answer was lost"));
            }
            self.answer(answer).await
        })
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        Box::pin(async move {
            self.faults.renew_calls.fetch_add(1, Ordering::SeqCst);
            self.faults.renewals.fetch_add(renewals.len(), Ordering::SeqCst);
            self.reach()?;
            let answer = self.inner.renew(renewals).await;
            self.answer(answer).await
        })
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(async move {
            self.faults.releases.fetch_add(1, Ordering::SeqCst);
            self.reach()?;
            if take_one(&self.faults.refuse_releases) {
                return Err(Error::new(Kind::Unavailable, "not now"));
            }
            let answer = self.inner.release(release).await;
            self.answer(answer).await
        })
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        self.inner.revoke(revocation)
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        self.inner.inspect(resource)
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        self.inner.list(listing)
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        self.inner.prepare(preparation)
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        self.inner.next_wake()
    }
}

/// A client of `store` whose engine can be made to fail.
pub async fn faulty(store: &MemoryStore) -> (Leases, Arc<Faults>) {
    faulty_by(store, ClockRule::Boot).await
}

/// The same, whose engine is behind a network, as far as it can tell.
pub async fn distant(store: &MemoryStore) -> (Leases, Arc<Faults>) {
    faulty_by(store, ClockRule::LargestOfThree).await
}

async fn faulty_by(store: &MemoryStore, clock: ClockRule) -> (Leases, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let inner = MemoryCoordinator::new(store.clone(), Namespace::default());
    let profile = Profile { clock, ..inner.profile().clone() };
    let coordinator = Arc::new(Faulty { inner, profile, faults: faults.clone() });
    let leases =
        Leases::over(coordinator, Namespace::default(), Label::new("faulty").unwrap()).await.unwrap();
    (leases, faults)
}

/// A healthy client of `store`.
pub async fn client(store: &MemoryStore, label: &str) -> Leases {
    let coordinator = Arc::new(MemoryCoordinator::new(store.clone(), Namespace::default()));
    Leases::over(coordinator, Namespace::default(), Label::new(label).unwrap()).await.unwrap()
}

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits for a condition, generously; says what did not come.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..6_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(ms(10)).await;
    }
    panic!("{what} did not come about within a minute");
}

/// Waits until nobody holds `resource`.
pub async fn free(leases: &Leases, resource: &str) {
    let resource = Resource::new(resource).unwrap();
    eventually("a free resource", async || leases.inspect(&resource).await.unwrap().record.is_none()).await;
}

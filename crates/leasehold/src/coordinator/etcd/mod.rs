//! etcd, version 3.4 or later: one member, or a cluster.
//!
//! # How a grant lives in etcd
//!
//! etcd has compare-and-swap transactions, leases (countdowns that take their keys along) and watches. It has no clock that
//! a transaction could read and no place to run our rules. So each resource has
//!
//! - a **state** (`record`): the whole record, kept for a week after the last use;
//! - a **mark**, there while the grant of the state lives: it hangs on the grant's etcd lease, and etcd takes it away;
//! - a **line** of places (`waiting`), ordered by the revision that made them, on a lease of the waiting client.
//!
//! A request reads all of it at one revision (`view`), lets [`leasehold_core::slot`] decide, here, and writes on the condition
//! that state, mark, settings and quarantine are still what was read. Who is overtaken has changed nothing and decides anew. "The
//! grant has ended" is never judged by a clock of ours: it is "the mark is gone". State without mark means expired; whoever
//! writes next says so in the record.
//!
//! ```text
//!   acquire   read ▸ slot ▸ lease (new, or kept from an ended grant and armed anew) ▸ Txn: state, mark, −place
//!   renew     keepalive on one stream ▸ Txn that compares up to 100 marks, in the same raft term   (or move to a longer lease)
//!   release   Txn: state, −mark, on the condition that both are as we wrote them                (reads first if it does not know)
//!   revoke    Txn: state and mark say so; the mark stays on its lease      now: state, −mark
//!   wait      place ▸ watch the place in front, or as the first the mark
//! ```
//!
//! Why it is safe: a grant's lease is armed after the claim left its claimant, so the mark outlives the window. A renewal
//! counts when a keepalive was answered and a *later* linearizable read in the same raft term still shows the mark unchanged;
//! the leader who took the keepalive was the leader then. A leader who is new starts every countdown anew, which only
//! lengthens. Requests whose answer is missing are [`Kind::Unknown`](leasehold_core::Kind) unless nothing can have
//! happened (`failure`); they are never repeated here.
//!
//! Tokens: `max(last + 1, floor + 1, base + revision + 1)`. Revisions rise with every write to the cluster, so a state may be
//! forgotten and the next token is higher all the same; the base is the µs since 1970 at which the namespace was made.
//!
//! Reservations and turns need a clock that all agree on, and there is none; each client goes by its own first look (`free`).
//! That concerns fairness and never exclusion. The dates in records, and `once_per`, are by the wall clocks of the clients.

mod acquire;
mod discard;
mod engine;
mod examine;
mod failure;
mod free;
mod grants;
#[cfg(test)]
mod hostile;
mod keepalive;
mod keys;
mod label;
mod line;
mod list;
mod login;
mod member;
mod options;
mod past;
mod proto;
mod purge;
mod recent;
mod record;
mod release;
mod renew;
mod restored;
mod rpc;
mod shared;
mod space;
mod terms;
mod view;
mod waiting;
mod watches;

pub(crate) use self::label::deployments;
use std::{fmt, future::Future, pin::Pin, sync::Arc};

use leasehold_core::{
    Call, Coordinator, Error, Kind, Namespace, Resource,
    profile::Profile,
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
};
use tokio::{runtime::Handle, task::JoinHandle};

pub(crate) use discard::discard;
use engine::Engine;
pub use examine::examine;
pub use options::Options;
use rpc::Rpc;

/// A client of one namespace on an etcd cluster.
struct EtcdCoordinator {
    engine: Arc<Engine>,
    profile: Profile,
    runtime: Handle,
}

/// Connects. Called on a runtime with I/O and timers that lives as long as the coordinator.
///
/// # Errors
/// [`Kind::Unavailable`] when no member can be reached, [`Kind::Denied`] when the login is refused, [`Kind::Invalid`] when this
/// client and the namespace disagree about the longest TTL.
pub async fn connect(options: Options, namespace: Namespace) -> Result<Arc<dyn Coordinator>, Error> {
    let limit = options.connect_timeout;
    let connecting = async {
        let rpc = Arc::new(Rpc::new(&options)?);
        let engine = Engine::new(&options, Arc::clone(&rpc), namespace)?;
        let space = engine.space().await?;
        let max_ttl = match space.meta {
            Some((meta, _)) => meta.max_ttl()?,
            None => engine.first_max_ttl(),
        };
        engine.agree(max_ttl)?;
        let profile = label::profile(&options, max_ttl, &label::look(&rpc).await);
        Ok((Arc::new(engine), profile))
    };
    let connected = tokio::time::timeout(limit, connecting).await;
    let (engine, profile) = connected.unwrap_or_else(|_| {
        Err(Error::new(Kind::Unavailable, format!("no connection within {limit:?}"))
            .at(&options.place)
            .advise("see whether etcd runs, has a leader, and the address is right"))
    })?;
    let looks_after = tokio::spawn(waiting::look_after(Arc::clone(&engine)));
    engine.keep(looks_after.abort_handle());
    if engine.shared_lease {
        engine.keep(tokio::spawn(shared::end_overdue(Arc::clone(&engine))).abort_handle());
    }
    Ok(Arc::new(EtcdCoordinator { engine, profile, runtime: Handle::current() }))
}

/// Forgets idle resources of a namespace once, as of `now_us`. What clients do now and then by themselves, for tests of it.
///
/// # Errors
/// As [`connect`].
#[doc(hidden)]
pub async fn purge(options: Options, namespace: Namespace, now_us: u64) -> Result<usize, Error> {
    let rpc = Arc::new(Rpc::new(&options)?);
    Engine::new(&options, rpc, namespace)?.purge_some(None, now_us).await.map(|purged| purged.idle.len())
}

/// The same by one of many clients, who take turns: `None` when it is not time.
///
/// # Errors
/// As [`connect`].
#[doc(hidden)]
pub async fn purge_in_turn(
    options: Options,
    namespace: Namespace,
    now_us: u64,
) -> Result<Option<usize>, Error> {
    let rpc = Arc::new(Rpc::new(&options)?);
    Engine::new(&options, rpc, namespace)?.purge_in_turn(now_us).await
}

impl fmt::Debug for EtcdCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdCoordinator").field("place", &self.profile.place).finish_non_exhaustive()
    }
}

impl Drop for EtcdCoordinator {
    fn drop(&mut self) {
        let leases = self.engine.close();
        if !leases.is_empty() {
            let engine = Arc::clone(&self.engine);
            self.runtime.spawn(engine.revoke_all(leases));
        }
    }
}

/// Ends a task when nobody waits for it any more.
struct Cut<T>(JoinHandle<T>);

impl<T> Drop for Cut<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl EtcdCoordinator {
    /// Runs a call on the coordinator's own runtime, whoever polls it. Dropping the call ends it there.
    fn call<T, F, W>(&self, work: W) -> Call<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
        W: FnOnce(Arc<Engine>) -> F + Send + 'static,
    {
        Box::pin(async move {
            let mut task = Cut(self.runtime.spawn(work(Arc::clone(&self.engine))));
            match (&mut task.0).await {
                Ok(answer) => answer,
                Err(_) => {
                    Err(Error::new(Kind::Unknown, "the client's own thread ended").at(&self.profile.place))
                }
            }
        })
    }
}

impl Coordinator for EtcdCoordinator {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        self.call(|engine| engine.acquire(claim))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        self.call(move |engine| async move { Ok(engine.renew(renewals).await) })
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        self.call(|engine| engine.release(release))
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        self.call(|engine| engine.revoke(revocation))
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        self.call(|engine| engine.inspect(resource))
    }

    fn history(&self, resource: Resource) -> Call<'_, Vec<Past>> {
        self.call(|engine| engine.history(resource))
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        self.call(|engine| engine.list(listing))
    }

    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        self.call(|engine| engine.purge(purge))
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        self.call(move |engine| async move { engine.prepare(preparation).await })
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(self.engine.mailbox.next())
    }

    fn farewell(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let leases = self.engine.close();
        let engine = Arc::clone(&self.engine);
        Box::pin(async move {
            let mut task = Cut(self.runtime.spawn(engine.revoke_all(leases)));
            // What it did not come to runs out by itself.
            let _ = (&mut task.0).await;
        })
    }
}

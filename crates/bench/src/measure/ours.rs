//! Ourselves, through the library, as its users use it.

use std::{sync::Arc, time::Duration};

use leasehold::{Ended, Lease, Leases, Namespace, blocking, core::request::Preparation};
use leasehold_testkit::clock::boot_ns;

use super::{
    hand_over::{Turn, hand_overs},
    pairs::Pair,
    redis::Requests,
    who,
};
use crate::task::{Answer, Failure, Task, failed, figure, number};

/// Nothing but measurements happens in it.
const NAMESPACE: &str = "bench";
const TTL: Duration = Duration::from_secs(30);
/// Longer than any line that is measured.
const PATIENCE: Duration = Duration::from_secs(300);
/// So many of the waiters have a client, with connections and a thread, of their own; those beyond share these.
const CLIENTS: usize = 50;

/// The address, with what a variant of ours sets.
fn url(task: &Task) -> String {
    let shared = if task.who == who::OURS_SHARED { "?shared_lease=true" } else { "" };
    format!("{}{shared}", task.url)
}

/// A client in a namespace that grants at once.
pub(super) async fn connect(task: &Task) -> Result<Leases, Failure> {
    let leases = Leases::builder(&url(task)).namespace(Namespace::new(NAMESPACE)?).connect().await?;
    // Refused where the namespace is there already, as it is for all but the first; nodes that are still unknown to the
    // client make it ask again.
    for _ in 0..100 {
        match leases.prepare(Preparation { fresh: true, max_ttl: None }).await {
            Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => break,
        }
    }
    Ok(leases)
}

/// The same for callers that may block.
pub(super) fn connect_blocking(task: &Task) -> Result<blocking::Leases, Failure> {
    let builder = Leases::builder(&task.url).namespace(Namespace::new(NAMESPACE)?);
    Ok(blocking::Leases::connect_with(builder)?)
}

/// What was lost while it was measured makes the figure worthless.
pub(super) fn whole(ended: Ended) -> Result<(), Failure> {
    match ended {
        Ended::Released => Ok(()),
        Ended::Lost(loss) => failed(format!("a lease was lost while it was measured: {loss}")),
    }
}

/// Acquires, and waits as long as it takes.
pub(super) async fn take(leases: &Leases, name: &str) -> Result<Lease, Failure> {
    Ok(leases.lease(name).ttl(TTL).wait(PATIENCE).acquire().await?)
}

/// One client, whatever the number of tasks.
pub(super) struct Ours(Leases);

impl Ours {
    pub(super) async fn connect(task: &Task) -> Result<Self, Failure> {
        Ok(Self(connect(task).await?))
    }
}

impl Pair for Ours {
    async fn pair(&self, at: usize) -> Result<(), Failure> {
        let lease = self.0.lease(&format!("orders/{at}")).ttl(TTL).acquire().await?;
        whole(lease.release().await?)
    }
}

struct Waiter {
    leases: Leases,
    name: Arc<str>,
    held: Option<Lease>,
    requests: Option<Requests>,
}

impl Turn for Waiter {
    async fn take(&mut self) -> Result<(), Failure> {
        self.held = Some(take(&self.leases, &self.name).await?);
        Ok(())
    }

    async fn give(&mut self) -> Result<(), Failure> {
        match self.held.take() {
            Some(lease) => whole(lease.release().await?),
            None => failed("a holder had nothing"),
        }
    }

    async fn asked(&mut self) -> Option<f64> {
        self.requests.as_mut()?.until_now().await
    }
}

pub(super) async fn hand_over(task: &Task) -> Result<Answer, Failure> {
    let name = Arc::<str>::from(format!("handed-over/{}", task.size));
    let mut clients = Vec::new();
    for _ in 0..task.tasks().min(CLIENTS) {
        clients.push(connect(task).await?);
    }
    let requests = if task.engine == "redis" { Some(Requests::connect(task).await?) } else { None };
    let waiter = |at: usize| Waiter {
        leases: clients[at % clients.len()].clone(),
        name: Arc::clone(&name),
        held: None,
        requests: requests.clone(),
    };
    // One of them holds, so that so many wait.
    hand_overs((0..=task.tasks()).map(waiter).collect(), task).await
}

/// How long a holder's own check takes.
pub(super) fn check() -> Result<Answer, Failure> {
    const CALLS: u32 = 1_000_000;
    let leases = blocking::Leases::connect("memory:bench")?;
    let lease = leases.lease("r", |lease| lease).acquire()?;
    let begun = boot_ns();
    for _ in 0..CALLS {
        std::hint::black_box(&lease).check()?;
    }
    let each = number(boot_ns().saturating_sub(begun)) / f64::from(CALLS);
    whole(lease.release()?)?;
    Ok(Answer::from([(figure::NANOSECONDS.to_owned(), each)]))
}

//! Clause 9, the wakes: one for the first in line, and nobody else is disturbed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{Coordinator, LeaseId, record::Wake, request::Claim};
use tokio::task::JoinHandle;

use super::super::{
    Context, Failure, Verdict,
    context::{GLANCE, PATIENCE},
    failure::{ensure, ensure_eq},
    shape::{Expect as _, Shape as _},
};
use crate::{clock::Stopwatch, lock};

/// For how long nobody else must be woken: many times what a wake takes.
const QUIET: Duration = Duration::from_millis(250);

/// A waiter and everything it was woken for.
pub(super) struct Sleeper {
    pub(super) client: Arc<dyn Coordinator>,
    pub(super) claim: Claim,
    woken: Arc<Mutex<Vec<Wake>>>,
    task: JoinHandle<()>,
}

impl Sleeper {
    pub(super) fn new(client: Arc<dyn Coordinator>, claim: Claim) -> Self {
        let woken: Arc<Mutex<Vec<Wake>>> = Arc::default();
        let (listener, list) = (Arc::clone(&client), Arc::clone(&woken));
        let task = tokio::spawn(async move {
            loop {
                let wake = listener.next_wake().await;
                lock(&list).push(wake);
            }
        });
        Self { client, claim, woken, task }
    }

    /// How often it was woken for itself.
    pub(super) fn wakes(&self) -> usize {
        lock(&self.woken).iter().filter(|wake| **wake == Wake::Lease(self.claim.lease_id)).count()
    }

    /// What else woke it.
    fn strays(&self) -> Vec<LeaseId> {
        let other = |wake: &Wake| match wake {
            Wake::Lease(lease_id) if *lease_id != self.claim.lease_id => Some(*lease_id),
            _ => None,
        };
        lock(&self.woken).iter().filter_map(other).collect()
    }

    pub(super) async fn until_woken(&self, times: usize, whom: &str) -> Verdict {
        let since = Stopwatch::start();
        while self.wakes() < times {
            ensure!(since.elapsed() < PATIENCE, "{whom} was not woken within {PATIENCE:?}");
            tokio::time::sleep(GLANCE).await;
        }
        Ok(())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn sleepers(context: &Context, waiters: usize, claim: &Claim) -> Result<Vec<Sleeper>, Failure> {
    let mut sleepers = Vec::new();
    for _ in 0..waiters {
        let client = context.client().await?;
        let claim = claim.again().queueing();
        client.busy(&claim).await?;
        sleepers.push(Sleeper::new(client, claim));
    }
    // Whatever woke them while they came is not what this is about.
    tokio::time::sleep(GLANCE).await;
    for sleeper in &sleepers {
        lock(&sleeper.woken).clear();
    }
    Ok(sleepers)
}

/// An engine without wakes sends none; asking again is all there is.
async fn silent(context: &Context) -> Verdict {
    let holder = context.main().take(&context.claim("silent")?).await?;
    let sleepers = sleepers(context, 2, &holder.claim).await?;
    context.main().end(holder.release()).await?;
    tokio::time::sleep(QUIET).await;
    let woken: usize = sleepers.iter().map(|sleeper| lock(&sleeper.woken).len()).sum();
    ensure_eq!(woken, 0, "an engine that says it has no wakes sends none");
    context.until_granted(&*sleepers[0].client, &sleepers[0].claim).await?;
    Ok(())
}

/// Where waiters have no order, a resource that becomes free wakes some of them and not all; whoever asks first gets it.
async fn some(context: &Context, now: bool) -> Verdict {
    let holder = context.main().take(&context.claim("unordered")?).await?;
    let sleepers = sleepers(context, 6, &holder.claim).await?;
    if now {
        context.main().revoked(holder.revocation_now()).await?;
    } else {
        context.main().end(holder.release()).await?;
    }
    let since = Stopwatch::start();
    while sleepers.iter().all(|sleeper| sleeper.wakes() == 0) {
        ensure!(since.elapsed() < PATIENCE, "no waiter was woken within {PATIENCE:?}");
        tokio::time::sleep(GLANCE).await;
    }
    tokio::time::sleep(QUIET).await;
    let woken = sleepers.iter().filter(|sleeper| sleeper.wakes() > 0).count();
    ensure!(woken <= sleepers.len() / 2, "{woken} of {} waiters were woken at once", sleepers.len());
    let strays: Vec<LeaseId> = sleepers.iter().flat_map(Sleeper::strays).collect();
    ensure!(strays.is_empty(), "a wake goes to the client that waits for it: others got {strays:?}");
    context.until_granted(&*sleepers[0].client, &sleepers[0].claim).await?;
    Ok(())
}

fn has_wakes(context: &Context) -> bool {
    context.can().wakes && context.is_fifo()
}

/// What an engine is held to that has no order, or no wakes.
async fn otherwise(context: &Context, now: bool) -> Verdict {
    if context.can().wakes { some(context, now).await } else { silent(context).await }
}

async fn only_the_first(sleepers: &[Sleeper]) -> Verdict {
    sleepers[0].until_woken(1, "the first in line").await?;
    tokio::time::sleep(QUIET).await;
    let wakes: Vec<usize> = sleepers.iter().map(Sleeper::wakes).collect();
    ensure!(
        wakes[1..].iter().all(|&wakes| wakes == 0),
        "only the first in line is woken: wakes per place {wakes:?}"
    );
    let strays: Vec<LeaseId> = sleepers.iter().flat_map(Sleeper::strays).collect();
    ensure!(strays.is_empty(), "a wake goes to the client that waits for it: others got {strays:?}");
    Ok(())
}

pub(super) async fn clause_09_a_release_wakes_the_first_alone(context: Context) -> Verdict {
    if !has_wakes(&context) {
        return otherwise(&context, false).await;
    }
    let holder = context.main().take(&context.claim("r")?).await?;
    let mut sleepers = sleepers(&context, 5, &holder.claim).await?;
    let mut holder = Some((Arc::clone(context.main()), holder));
    while let Some((client, taken)) = holder.take() {
        client.end(taken.release()).await?;
        if sleepers.is_empty() {
            break;
        }
        only_the_first(&sleepers).await?;
        let first = sleepers.remove(0);
        // The quiet above may have outlasted the reservation; the first is still the first.
        let taken =
            first.client.take(&first.claim).await.map_err(|failure| failure.while_("the woken one asks"))?;
        holder = Some((Arc::clone(&first.client), taken));
    }
    Ok(())
}

pub(super) async fn clause_09_a_revocation_now_wakes_the_first(context: Context) -> Verdict {
    if !has_wakes(&context) {
        return otherwise(&context, true).await;
    }
    let holder = context.main().take(&context.claim("r")?).await?;
    let sleepers = sleepers(&context, 3, &holder.claim).await?;
    context.main().revoked(holder.revocation_now()).await?;
    only_the_first(&sleepers).await?;
    sleepers[0].client.take(&sleepers[0].claim).await?;
    Ok(())
}

/// The first in line gives up when it was woken: the next must not sleep until its next look.
pub(super) async fn clause_09_who_leaves_wakes_the_next(context: Context) -> Verdict {
    if !has_wakes(&context) {
        return otherwise(&context, false).await;
    }
    let holder = context.main().take(&context.claim("r")?).await?;
    let sleepers = sleepers(&context, 3, &holder.claim).await?;
    context.main().end(holder.release()).await?;
    sleepers[0].until_woken(1, "the first in line").await?;
    sleepers[0].client.leave(&sleepers[0].claim).await?;
    only_the_first(&sleepers[1..]).await?;
    sleepers[1].client.take(&sleepers[1].claim).await?;
    Ok(())
}

/// Ten machines wait to do the nightly job. One does it; the others are told so one after the other, at once.
pub(super) async fn clause_09_who_has_nothing_to_do_wakes_the_next(context: Context) -> Verdict {
    if !has_wakes(&context) || !context.can().once_per {
        return otherwise(&context, false).await;
    }
    let claim = context.claim("nightly")?.once_per(Duration::from_secs(3_600));
    let holder = context.main().take(&claim).await?;
    let mut sleepers = sleepers(&context, 3, &claim).await?;
    let plain = context.claim("nightly")?.queueing();
    let client = context.client().await?;
    client.busy(&plain).await?;
    sleepers.push(Sleeper::new(client, plain));
    context.main().end(holder.success()).await?;
    for sleeper in &sleepers[..3] {
        sleeper.until_woken(1, "the next in line").await?;
        let answer = sleeper.client.acquire(sleeper.claim.clone()).await?;
        let done = matches!(answer, leasehold_core::record::Acquired::AlreadyDone { .. });
        ensure!(done, "the job was done just now: got {answer:?}");
    }
    sleepers[3].until_woken(1, "the one behind those who have nothing to do").await?;
    sleepers[3].client.take(&sleepers[3].claim).await?;
    Ok(())
}

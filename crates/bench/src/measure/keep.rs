//! What it costs to keep leases, and to wait: processor time and memory while nobody asks for anything.

use std::time::Duration;

use leasehold::{Ended, Lease, Leases};
use leasehold_testkit::clock::boot_ns;
use tokio::task::JoinSet;

use super::{
    ours, postgres, redis,
    usage::{own_seconds, processor_seconds, resident},
};
use crate::task::{Answer, Failure, Task, count, figure, number};

/// So many leases are acquired and released at a time.
const AT_ONCE: usize = 256;
/// With a TTL of 30 s each lease is renewed every 10 s: after so long each had its turn once.
const ROUND: Duration = Duration::from_secs(10);
/// After it nothing of the acquiring goes on.
const SETTLED: Duration = Duration::from_secs(1);
const WAITERS_SETTLE: Duration = Duration::from_secs(3);

/// `size` leases of one client, for one round of renewals.
pub(super) async fn keep(task: &Task) -> Result<Answer, Failure> {
    let leases = ours::connect(task).await?;
    let (memory, engine_memory) = (resident(), engine_bytes(task).await);
    let held = acquire(&leases, task.tasks()).await?;
    tokio::time::sleep(SETTLED).await;
    let own_bytes = (resident() - memory).max(0.0) / count(held.len());
    let engine_bytes = engine_bytes(task).await.zip(engine_memory);
    let hot = postgres::updates(task).await;
    let mut answer = shares(task, ROUND).await;
    answer.insert(figure::CLIENT_BYTES.to_owned(), own_bytes);
    if let Some((after, before)) = engine_bytes {
        answer.insert(figure::ENGINE_BYTES.to_owned(), (after - before).max(0.0) / count(held.len()));
    }
    if let Some((before, after)) = hot.zip(postgres::updates(task).await) {
        answer.insert(figure::HOT.to_owned(), before.hot_percent_until(after));
        answer.insert(figure::ENGINE_BYTES.to_owned(), postgres::row_bytes(task).await?);
    }
    answer.insert(figure::LOST.to_owned(), count(release(held).await?));
    Ok(answer)
}

/// One holder and `size` waiters, of one client.
pub(super) async fn rest(task: &Task) -> Result<Answer, Failure> {
    let leases = ours::connect(task).await?;
    let held = ours::take(&leases, "resting").await?;
    let mut waiting = JoinSet::new();
    for _ in 0..task.tasks() {
        let leases = leases.clone();
        waiting.spawn(async move { ours::take(&leases, "resting").await });
    }
    tokio::time::sleep(WAITERS_SETTLE).await;
    let answer = shares(task, task.span().max(ROUND)).await;
    waiting.shutdown().await;
    ours::whole(held.release().await?)?;
    Ok(answer)
}

/// Shares of one core, of this process and of the engine's, in percent.
async fn shares(task: &Task, span: Duration) -> Answer {
    let (own, engine, since) = (own_seconds(), processor_seconds(&task.pids), boot_ns());
    tokio::time::sleep(span).await;
    let took = number(boot_ns().saturating_sub(since)) / 1e9;
    let share = |used: f64| 100.0 * used / took;
    let mut answer = Answer::from([(figure::CLIENT.to_owned(), share(own_seconds() - own))]);
    if !task.pids.is_empty() {
        answer.insert(figure::ENGINE.to_owned(), share(processor_seconds(&task.pids) - engine));
    }
    answer
}

async fn acquire(leases: &Leases, size: usize) -> Result<Vec<Lease>, Failure> {
    let mut held = Vec::with_capacity(size);
    for first in (0..size).step_by(AT_ONCE) {
        let mut running = JoinSet::new();
        for at in first..size.min(first + AT_ONCE) {
            let leases = leases.clone();
            running.spawn(async move { ours::take(&leases, &format!("kept/{at}")).await });
        }
        while let Some(lease) = running.join_next().await {
            held.push(lease??);
        }
    }
    Ok(held)
}

/// Gives all back. How many had been lost.
async fn release(mut held: Vec<Lease>) -> Result<usize, Failure> {
    let mut lost = 0;
    while !held.is_empty() {
        let mut running = JoinSet::new();
        for lease in held.split_off(held.len().saturating_sub(AT_ONCE)) {
            running.spawn(lease.release());
        }
        while let Some(ended) = running.join_next().await {
            lost += usize::from(matches!(ended??, Ended::Lost(_)));
        }
    }
    Ok(lost)
}

/// What the engine says that it occupies.
async fn engine_bytes(task: &Task) -> Option<f64> {
    if task.engine != "redis" {
        return None;
    }
    redis::memory(task).await.ok()
}

//! How many pairs of one acquire and one release so many tasks do in a second.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_testkit::clock::boot_ns;
use tokio::task::JoinSet;

use crate::task::{Answer, Failure, Task, figure, number};

/// Connections, scripts and caches are warm by then (ours: a few thousand round trips on loopback).
const WARM: Duration = Duration::from_millis(250);

/// One acquire and one release of a resource that nobody else wants.
pub(super) trait Pair: Send + Sync + 'static {
    /// For the task of this number.
    fn pair(&self, at: usize) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Pairs a second. What ends within the span counts, so that a pair cut off at one end makes up for one at the other.
pub(super) async fn rate<P: Pair>(pair: P, task: &Task) -> Result<Answer, Failure> {
    let (pair, done) = (Arc::new(pair), Arc::new(AtomicU64::new(0)));
    let from = boot_ns().saturating_add(nanos(WARM));
    let until = from.saturating_add(nanos(task.span()));
    let mut running = JoinSet::new();
    for at in 0..task.tasks() {
        let (pair, done) = (Arc::clone(&pair), Arc::clone(&done));
        running.spawn(async move {
            let mut now = boot_ns();
            while now < until {
                pair.pair(at).await?;
                now = boot_ns();
                if (from..until).contains(&now) {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let rate = number(done.load(Ordering::Relaxed)) / task.span().as_secs_f64();
    Ok(Answer::from([(figure::RATE.to_owned(), rate)]))
}

/// The same by one thread that blocks.
pub(super) fn rate_blocking(
    task: &Task,
    mut pair: impl FnMut() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let from = boot_ns().saturating_add(nanos(WARM));
    let until = from.saturating_add(nanos(task.span()));
    let (mut now, mut done) = (boot_ns(), 0);
    while now < until {
        pair()?;
        now = boot_ns();
        done += u64::from((from..until).contains(&now));
    }
    Ok(number(done) / task.span().as_secs_f64())
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

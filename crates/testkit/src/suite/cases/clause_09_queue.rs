//! Clause 9, the order: who gets a resource that becomes free.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Coordinator, line::RESERVATION, record::Acquired, request::Claim};

use super::super::{
    Context, Failure, Verdict,
    context::{GLANCE, PATIENCE},
    failure::{ensure, ensure_eq},
    shape::{Expect as _, Shape as _, Taken},
};
use crate::{
    check::{Event, Fairness, History, What},
    clock::{Stopwatch, boot_ns},
    random,
};

/// Without an order, whoever asks first gets it.
async fn unordered(context: &Context) -> Verdict {
    let holder = context.main().take(&context.claim("unordered")?).await?;
    context.main().busy(&context.claim("unordered")?.queueing()).await?;
    context.main().end(holder.release()).await?;
    context.main().take(&context.claim("unordered")?).await?;
    Ok(())
}

/// A held resource and waiters in order, on clients of their own.
struct Scene {
    holder: Taken,
    waiters: Vec<(Arc<dyn Coordinator>, Claim)>,
}

async fn scene(context: &Context, waiters: usize, holder: Option<Claim>) -> Result<Scene, Failure> {
    let claim = match holder {
        Some(claim) => claim,
        None => context.claim(&random::lease_id().to_string())?,
    };
    let holder = context.main().take(&claim).await?;
    let mut scene = Scene { holder, waiters: Vec::new() };
    for _ in 0..waiters {
        let client = context.client().await?;
        let waiter = Claim { queue: true, ttl: context.long(), ..claim.again() };
        // A short grant may be over already; the place is left all the same.
        let answer = client.acquire(waiter.clone()).await?;
        if matches!(answer, Acquired::Granted(_)) {
            return Err(Failure::too_slow("the grant was over before the waiters had come"));
        }
        scene.waiters.push((client, waiter));
    }
    Ok(scene)
}

pub(super) async fn clause_09_waiters_are_served_in_order(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    let whole = async |context: Context| {
        let mut scene = scene(&context, 4, None).await?;
        while !scene.waiters.is_empty() {
            let freed = Stopwatch::start();
            context.main().end(scene.holder.release()).await?;
            for (client, claim) in scene.waiters.iter().skip(1).rev() {
                let answer = client.acquire(claim.clone()).await?;
                if !matches!(answer, Acquired::Queued(_)) {
                    context.within(RESERVATION, freed)?;
                    ensure!(false, "a waiter passed the first in line: got {answer:?}");
                }
            }
            let (client, claim) = scene.waiters.remove(0);
            scene.holder =
                client.take(&claim).await.map_err(|failure| failure.while_("the first in line asks"))?;
            for (expected, (client, claim)) in (0..).zip(&scene.waiters) {
                ensure_eq!(client.busy(claim).await?.position, Some(expected), "the others move up");
            }
        }
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn clause_09_the_first_is_served_after_an_expiry(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    let whole = async |context: Context| {
        let short = context.claim(&random::lease_id().to_string())?.for_(context.short());
        let begin = Stopwatch::start();
        let scene = scene(&context, 2, Some(short)).await?;
        let limit = scene.holder.grant.ttl.as_duration() + RESERVATION;
        let ((first, first_claim), (second, second_claim)) = (&scene.waiters[0], &scene.waiters[1]);
        // The second asks until the grant is over, so it is the one who finds that out; and still it comes second.
        loop {
            match second.acquire(second_claim.clone()).await? {
                Acquired::Busy(_) => tokio::time::sleep(GLANCE).await,
                Acquired::Queued(_) => break,
                other => {
                    context.within(limit, begin)?;
                    return Err(Failure::new(format!("the second in line came first: got {other:?}")));
                }
            }
            ensure!(begin.elapsed() < limit + PATIENCE, "the grant did not end");
        }
        first.take(first_claim).await.map_err(|failure| failure.while_("the first in line asks"))?;
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn clause_09_try_once_passes_no_waiter(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    let scene = scene(&context, 1, None).await?;
    context.main().end(scene.holder.release()).await?;
    let freed = Stopwatch::start();
    let once = scene.holder.claim.again();
    // Not inside the reservation, and not after it either: the waiter is alive.
    while freed.elapsed() < RESERVATION * 2 {
        let queued =
            context.main().queued(&once).await.map_err(|failure| failure.while_("a try-once claim"))?;
        ensure_eq!((queued.ahead, queued.position), (1, None), "one waits in front");
        tokio::time::sleep(GLANCE * 4).await;
    }
    let (client, claim) = &scene.waiters[0];
    client.take(claim).await?;
    Ok(())
}

pub(super) async fn clause_09_a_freed_resource_is_reserved_for_the_first(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    let scene = scene(&context, 1, None).await?;
    let freed = Stopwatch::start();
    context.main().end(scene.holder.release()).await?;
    // A newcomer queues up behind, however often it asks.
    let newcomer = scene.holder.claim.again().queueing();
    context.until_granted(&**context.main(), &newcomer).await?;
    let after = freed.elapsed();
    ensure!(
        after >= RESERVATION * 99 / 100,
        "a newcomer got what was reserved for the first in line, after {after:?}"
    );
    Ok(())
}

pub(super) async fn clause_09_a_silent_waiter_blocks_only_for_the_reservation(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    // The first two never ask again; their clients live on.
    let scene = scene(&context, 3, None).await?;
    context.main().end(scene.holder.release()).await?;
    let (client, claim) = &scene.waiters[2];
    let patient = Stopwatch::start();
    context.until_granted(&**client, claim).await.map_err(|failure| failure.while_("the third in line"))?;
    ensure!(
        patient.elapsed() < RESERVATION * 20,
        "two silent waiters blocked the third for {:?}",
        patient.elapsed()
    );
    Ok(())
}

pub(super) async fn clause_09_a_dead_waiter_blocks_only_for_the_reservation(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    let mut scene = scene(&context, 2, None).await?;
    scene.waiters.remove(0); // its client goes, its place may stay
    context.main().end(scene.holder.release()).await?;
    let (client, claim) = &scene.waiters[0];
    let patient = Stopwatch::start();
    context
        .until_granted(&**client, claim)
        .await
        .map_err(|failure| failure.while_("the waiter behind a dead one"))?;
    ensure!(
        patient.elapsed() < RESERVATION * 20,
        "a dead waiter blocked the next for {:?}",
        patient.elapsed()
    );
    Ok(())
}

const WORKERS: u64 = 6;
const GRANTS: u64 = 60;

/// Six want the same thing all the time. In order, each gets a sixth; without one, each gets something.
pub(super) async fn clause_09_nobody_starves(context: Context) -> Verdict {
    let granted = Arc::new(AtomicU64::new(0));
    // All are connected before anybody begins: a share is fair among those who are there.
    let mut clients = Vec::new();
    for _ in 0..WORKERS {
        clients.push(context.client().await?);
    }
    let mut tasks = Vec::new();
    for (worker, client) in clients.into_iter().enumerate() {
        let claim = context.claim("r")?.queueing();
        tasks.push(tokio::spawn(hungry(format!("worker-{worker}"), client, claim, Arc::clone(&granted))));
    }
    let mut events = Vec::new();
    for task in tasks {
        events.extend(task.await.map_err(|error| Failure::new(error.to_string()))??);
    }
    let least_share = if context.is_fifo() { GRANTS / WORKERS / 2 } else { 1 };
    let report = History::new(events).judge_with(&Fairness { longest_wait: Some(PATIENCE), least_share });
    ensure!(report.is_clean(), "somebody starved: {report}");
    Ok(())
}

/// Takes it, lets it go and wants it again, until all together have had it often enough.
async fn hungry(
    name: String,
    client: Arc<dyn Coordinator>,
    claim: Claim,
    granted: Arc<AtomicU64>,
) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    while granted.load(Ordering::SeqCst) < GRANTS {
        let claim = claim.again();
        let since = Stopwatch::start();
        let mut note = |what| events.push(Event::now(&name, claim.resource.as_str(), claim.lease_id, what));
        note(What::Attempt);
        let grant = loop {
            if let Acquired::Granted(grant) = client.acquire(claim.clone()).await? {
                break Some(grant);
            }
            if granted.load(Ordering::SeqCst) >= GRANTS {
                break None;
            }
            ensure!(since.elapsed() < PATIENCE, "{name} was not served within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let Some(grant) = grant else {
            note(What::GaveUp);
            break;
        };
        granted.fetch_add(1, Ordering::SeqCst);
        let (token, open_ns) = (grant.token, boot_ns());
        let close_ns = open_ns + 10_000_000_000;
        note(What::Granted { token, sent_ns: None, open_ns, close_ns, ttl_ms: None });
        tokio::time::sleep(Duration::from_millis(1)).await;
        note(What::Released { token });
        client.end(Taken { claim: claim.clone(), grant }.release()).await?;
    }
    Ok(events)
}

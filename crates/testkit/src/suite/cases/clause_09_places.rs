//! Clause 9, the places in the queue: who has one, which, and for how long.

use std::time::Duration;

use leasehold_core::{
    line::{ENTRY_LIFE, RECHECK_FRONT},
    record::{Acquired, Released},
};

use super::super::{
    Context, Hook, Verdict,
    failure::{ensure, ensure_eq},
    shape::{Expect as _, Shape as _, take_back},
};

/// Where there is no order there are no places.
async fn unordered(context: &Context) -> Verdict {
    context.main().take(&context.claim("unordered")?).await?;
    let waiter = context.claim("unordered")?.queueing();
    ensure_eq!(context.main().busy(&waiter).await?.position, None, "an unordered engine gives no places");
    let left = context.main().release(take_back(&waiter)).await?;
    ensure!(matches!(left, Released::NotHeld(_)), "there was no place to give up: got {left:?}");
    ensure_eq!(context.main().look(&waiter).await?.waiting, 0, "an unordered engine knows no waiters");
    Ok(())
}

pub(super) async fn clause_09_places_are_counted_from_zero(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    context.main().take(&context.claim("r")?).await?;
    // The clients are kept: an engine that knows a claimant to be gone may drop its place at once.
    let mut clients = Vec::new();
    for expected in 0..5 {
        let client = context.client().await?;
        let busy = client.busy(&context.claim("r")?.queueing()).await?;
        ensure_eq!(busy.position, Some(expected), "places are given in the order of asking");
        clients.push(client);
    }
    Ok(())
}

pub(super) async fn clause_09_asking_again_keeps_the_place(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    context.main().take(&context.claim("r")?).await?;
    let waiters =
        [context.claim("r")?.queueing(), context.claim("r")?.queueing(), context.claim("r")?.queueing()];
    for _ in 0..3 {
        for (expected, waiter) in (0..).zip(&waiters) {
            ensure_eq!(
                context.main().busy(waiter).await?.position,
                Some(expected),
                "asking again keeps the place"
            );
        }
    }
    ensure_eq!(context.main().look(&waiters[0]).await?.waiting, 3, "asking again makes no second place");
    Ok(())
}

pub(super) async fn clause_09_try_once_takes_no_place(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("r")?).await?;
    let once = context.claim("r")?;
    ensure_eq!(context.main().busy(&once).await?.position, None, "a claim that does not queue has no place");
    ensure_eq!(
        context.main().look(&once).await?.waiting,
        0,
        "a claim that does not queue is not in the queue"
    );
    context.main().end(taken.release()).await?;
    context.main().take(&context.claim("r")?).await?;
    Ok(())
}

pub(super) async fn clause_09_a_place_can_be_given_up(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    context.main().take(&context.claim("r")?).await?;
    let waiters = [context.claim("r")?.queueing(), context.claim("r")?.queueing()];
    for waiter in &waiters {
        context.main().busy(waiter).await?;
    }
    context.main().leave(&waiters[0]).await?;
    ensure_eq!(context.main().look(&waiters[0]).await?.waiting, 1, "a place that was given up is gone");
    ensure_eq!(context.main().busy(&waiters[1]).await?.position, Some(0), "those behind move up");
    context.main().not_held(take_back(&waiters[0])).await?;
    Ok(())
}

pub(super) async fn clause_09_a_granted_claim_has_no_place(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("r")?).await?;
    let waiter = context.claim("r")?.queueing();
    context.main().busy(&waiter).await?;
    context.main().end(taken.release()).await?;
    let granted = context.until_granted(&**context.main(), &waiter).await?;
    ensure_eq!(context.main().look(&waiter).await?.waiting, 0, "who holds does not wait");
    context.main().end(granted.release()).await?;
    context.main().take(&context.claim("r")?).await?;
    Ok(())
}

pub(super) async fn clause_09_an_inspection_names_the_waiters(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    context.main().take(&context.claim("r")?).await?;
    let names = ["web-1:1:cron", "web-2:1:cron", "web-3:1:cron"];
    let mut expected = Vec::new();
    for name in names {
        let waiter = context.claim("r")?.queueing().called(name);
        context.client().await?.busy(&waiter).await?;
        expected.push((waiter.lease_id, waiter.label));
    }
    let inspection = context.main().look(&context.claim("r")?).await?;
    // Their clients are gone by now: an engine that notices may have dropped them.
    let seen: Vec<_> = inspection.waiters.into_iter().map(|waiter| (waiter.lease_id, waiter.label)).collect();
    let in_order = expected.iter().filter(|waiter| seen.contains(waiter)).eq(seen.iter());
    ensure!(in_order, "waiters are named in order: got {seen:?}, expected {expected:?}");
    let kept = [context.claim("r")?.queueing().called("a"), context.claim("r")?.queueing().called("b")];
    for waiter in &kept {
        context.main().busy(waiter).await?;
    }
    let inspection = context.main().look(&kept[0]).await?;
    let last: Vec<_> = inspection.waiters.iter().rev().take(2).rev().map(|waiter| waiter.lease_id).collect();
    ensure_eq!(
        last,
        kept.iter().map(|waiter| waiter.lease_id).collect::<Vec<_>>(),
        "living waiters are named in order"
    );
    ensure_eq!(usize::try_from(inspection.waiting).unwrap_or(0), inspection.waiters.len(), "all are counted");
    ensure!(
        inspection.waiters.iter().all(|waiter| waiter.waited < Duration::from_secs(300)),
        "waits are counted from joining"
    );
    Ok(())
}

pub(super) async fn clause_09_an_unrefreshed_place_dies(context: Context) -> Verdict {
    if !context.is_fifo() {
        return unordered(&context).await;
    }
    let holder = context.main().take(&context.claim("r")?.for_(context.main().profile().max_ttl)).await?;
    let (dead, alive) = (context.claim("r")?.queueing(), context.claim("r")?.queueing());
    context.main().busy(&dead).await?;
    context.main().busy(&alive).await?;
    for _ in 0..3 {
        match context.engine().pass_time(context.namespace(), ENTRY_LIFE / 3) {
            Hook::Here(()) => {}
            // Where clocks cannot be moved the time passes in truth.
            Hook::Absent(_) | Hook::Inapplicable(_) => tokio::time::sleep(ENTRY_LIFE / 3).await,
        }
        context.main().extended(holder.renewal()).await?;
        context.main().busy(&alive).await?;
    }
    context.main().end(holder.release()).await?;
    context
        .main()
        .take(&alive)
        .await
        .map_err(|failure| failure.while_("the one in front is dead for certain"))?;
    Ok(())
}

pub(super) async fn clause_09_recheck_is_bounded_by_what_remains(context: Context) -> Verdict {
    let holder = context.main().take(&context.claim("short")?.for_(context.short())).await?;
    let waiter = context.claim("short")?.queueing();
    if let Acquired::Busy(busy) = context.main().acquire(waiter.clone()).await? {
        ensure!(
            busy.recheck <= busy.holder.remaining.max(Duration::from_millis(1)),
            "the first in line looks again when the grant ends: {busy:?}"
        );
        ensure!(
            busy.holder.remaining <= holder.grant.ttl.as_duration(),
            "no more remains than was given: {busy:?}"
        );
    }
    context.main().take(&context.claim("long")?).await?;
    for _ in 0..2 {
        let busy = context.main().busy(&context.claim("long")?.queueing()).await?;
        ensure!(busy.recheck <= RECHECK_FRONT, "the first two look again every second at least: {busy:?}");
    }
    let once = context.main().busy(&context.claim("long")?).await?;
    ensure!(once.recheck <= once.holder.remaining, "looking again later than the end is no use: {once:?}");
    let behind = context.main().busy(&context.claim("long")?.queueing()).await?;
    ensure!(behind.recheck < ENTRY_LIFE, "a waiter must look again before its place dies: {behind:?}");
    Ok(())
}

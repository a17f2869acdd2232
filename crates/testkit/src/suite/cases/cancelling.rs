//! Dropped futures: the outcome is unknown, and nothing else is left behind.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use leasehold_core::{Coordinator, record::Wake};

use super::super::{
    Context, Verdict,
    context::PATIENCE,
    failure::{ensure, ensure_eq},
    shape::{Expect as _, Shape as _},
};

/// Polls a future at most `times` times and drops it.
async fn poll_some<T>(future: impl Future<Output = T>, times: u32) -> Option<T> {
    let mut future = pin!(future);
    for at in 0..times {
        let outcome = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        if outcome.is_some() {
            return outcome;
        }
        // Later cuts wait a little longer in between, to meet the future at different points.
        tokio::time::sleep(Duration::from_micros(200) * at).await;
    }
    None
}

pub(super) async fn cancelled_acquires_leave_nothing_that_outlives_their_ttl(context: Context) -> Verdict {
    let client = context.client().await?;
    let mut claims = Vec::new();
    for times in 0..24 {
        let claim = context.claim(&format!("r{times}"))?.for_(context.short());
        let _answer = poll_some(client.acquire(claim.clone()), times / 2).await;
        claims.push(claim);
    }
    for claim in &claims {
        context.until_granted(&*client, &claim.again()).await.map_err(|failure| {
            failure.while_(format!("{} is claimed again after a cancelled claim", claim.resource))
        })?;
    }
    Ok(())
}

pub(super) async fn cancelled_calls_leave_the_client_usable(context: Context) -> Verdict {
    let client = context.client().await?;
    let claim = context.claim("orders/42")?;
    let taken = client.take(&claim).await?;
    for times in 0..12 {
        let _answer = poll_some(client.renew(vec![taken.renewal()]), times % 4).await;
        let _answer = poll_some(client.inspect(claim.resource.clone()), times % 4).await;
        let _answer = poll_some(client.acquire(claim.again().queueing()), times % 4).await;
        let _answer = poll_some(client.list(leasehold_core::request::Listing::new()), times % 4).await;
    }
    client.extended(taken.renewal()).await?;
    ensure_eq!(client.holder(&claim).await?, Some((taken.id(), taken.token())), "the grant stands");
    let _answer = poll_some(Coordinator::release(&*client, taken.release()), 1).await;
    // Released or not: releasing again says which, and the end is the same.
    let _answer = Coordinator::release(&*client, taken.release()).await?;
    ensure_eq!(client.holder(&claim).await?, None, "the grant has ended");
    Ok(())
}

pub(super) async fn cancelled_waits_for_a_wake_lose_none(context: Context) -> Verdict {
    let client = context.client().await?;
    let holder = context.main().take(&context.claim("r")?).await?;
    let waiter = context.claim("r")?.queueing();
    client.busy(&waiter).await?;
    for _ in 0..20 {
        let woken = poll_some(client.next_wake(), 2).await;
        ensure!(woken.is_none_or(|wake| wake == Wake::All), "woken for nothing: {woken:?}");
    }
    context.main().end(holder.release()).await?;
    if !context.can().wakes {
        let woken = tokio::time::timeout(Duration::from_millis(200), client.next_wake()).await;
        ensure!(woken.is_err(), "an engine that says it has no wakes sends none: got {woken:?}");
        return Ok(());
    }
    // Waits that are dropped when the wake is there, or is just coming, do not lose it either.
    for _ in 0..20 {
        if poll_some(client.next_wake(), 1).await == Some(Wake::Lease(waiter.lease_id)) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let listener: Arc<dyn Coordinator> = Arc::clone(&client);
    let woken = tokio::time::timeout(PATIENCE, async move {
        loop {
            if listener.next_wake().await == Wake::Lease(waiter.lease_id) {
                return;
            }
        }
    });
    ensure!(woken.await.is_ok(), "the wake was lost with a wait that was dropped before it");
    Ok(())
}

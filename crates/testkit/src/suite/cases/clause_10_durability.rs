//! Clause 10: what was answered survives a crash.

use std::sync::Arc;

use leasehold_core::{
    Coordinator,
    record::{Acquired, Gone},
};

use super::super::{
    Context, Failure, Verdict,
    failure::{ensure, ensure_eq},
    shape::{Expect as _, Shape as _, Taken},
};

/// The engine after a crash. Where none can be had, its label must at least speak of it.
async fn crashed(context: &Context) -> Result<Option<Arc<dyn Coordinator>>, Failure> {
    if let Some(connecting) = context.help(context.engine().crash(context.namespace())) {
        return Ok(Some(connecting.await?));
    }
    let said = context.main().profile().guarantee.after_failover;
    ensure!(!said.is_empty(), "an engine says what happens after it fails over");
    Ok(None)
}

/// What is promised where leases end with the engine: the next one who asks is let in, with a higher token, and the holder is
/// told so. A holder that comes back before anybody has asked may go on.
async fn ended_with_the_engine(client: &Arc<dyn Coordinator>, taken: &Taken) -> Verdict {
    let next = client.take(&taken.claim.again()).await?;
    ensure!(next.token() > taken.token(), "token {} follows {} across a crash", next.token(), taken.token());
    client.gone(taken.renewal()).await?;
    Ok(())
}

pub(super) async fn clause_10_a_grant_survives_a_crash(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let Some(client) = crashed(&context).await? else { return Ok(()) };
    if !context.engine().leases_survive() {
        return ended_with_the_engine(&client, &taken).await;
    }
    let busy = client.busy(&taken.claim.again()).await?;
    ensure_eq!((busy.holder.lease_id, busy.holder.token), (taken.id(), taken.token()), "the grant stands");
    client.extended(taken.renewal()).await?;
    client.end(taken.release()).await?;
    Ok(())
}

pub(super) async fn clause_10_a_release_survives_a_crash(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    context.main().end(taken.success()).await?;
    let before = context.main().look(&taken.claim).await?.last_success_us;
    let Some(client) = crashed(&context).await? else { return Ok(()) };
    ensure_eq!(client.gone(taken.renewal()).await?, Gone::Released, "the release is remembered");
    ensure_eq!(client.look(&taken.claim).await?.last_success_us, before, "the success is remembered");
    client.spent(&taken.claim).await?;
    Ok(())
}

pub(super) async fn clause_10_tokens_rise_across_a_crash(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let taken = context.main().take(&claim).await?;
    // Far above the clock: only memory keeps the next one higher.
    context.main().end(taken.release()).await?;
    let floor = leasehold_core::Token::new(taken.token().get() + 60_000_000)?;
    let high = context.main().take(&claim.again().above(floor)).await?;
    context.main().end(high.release()).await?;
    let Some(client) = crashed(&context).await? else { return Ok(()) };
    let next = client.take(&claim.again()).await?;
    ensure!(next.token() > high.token(), "token {} follows {} across a crash", next.token(), high.token());
    Ok(())
}

pub(super) async fn clause_10_a_revocation_survives_a_crash(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    context.main().revoked(taken.revocation()).await?;
    let Some(client) = crashed(&context).await? else { return Ok(()) };
    if !context.engine().leases_survive() {
        return ended_with_the_engine(&client, &taken).await;
    }
    let gone = client.gone(taken.renewal()).await?;
    ensure!(matches!(gone, Gone::Revoked { .. }), "the revocation is remembered: got {gone:?}");
    let answer = client.acquire(taken.claim.again()).await?;
    ensure!(matches!(answer, Acquired::Busy(_)), "the resource stays busy until the old end: got {answer:?}");
    Ok(())
}

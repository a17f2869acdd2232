//! The history of a resource: which grants it had, who held them, how each ended.

use leasehold_core::{
    Kind,
    record::{EndReason, Past},
};

use super::super::{
    Context, Failure, Verdict,
    failure::{ensure, ensure_eq},
    shape::{Expect as _, Shape as _},
};

/// The history, or `None` on an engine that keeps none and says so.
async fn history(context: &Context, resource: &str) -> Result<Option<Vec<Past>>, Failure> {
    let answer = context.main().history(context.claim(resource)?.resource).await;
    if context.can().history {
        return Ok(Some(answer?));
    }
    match answer {
        Err(error) if error.kind() == Kind::Unsupported => Ok(None),
        other => Err(Failure::new(format!("an engine without a history says Unsupported: got {other:?}"))),
    }
}

pub(super) async fn history_tells_who_held_and_how_it_ended(context: Context) -> Verdict {
    let released = context.main().take(&context.claim("orders/42")?.called("first")).await?;
    context.main().end(released.release()).await?;
    let revoked = context.main().take(&released.claim.again().called("second")).await?;
    context.main().revoked(revoked.revocation_now()).await?;
    let expired = context.main().take(&released.claim.again().called("third").for_(context.short())).await?;
    context.until_lapsed(&**context.main(), &expired.claim).await?;
    let Some(found) = history(&context, "orders/42").await? else { return Ok(()) };
    let reasons: Vec<&EndReason> = found.iter().map(|past| &past.end.reason).collect();
    let why = EndReason::Revoked(revoked.revocation().reason);
    ensure_eq!(reasons, [&EndReason::Expired, &why, &EndReason::Released], "the ends, the latest first");
    for (past, taken) in found.iter().zip([&expired, &revoked, &released]) {
        ensure_eq!((past.end.lease_id, past.end.token), (taken.id(), taken.token()), "the grant");
        ensure_eq!(past.holder_id, taken.claim.holder_id, "its holder");
        ensure_eq!(past.label, taken.claim.label, "its holder's label");
        ensure_eq!(past.granted_us, taken.grant.granted_us, "when it was granted");
        ensure!(past.end.at_us >= past.granted_us, "it ended after it was granted: {past:?}");
    }
    Ok(())
}

/// Whoever looks twice, and whoever claims in between, finds an expiry once.
pub(super) async fn history_counts_an_expiry_once(context: Context) -> Verdict {
    let expired = context.main().take(&context.claim("orders/42")?.for_(context.short())).await?;
    context.until_lapsed(&**context.main(), &expired.claim).await?;
    let next = context.until_granted(&**context.main(), &expired.claim.again().for_(context.long())).await?;
    let Some(found) = history(&context, "orders/42").await? else { return Ok(()) };
    ensure_eq!(found.len(), 1, "one grant has ended");
    ensure_eq!(found[0].end.token, expired.token(), "the one that expired");
    context.main().end(next.release()).await?;
    let found = history(&context, "orders/42").await?.unwrap_or_default();
    ensure_eq!(found.len(), 2, "and then another");
    Ok(())
}

/// A grant that stands, and one that was never made, have not ended.
pub(super) async fn history_leaves_out_what_has_not_ended(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    context.main().busy(&taken.claim.again()).await?;
    context.main().extended(taken.renewal()).await?;
    for resource in ["orders/42", "never/seen"] {
        let Some(found) = history(&context, resource).await? else { return Ok(()) };
        ensure_eq!(found, Vec::new(), "the history of {resource}");
    }
    Ok(())
}

/// It is kept as far back as promised, and does not grow without end.
pub(super) async fn history_is_long_enough_and_bounded(context: Context) -> Verdict {
    if history(&context, "orders/42").await?.is_none() {
        return Ok(());
    }
    let mut tokens = Vec::new();
    for _ in 0..Past::KEPT + 5 {
        let taken = context.main().take(&context.claim("orders/42")?).await?;
        context.main().end(taken.release()).await?;
        tokens.push(taken.token());
    }
    tokens.reverse();
    let found: Vec<_> =
        history(&context, "orders/42").await?.unwrap_or_default().iter().map(|past| past.end.token).collect();
    ensure!(found.len() >= Past::KEPT, "only {} grants are remembered", found.len());
    ensure!(tokens.starts_with(&found), "the latest first, without gaps: {found:?} of {tokens:?}");
    Ok(())
}

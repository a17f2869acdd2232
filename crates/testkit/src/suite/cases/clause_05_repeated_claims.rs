//! Clause 5: a claim that is asked again is recognised.

use leasehold_core::record::{Acquired, EndReason};

use super::super::{
    Context, Verdict,
    context::GLANCE,
    failure::{ensure, ensure_eq},
    shape::{Expect as _, Shape as _},
};
use crate::{clock::Stopwatch, random};

pub(super) async fn clause_05_a_repeated_claim_gets_the_same_grant(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let first = context.main().take(&claim).await?;
    for client in [context.main().clone(), context.client().await?] {
        let again = client.take(&claim).await?;
        ensure!(again.grant.adopted, "a repeated claim says that it was granted before");
        ensure_eq!(again.token(), first.token(), "a repeated claim gets the same grant");
        ensure_eq!(again.grant.granted_us, first.grant.granted_us, "a repeated claim is dated as the first");
    }
    context.main().extended(first.renewal()).await?;
    Ok(())
}

pub(super) async fn clause_05_a_repeated_claim_starts_the_ttl_anew(context: Context) -> Verdict {
    let whole = async |context: Context| {
        let claim = context.claim(&random::lease_id().to_string())?.for_(context.short());
        let ttl = claim.ttl.as_duration();
        let mut last = Stopwatch::start();
        let first = context.main().take(&claim).await?;
        let begin = Stopwatch::start();
        while begin.elapsed() < ttl * 2 {
            tokio::time::sleep(ttl / 8).await;
            let sent = Stopwatch::start();
            let answer = context.main().acquire(claim.clone()).await?;
            if !matches!(&answer, Acquired::Granted(grant) if grant.adopted && grant.token == first.token()) {
                context.within(ttl, last)?;
                ensure!(
                    false,
                    "a repeated claim starts the TTL anew: got {answer:?} instead of the first grant"
                );
            }
            last = sent;
        }
        // The last answer's TTL counts from its own attempt.
        while last.elapsed() < ttl / 2 {
            tokio::time::sleep(GLANCE).await;
        }
        let holder = context.main().holder(&claim).await?;
        context.within(ttl, last)?;
        ensure_eq!(holder, Some((first.id(), first.token())), "the TTL runs from the repeated claim");
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn clause_05_a_repeat_of_a_released_claim_is_spent(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let taken = context.main().take(&claim).await?;
    context.main().end(taken.release()).await?;
    let end = context.client().await?.spent(&claim).await?;
    ensure_eq!(
        (end.lease_id, end.token, &end.reason),
        (taken.id(), taken.token(), &EndReason::Released),
        "how it ended"
    );
    ensure_eq!(context.main().holder(&claim).await?, None, "a late duplicate holds nothing");
    let successor = context.main().take(&claim.again()).await?;
    context.main().spent(&claim).await.map_err(|failure| failure.while_("while another holds"))?;
    context.main().extended(successor.renewal()).await?;
    Ok(())
}

pub(super) async fn clause_05_a_repeat_of_an_expired_claim_is_spent(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?.for_(context.short());
    let taken = context.main().take(&claim).await?;
    context.until_lapsed(&**context.main(), &claim).await?;
    let end = context.main().spent(&claim).await?;
    ensure_eq!(
        (end.lease_id, end.token, end.reason),
        (taken.id(), taken.token(), EndReason::Expired),
        "how it ended"
    );
    Ok(())
}

pub(super) async fn clause_05_a_repeat_of_a_revoked_claim_is_spent(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let taken = context.main().take(&claim).await?;
    let revocation = taken.revocation_now();
    context.main().revoked(revocation.clone()).await?;
    let end = context.main().spent(&claim).await?;
    ensure_eq!(end.reason, EndReason::Revoked(revocation.reason), "how it ended");
    ensure_eq!((end.token, end.by), (taken.token(), revocation.by), "which, and by whom");
    Ok(())
}

/// A waiter asks again as long as it has no answer. When the answer is that its grant has come and gone, nobody must wait
/// behind a place that it left in between.
pub(super) async fn clause_05_a_spent_claim_keeps_no_place(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?.queueing();
    let taken = context.main().take(&claim).await?;
    context.main().revoked(taken.revocation()).await?;
    let answer = context.main().acquire(claim.clone()).await?;
    ensure!(!matches!(answer, Acquired::Granted(_)), "a revoked grant is not given again: got {answer:?}");
    context.main().end(taken.release()).await?;
    context.main().spent(&claim).await?;
    ensure_eq!(context.main().look(&claim).await?.waiting, 0, "a spent claim waits for nothing");
    context.main().take(&context.claim("orders/42")?).await?;
    Ok(())
}

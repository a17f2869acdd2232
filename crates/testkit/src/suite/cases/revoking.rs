//! Revocation: an operator ends another's grant, softly or at once.

use std::sync::Arc;

use leasehold_core::{
    Coordinator, Token,
    record::{EndReason, Gone, Revoked},
};

use super::super::{
    Context, Verdict,
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _},
};
use super::clause_09_wakes::Sleeper;
use crate::clock::Stopwatch;

pub(super) async fn revoke_keeps_the_resource_busy_until_the_old_end(context: Context) -> Verdict {
    let whole = async |context: Context| {
        let claim = context.claim(&crate::random::lease_id().to_string())?.for_(context.short());
        let sent = Stopwatch::start();
        let taken = context.main().take(&claim).await?;
        let answer = context.main().revoke(taken.revocation()).await?;
        if !matches!(answer, Revoked::Ended { .. }) {
            context.within(claim.ttl.as_duration(), sent)?;
        }
        let (record, busy_for) = ensure_let!(
            Revoked::Ended { record, busy_for } = answer => (record, busy_for), "the revocation should end the grant"
        );
        ensure_eq!(
            (record.lease_id, record.token),
            (taken.id(), taken.token()),
            "the answer shows the revoked grant"
        );
        ensure!(busy_for <= taken.grant.ttl.as_duration(), "busy at most until the old end: {busy_for:?}");
        let next = context.until_granted(&**context.main(), &claim.again().for_(context.long())).await?;
        let lasted = sent.elapsed();
        let least = taken.grant.ttl.as_duration() * 99 / 100;
        ensure!(lasted >= least, "granted {lasted:?} after the revoked grant, which had {least:?}");
        ensure!(next.token() > taken.token(), "tokens rise");
        let end = context.main().look(&claim).await?.last_end;
        let reason = ensure_let!(Some(end) = end => end.reason, "the end is remembered");
        ensure_eq!(reason, EndReason::Revoked(taken.revocation().reason), "with its reason");
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn revoke_lets_the_holder_release(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let (lease_id, busy_for) = context.client().await?.revoked(taken.revocation()).await?;
    ensure_eq!(lease_id, taken.id(), "the answer shows the revoked grant");
    ensure!(!busy_for.is_zero(), "the resource stays busy");
    let busy = context.main().busy(&taken.claim.again()).await?;
    let notice =
        ensure_let!(Some(notice) = busy.holder.revoked => notice, "a busy answer shows the revocation");
    ensure_eq!(notice.by, taken.revocation().by, "by whom");
    context.main().end(taken.release()).await?;
    context.main().take(&taken.claim.again()).await?;
    Ok(())
}

pub(super) async fn revoke_then_release_keeps_the_reason_and_the_success(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    context.main().revoked(taken.revocation()).await?;
    // What a holder does that was asked to hand over: the grant ends as any other, and by whose wish is remembered.
    context.main().end(taken.success()).await?;
    let found = context.main().look(&taken.claim).await?;
    let end = ensure_let!(Some(end) = found.last_end => end, "the end is remembered");
    let revocation = taken.revocation();
    ensure_eq!((end.token, end.by), (taken.token(), revocation.by), "it ended by whoever revoked it");
    ensure_eq!(end.reason, EndReason::Revoked(revocation.reason), "for the reason given");
    if context.can().once_per {
        ensure_eq!(
            found.last_success_us,
            Some(taken.grant.granted_us),
            "the success is recorded all the same"
        );
    }
    Ok(())
}

pub(super) async fn revoke_now_frees_at_once(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let (_, busy_for) = context.main().revoked(taken.revocation_now()).await?;
    ensure!(busy_for.is_zero(), "the resource is free now: busy for {busy_for:?}");
    let next = context.client().await?.take(&taken.claim.again()).await?;
    let gone = context.main().gone(taken.renewal()).await?;
    ensure!(
        matches!(&gone, Gone::Superseded { token } if *token == next.token())
            || matches!(gone, Gone::Revoked { .. }),
        "the old holder learns that it lost: got {gone:?}"
    );
    // Softly first, then at once.
    context.main().revoked(next.revocation()).await?;
    context.main().revoked(next.revocation_now()).await?;
    context.main().take(&taken.claim.again()).await?;
    Ok(())
}

pub(super) async fn revoke_of_another_token_changes_nothing(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    for now in [false, true] {
        for token in [taken.token().get() - 1, taken.token().get() + 1] {
            let mut revocation = taken.revocation();
            (revocation.now, revocation.token) = (now, Token::new(token)?);
            let answer = context.main().revoke(revocation).await?;
            let record =
                ensure_let!(Revoked::OtherToken(record) = answer => record, "a late command hits nobody");
            ensure_eq!((record.lease_id, record.token), (taken.id(), taken.token()), "it is told who holds");
        }
    }
    context.main().extended(taken.renewal()).await?;
    Ok(())
}

pub(super) async fn revoke_of_nothing_says_how_it_ended(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    context.main().end(taken.release()).await?;
    let answer = context.main().revoke(taken.revocation_now()).await?;
    let end = ensure_let!(Revoked::NotHeld(Some(end)) = answer => end, "nobody holds; the last end is shown");
    ensure_eq!((end.token, end.reason), (taken.token(), EndReason::Released), "it was released");
    ensure_eq!(end.by, taken.claim.label, "by its holder");
    let mut elsewhere = taken.revocation();
    elsewhere.resource = context.claim("never held")?.resource;
    let answer = context.main().revoke(elsewhere).await?;
    ensure_eq!(answer, Revoked::NotHeld(None), "a resource that nobody ever held");
    Ok(())
}

pub(super) async fn revoke_wakes_the_holder(context: Context) -> Verdict {
    let operator = context.client().await?;
    for now in [false, true] {
        let holder: Arc<dyn Coordinator> = context.client().await?;
        let taken = holder.take(&context.claim(&format!("now: {now}"))?).await?;
        let sleeper = context.can().wakes.then(|| Sleeper::new(Arc::clone(&holder), taken.claim.clone()));
        let revocation = if now { taken.revocation_now() } else { taken.revocation() };
        operator.revoked(revocation).await?;
        if let Some(sleeper) = sleeper {
            sleeper.until_woken(1, "the holder of the revoked grant").await?;
        }
        // Wake or no wake, the next renewal tells.
        let gone = holder.gone(taken.renewal()).await?;
        ensure!(matches!(gone, Gone::Revoked { .. }), "the holder is told: got {gone:?}");
    }
    Ok(())
}

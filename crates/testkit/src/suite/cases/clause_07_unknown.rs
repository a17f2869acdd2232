//! Clause 7: what is told when something is lost on the way.

use leasehold_core::Kind;

use super::super::{
    Context, Verdict,
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _, take_back},
};
use crate::reference::Loss;

pub(super) async fn clause_07_a_lost_request_is_unavailable(context: Context) -> Verdict {
    let Some(connecting) = context.help(context.engine().lossy(context.namespace(), Loss::Request)) else {
        return Ok(());
    };
    let lossy = connecting.await?;
    let claim = context.claim("orders/42")?;
    let error =
        ensure_let!(Err(error) = lossy.acquire(claim.clone()).await => error, "a lost request has no answer");
    ensure_eq!(error.kind(), Kind::Unavailable, "it certainly had no effect");
    ensure_eq!(context.main().holder(&claim).await?, None, "it had no effect");
    let taken = context.main().take(&claim).await?;
    ensure!(!taken.grant.adopted, "the first attempt was never applied");
    Ok(())
}

pub(super) async fn clause_07_a_lost_answer_is_unknown(context: Context) -> Verdict {
    let Some(connecting) = context.help(context.engine().lossy(context.namespace(), Loss::Answer)) else {
        return Ok(());
    };
    let lossy = connecting.await?;
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let other = context.claim("orders/43")?;
    let error =
        ensure_let!(Err(error) = lossy.acquire(other.clone()).await => error, "a lost answer is no answer");
    ensure_eq!(error.kind(), Kind::Unknown, "an acquire without an answer");
    // A renewal's answer is lost as a whole, or for itself.
    let error = match lossy.renew(vec![taken.renewal()]).await {
        Err(error) => error,
        Ok(answers) => {
            ensure_let!([Err(error)] = &answers[..] => error.clone(), "a lost answer is no answer")
        }
    };
    ensure_eq!(error.kind(), Kind::Unknown, "a renewal without an answer");
    let error =
        ensure_let!(Err(error) = lossy.release(taken.release()).await => error, "a lost answer is no answer");
    ensure_eq!(error.kind(), Kind::Unknown, "a release without an answer");
    Ok(())
}

/// A claim whose outcome is unknown: applied or not, by an engine that can lose the answer, or by a future that was
/// dropped half-way where it cannot.
async fn unknown(context: &Context, claim: &leasehold_core::request::Claim) -> Verdict {
    if let Some(connecting) = context.help(context.engine().lossy(context.namespace(), Loss::Answer)) {
        let lossy = connecting.await?;
        ensure_let!(Err(_) = lossy.acquire(claim.clone()).await => (), "a lost answer is no answer");
        let seen = context.main().look(claim).await?;
        // A lost answer is waited for, and on a slow machine a short grant may have ended meanwhile.
        ensure!(seen.record.is_some() || seen.last_token.is_some(), "the request itself was applied");
    } else {
        let client = context.client().await?;
        let _ = tokio::time::timeout(std::time::Duration::ZERO, client.acquire(claim.clone())).await;
    }
    Ok(())
}

pub(super) async fn clause_07_an_unknown_claim_can_be_asked_again(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    unknown(&context, &claim).await?;
    let taken = context.main().take(&claim).await?;
    context.main().extended(taken.renewal()).await?;
    Ok(())
}

pub(super) async fn clause_07_an_unknown_claim_can_be_taken_back(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?.for_(context.short());
    unknown(&context, &claim).await?;
    // Ended, or never there: both are fine. What may still be under way ends by its TTL.
    let _answer = context.main().release(take_back(&claim)).await?;
    context.until_granted(&**context.main(), &claim.again()).await?;
    Ok(())
}

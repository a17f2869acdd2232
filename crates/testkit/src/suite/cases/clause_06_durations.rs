//! Clause 6: a grant lasts at least what was answered, and ends.

use std::time::Duration;

use leasehold_core::{Kind, Ttl, line::FORSAKEN, record::Acquired, request::Renewal};

use super::super::{
    Context, Failure, Verdict,
    context::{GLANCE, PATIENCE},
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _},
};
use crate::{clock::Stopwatch, random};

/// What may be missing from a duration, because the engine counts it on a clock of its own: 1 %.
fn nearly(duration: Duration) -> Duration {
    duration * 99 / 100
}

pub(super) async fn clause_06_a_grant_lasts_its_ttl(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?.for_(context.short());
    let sent = Stopwatch::start();
    let taken = context.main().take(&claim).await?;
    let client = context.client().await?;
    context.until_granted(&*client, &claim.again()).await?;
    // Sent before it was applied, and answered after the next one was: so what lies between is longer than the TTL.
    let lasted = sent.elapsed();
    ensure!(
        lasted >= nearly(taken.grant.ttl.as_duration()),
        "a grant for {:?} ended after {lasted:?}",
        taken.grant.ttl
    );
    Ok(())
}

pub(super) async fn clause_06_a_renewal_lasts_its_ttl(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let taken = context.main().take(&claim.again()).await?;
    context.main().end(taken.release()).await?;
    // A short grant, renewed for longer: the longer term counts.
    let whole = async |context: Context| {
        let short = context.claim(&crate::random::lease_id().to_string())?.for_(context.short());
        let since = Stopwatch::start();
        let taken = context.main().take(&short).await?;
        let longer = Ttl::new(context.short().as_duration() * 3)?;
        let sent = Stopwatch::start();
        let answer = context.main().renew_one(Renewal { ttl: longer, ..taken.renewal() }).await;
        context.within(short.ttl.as_duration(), since)?;
        let ttl = ensure_let!(Ok(leasehold_core::record::Renewed::Extended { ttl }) = answer => ttl, "it is extended");
        ensure!(ttl >= longer, "a renewal for {longer:?} was answered with {ttl:?}");
        context.until_granted(&**context.main(), &short.again()).await?;
        let lasted = sent.elapsed();
        ensure!(lasted >= nearly(longer.as_duration()), "a renewal for {longer:?} ended after {lasted:?}");
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn clause_06_a_grant_ends(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?.for_(context.short());
    let first = context.main().take(&claim).await?;
    ensure!(!first.grant.after_lapse, "nothing has lapsed yet");
    // For long: it must last until it is released.
    let next = claim.again().for_(context.long());
    let second = context.until_granted(&**context.main(), &next).await?;
    ensure!(second.grant.after_lapse, "the next grant says that the one before ended uncleanly");
    context.main().end(second.release()).await?;
    let third = context.main().take(&next.again()).await?;
    ensure!(!third.grant.after_lapse, "a release is no lapse");
    Ok(())
}

/// Whoever finds that a grant has lapsed may be told to wait: the next grant says so all the same, and only that one.
pub(super) async fn clause_06_a_lapse_that_another_found_is_told_once(context: Context) -> Verdict {
    let whole = async |context: Context| {
        let claim = context.claim(&random::lease_id().to_string())?.for_(context.short());
        let begin = Stopwatch::start();
        let first = context.main().take(&claim).await?;
        let next = claim.again().for_(context.long());
        if context.is_fifo() {
            if let Acquired::Granted(_) = context.main().acquire(next.clone().queueing()).await? {
                return Err(Failure::too_slow("the grant was over before the waiter had come"));
            }
            let limit = first.grant.ttl.as_duration() + FORSAKEN;
            loop {
                match context.main().acquire(claim.again()).await? {
                    Acquired::Busy(_) => tokio::time::sleep(GLANCE).await,
                    Acquired::Queued(_) => break,
                    other => {
                        context.within(limit, begin)?;
                        return Err(Failure::new(format!("a waiter is in front: got {other:?}")));
                    }
                }
                ensure!(begin.elapsed() < limit + PATIENCE, "the grant did not end");
            }
        }
        let second = context.until_granted(&**context.main(), &next).await?;
        ensure!(second.grant.after_lapse, "the grant before ended uncleanly, whoever found that out");
        context.main().end(second.release()).await?;
        let third = context.main().take(&claim.again()).await?;
        ensure!(!third.grant.after_lapse, "a lapse is told once");
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn clause_06_lock_delay_follows_an_expiry(context: Context) -> Verdict {
    let delay = context.short().as_duration() * 2;
    let claim = context.claim("orders/42")?.for_(context.short()).delayed(delay);
    let sent = Stopwatch::start();
    let taken = context.main().take(&claim).await?;
    let next = context.claim("orders/42")?;
    context.until_granted(&**context.main(), &next).await?;
    let lasted = sent.elapsed();
    let least = taken.grant.ttl.as_duration() + delay;
    ensure!(lasted >= nearly(least), "kept for {lasted:?}; the TTL and the lock-delay make {least:?}");
    Ok(())
}

pub(super) async fn clause_06_lock_delay_does_not_follow_a_release(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?.delayed(Duration::from_secs(600));
    let taken = context.main().take(&claim).await?;
    context.main().end(taken.release()).await?;
    context.client().await?.take(&context.claim("orders/42")?).await?;
    Ok(())
}

pub(super) async fn clause_06_the_answered_ttl_is_honest(context: Context) -> Verdict {
    let step = u64::from(context.can().ttl_step_ms.get());
    let least = context.short().as_millis();
    for (at, ms) in [least, least + 1, least + 7, 1_777, 2_000, 9_999].into_iter().enumerate() {
        let ttl = Ttl::from_millis(ms.max(least))?;
        let claim = context.claim(&format!("r{at}"))?.for_(ttl);
        let given = context.main().take(&claim).await?.grant.ttl;
        ensure!(given >= ttl, "{ttl:?} was asked and {given:?} given");
        let rounded = ttl.as_millis().div_ceil(step) * step;
        // An engine may have a smallest TTL of its own (one step more).
        ensure!(
            given.as_millis() <= rounded + step,
            "{ttl:?} was asked and {given:?} given, in steps of {step} ms"
        );
    }
    Ok(())
}

pub(super) async fn clause_06_a_ttl_above_the_namespaces_is_refused(context: Context) -> Verdict {
    let max_ttl = context.main().profile().max_ttl;
    if max_ttl == Ttl::MAX {
        context.partly("the namespace allows every TTL");
        return Ok(());
    }
    let above = Ttl::from_millis(max_ttl.as_millis() + 1)?;
    let claim = context.claim("orders/42")?;
    for ttl in [above, Ttl::MAX] {
        context.main().refused(&claim.again().for_(ttl)).await?;
        context.main().refused(&claim.again().for_(ttl).queueing()).await?;
    }
    ensure_eq!(context.main().look(&claim).await?.waiting, 0, "a refused claim waits for nothing");
    let taken = context.main().take(&claim.again().for_(max_ttl)).await?;
    let answers = context.main().renew(vec![Renewal { ttl: above, ..taken.renewal() }]).await?;
    let kind = ensure_let!([Err(error)] = &answers[..] => error.kind(), "a renewal above the longest TTL is refused");
    ensure_eq!(kind, Kind::Invalid, "as invalid");
    Ok(())
}

pub(super) async fn clause_06_an_absurd_lock_delay_is_refused(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    context.main().refused(&claim.again().delayed(Duration::MAX)).await?;
    context
        .main()
        .refused(&claim.again().delayed(leasehold_core::request::MAX_LOCK_DELAY + Duration::from_millis(1)))
        .await?;
    ensure_eq!(context.main().holder(&claim).await?, None, "a refused claim holds nothing");
    Ok(())
}

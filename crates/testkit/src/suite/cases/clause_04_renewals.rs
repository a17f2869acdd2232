//! Clause 4: a renewal extends what stands, and does nothing else.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Kind, Ttl,
    record::{Gone, Renewed},
    request::Renewal,
};

use super::super::{
    Context, Failure, Verdict,
    context::GLANCE,
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _, Taken},
};
use crate::{clock::Stopwatch, random};

pub(super) async fn clause_04_renew_extends(context: Context) -> Verdict {
    let whole = async |context: Context| {
        let claim = context.claim(&random::lease_id().to_string())?.for_(context.short());
        let since = Stopwatch::start();
        let taken = context.main().take(&claim).await?;
        let ttl = claim.ttl.as_duration();
        // Renewed past twice its TTL, it stands all the time.
        let until = Stopwatch::start();
        let mut last = since;
        while until.elapsed() < ttl * 2 {
            let sent = Stopwatch::start();
            let answer = context.main().renew_one(taken.renewal()).await?;
            if !matches!(answer, Renewed::Extended { .. }) {
                context.within(ttl, last)?;
                ensure!(false, "a renewal in time was refused: {answer:?}");
            }
            last = sent;
            tokio::time::sleep(ttl / 8).await;
        }
        let holder = context.main().holder(&claim).await?;
        context.within(ttl, last)?;
        ensure_eq!(holder, Some((taken.id(), taken.token())), "a renewed grant outlives its first TTL");
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn clause_04_renew_never_creates(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let renewal = Renewal {
        resource: claim.resource.clone(),
        lease_id: claim.lease_id,
        token: leasehold_core::Token::new(1)?,
        ttl: claim.ttl,
        lock_delay: Duration::ZERO,
    };
    context.main().gone(renewal).await?;
    ensure_eq!(context.main().holder(&claim).await?, None, "a renewal of nothing made something");
    let taken = context.main().take(&claim).await?;
    context.main().end(taken.release()).await?;
    context.main().gone(taken.renewal()).await?;
    ensure_eq!(context.main().holder(&claim).await?, None, "a renewal after the release made a grant");
    Ok(())
}

pub(super) async fn clause_04_renew_never_revives(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?.for_(context.short());
    let taken = context.main().take(&claim).await?;
    context.until_lapsed(&**context.main(), &claim).await?;
    // Nobody took it since, and still it is lost.
    let gone = context.main().gone(taken.renewal()).await?;
    ensure_eq!(gone, Gone::Expired, "an expired grant is told so");
    ensure_eq!(context.main().holder(&claim).await?, None, "an expired grant stays gone");
    context.main().take(&claim.again()).await?;
    Ok(())
}

pub(super) async fn clause_04_renew_never_shortens(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let short = context.short();
    context.main().extended(Renewal { ttl: short, ..taken.renewal() }).await?;
    let since = Stopwatch::start();
    while since.elapsed() < short.as_duration() * 3 {
        tokio::time::sleep(GLANCE).await;
    }
    let holder = context.main().holder(&taken.claim).await?;
    context.within(taken.claim.ttl.as_duration(), since)?;
    ensure_eq!(holder, Some((taken.id(), taken.token())), "a renewal with a lower TTL ended the grant early");
    context.main().extended(taken.renewal()).await?;
    Ok(())
}

/// More time left than the TTL on record is how a clock that was set back looks.
pub(super) async fn clause_04_a_lower_ttl_does_not_distort_the_record(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    for ttl in [context.short(), taken.claim.ttl, context.short()] {
        context.main().extended(Renewal { ttl, ..taken.renewal() }).await?;
        let record = context.main().look(&taken.claim).await?.record;
        let record = ensure_let!(Some(record) = record => record, "the grant stands");
        ensure!(
            record.remaining <= record.ttl.as_duration(),
            "more remains than the TTL on record: {record:?}"
        );
    }
    Ok(())
}

pub(super) async fn clause_04_renew_after_revocation_is_refused(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let revocation = taken.revocation();
    context.main().revoked(revocation.clone()).await?;
    let gone = context.main().gone(taken.renewal()).await?;
    let (by, reason, remaining) = ensure_let!(Gone::Revoked { by, reason, remaining } = gone => (by, reason, remaining), "a renewal is told");
    ensure_eq!((by, reason), (revocation.by, revocation.reason), "who revoked and why");
    ensure!(remaining <= taken.grant.ttl.as_duration(), "no more remains than was granted: {remaining:?}");
    ensure!(!remaining.is_zero(), "the holder has until the old end to stop");
    Ok(())
}

pub(super) async fn clause_04_a_batch_is_answered_in_order(context: Context) -> Verdict {
    let mut taken: Vec<Taken> = Vec::new();
    for name in ["a", "b", "c", "d"] {
        taken.push(context.main().take(&context.claim(name)?).await?);
    }
    context.main().end(taken[1].release()).await?;
    let mut batch: Vec<Renewal> = taken.iter().map(Taken::renewal).collect();
    batch[2].lease_id = random::lease_id();
    let max_ttl = context.main().profile().max_ttl;
    let too_long = (max_ttl < Ttl::MAX).then(|| Ttl::from_millis(max_ttl.as_millis() + 1)).transpose()?;
    if let Some(ttl) = too_long {
        batch.push(Renewal { ttl, ..taken[0].renewal() });
    }
    batch.push(Renewal { ..taken[3].renewal() });
    let answers = context.main().renew(batch.clone()).await?;
    ensure_eq!(answers.len(), batch.len(), "every renewal has an answer");
    let words: Vec<&str> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Renewed::Extended { .. }) => "extended",
            Ok(Renewed::Gone(Gone::Released)) => "released",
            Ok(Renewed::Gone(_)) => "gone",
            Ok(_) => "another answer",
            Err(error) if error.kind() == Kind::Invalid => "invalid",
            Err(_) => "error",
        })
        .collect();
    let mut expected = vec!["extended", "released", "gone", "extended"];
    expected.extend(too_long.map(|_| "invalid"));
    expected.push("extended");
    ensure_eq!(words, expected, "one answer per renewal, in order");
    Ok(())
}

pub(super) async fn clause_04_a_batch_may_be_empty_or_large(context: Context) -> Verdict {
    let answers = context.main().renew(Vec::new()).await?;
    ensure!(answers.is_empty(), "no renewals, no answers: got {answers:?}");
    // All at once: one after the other they take longer than the first one lasts, where the machine is busy.
    let mut tasks = Vec::new();
    for at in 0..150 {
        let (client, claim) = (Arc::clone(context.main()), context.claim(&format!("r{at}"))?);
        tasks.push(tokio::spawn(async move { client.take(&claim).await }));
    }
    let mut batch = Vec::new();
    for task in tasks {
        batch.push(task.await.map_err(|error| Failure::new(error.to_string()))??.renewal());
    }
    let answers = context.main().renew(batch).await?;
    ensure_eq!(answers.len(), 150, "every renewal has an answer");
    let refused = answers.iter().find(|answer| !matches!(answer, Ok(Renewed::Extended { .. })));
    ensure_eq!(refused, None, "all stand and all are extended");
    Ok(())
}

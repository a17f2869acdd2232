//! `once_per`: a job that need not run again yet.

use std::time::Duration;

use leasehold_core::{Kind, record::Acquired};

use super::super::{
    Context, Failure, Verdict,
    context::{GLANCE, PATIENCE},
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _},
};
use crate::{clock::Stopwatch, random};

const HOUR: Duration = Duration::from_secs(3_600);

/// An engine that cannot record successes refuses, instead of running the job each time.
async fn unsupported(context: &Context) -> Verdict {
    let answer = context.main().acquire(context.claim("nightly")?.once_per(HOUR)).await;
    let error = ensure_let!(Err(error) = answer => error, "an engine without once-per refuses it");
    ensure_eq!(error.kind(), Kind::Unsupported, "as unsupported");
    Ok(())
}

pub(super) async fn once_per_skips_within_the_period(context: Context) -> Verdict {
    if !context.can().once_per {
        return unsupported(&context).await;
    }
    let claim = context.claim("nightly")?.once_per(HOUR);
    let taken = context.main().take(&claim).await?;
    context.main().end(taken.success()).await?;
    let client = context.client().await?;
    for claim in [claim.again(), claim.again().queueing()] {
        let answer = client.acquire(claim).await?;
        let (started_us, due_in) = ensure_let!(
            Acquired::AlreadyDone { started_us, due_in } = answer => (started_us, due_in), "the job was done just now"
        );
        ensure_eq!(started_us, taken.grant.granted_us, "it was done when the successful run started");
        ensure!(due_in <= HOUR && due_in > HOUR / 2, "the period is not over for {due_in:?}");
    }
    let inspection = client.look(&claim).await?;
    ensure_eq!(
        inspection.last_success_us,
        Some(taken.grant.granted_us),
        "an inspection shows the last success"
    );
    ensure_eq!(
        (inspection.waiting, inspection.record),
        (0, None),
        "who has nothing to do neither waits nor holds"
    );
    // Another who does not ask for once-per is not kept out.
    client.take(&context.claim("nightly")?).await?;
    Ok(())
}

pub(super) async fn once_per_counts_from_the_start_of_the_run(context: Context) -> Verdict {
    if !context.can().once_per {
        return unsupported(&context).await;
    }
    let whole = async |context: Context| {
        let claim = context.claim(&random::lease_id().to_string())?;
        let taken = context.main().take(&claim).await?;
        let granted = Stopwatch::start();
        let run = context.short().as_duration() * 2;
        tokio::time::sleep(run).await;
        // Granted longer ago than the period: over, although it ended just now.
        let ran = granted.elapsed();
        context.main().end(taken.success()).await?;
        let next = claim.again().once_per(ran * 9 / 10);
        context.main().take(&next).await.map_err(|failure| failure.while_("a run counts from its start"))?;
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn once_per_ignores_failures(context: Context) -> Verdict {
    if !context.can().once_per {
        return unsupported(&context).await;
    }
    let claim = context.claim("nightly")?.once_per(HOUR);
    let failed = context.main().take(&claim).await?;
    context.main().end(failed.release()).await?;
    ensure_eq!(context.main().look(&claim).await?.last_success_us, None, "a failure is no success");
    let retried = context.main().take(&claim.again()).await?;
    context.main().end(retried.success()).await?;
    let unconditional = context.main().take(&context.claim("nightly")?).await?;
    context.main().end(unconditional.release()).await?;
    let last = context.main().look(&claim).await?.last_success_us;
    ensure_eq!(last, Some(retried.grant.granted_us), "a later failure leaves the last success");
    Ok(())
}

pub(super) async fn once_per_is_over_after_the_period(context: Context) -> Verdict {
    if !context.can().once_per {
        return unsupported(&context).await;
    }
    let period = context.short().as_duration() * 3;
    let claim = context.claim("nightly")?.once_per(period);
    let sent = Stopwatch::start();
    let taken = context.main().take(&claim).await?;
    context.main().end(taken.success()).await?;
    loop {
        match context.main().acquire(claim.again()).await? {
            Acquired::Granted(_) => break,
            Acquired::AlreadyDone { due_in, .. } => {
                ensure!(due_in <= period, "due in {due_in:?}, of {period:?}");
            }
            other => return Err(Failure::new(format!("the job is done, or due: got {other:?}"))),
        }
        ensure!(sent.elapsed() < period + PATIENCE, "the period of {period:?} did not end");
        tokio::time::sleep(GLANCE).await;
    }
    let after = sent.elapsed();
    ensure!(after >= period * 99 / 100, "the job was due again after {after:?} instead of {period:?}");
    Ok(())
}

pub(super) async fn once_per_is_recorded_by_the_holder_alone(context: Context) -> Verdict {
    if !context.can().once_per {
        return unsupported(&context).await;
    }
    let taken = context.main().take(&context.claim("nightly")?.once_per(HOUR)).await?;
    let mut wrong = taken.success();
    wrong.lease_id = random::lease_id();
    context.main().not_held(wrong).await?;
    context.main().end(taken.release()).await?;
    // Too late: the success comes with no grant to end, and must not be half recorded.
    context.main().not_held(taken.success()).await?;
    ensure_eq!(context.main().look(&taken.claim).await?.last_success_us, None, "nothing was recorded");
    context.main().take(&taken.claim.again()).await?;
    Ok(())
}

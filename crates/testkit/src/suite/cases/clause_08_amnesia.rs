//! Clause 8: an engine that may have forgotten says so, for as long as a forgotten grant can last.

use std::sync::Arc;

use leasehold_core::{
    Coordinator, Ttl,
    line::RESERVATION,
    record::{Acquired, Gone, Renewed},
    request::{Claim, Listing},
};

use super::super::{
    Context, Failure, Verdict,
    context::{GLANCE, PATIENCE},
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _},
};
use crate::{clock::Stopwatch, random};

/// A namespace that was made with this longest TTL and may have forgotten grants.
async fn forgetful(context: &Context, max_ttl: Ttl) -> Result<Option<Arc<dyn Coordinator>>, Failure> {
    let namespace = random::namespace();
    match context.help(context.engine().forget(&namespace, max_ttl)) {
        Some(connecting) => Ok(Some(connecting.await?)),
        None => Ok(None),
    }
}

fn queueing(context: &Context, max_ttl: Ttl) -> Result<Claim, Failure> {
    Ok(context.claim("orders/42")?.for_(max_ttl).queueing())
}

pub(super) async fn clause_08_a_forgetful_namespace_is_quarantined(context: Context) -> Verdict {
    let max_ttl = context.long();
    let Some(client) = forgetful(&context, max_ttl).await? else { return Ok(()) };
    let claim = context.claim("orders/42")?.for_(context.short());
    let answer = client.acquire(claim.clone()).await?;
    let (remaining, position) = ensure_let!(
        Acquired::Quarantined { remaining, position } = answer => (remaining, position), "nothing is granted in quarantine"
    );
    ensure!(
        !remaining.is_zero() && remaining <= max_ttl.as_duration(),
        "a quarantine lasts at most {max_ttl:?}: {remaining:?}"
    );
    ensure_eq!(position, None, "a claim that does not queue has no place");
    ensure_eq!(client.holder(&claim).await?, None, "a quarantined claim holds nothing");
    ensure!(
        client.list(Listing::new()).await?.quarantine.is_some(),
        "a list says that the namespace is quarantined"
    );
    Ok(())
}

pub(super) async fn clause_08_a_quarantine_ends(context: Context) -> Verdict {
    let max_ttl = context.short();
    let begin = Stopwatch::start();
    let Some(client) = forgetful(&context, max_ttl).await? else { return Ok(()) };
    let claim = context.claim("orders/42")?.for_(max_ttl);
    context.until_granted(&*client, &claim).await?;
    let lasted = begin.elapsed();
    ensure!(
        lasted >= max_ttl.as_duration() * 99 / 100,
        "a forgotten grant may last {max_ttl:?}; granted after {lasted:?}"
    );
    ensure_eq!(
        client.list(Listing::new()).await?.quarantine,
        None,
        "a list says that the quarantine is over"
    );
    Ok(())
}

pub(super) async fn clause_08_survivors_may_renew_in_quarantine(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let Some(connecting) = context.help(context.engine().forget(context.namespace(), context.long())) else {
        return Ok(());
    };
    let client = connecting.await?;
    let free = client.acquire(context.claim("orders/43")?).await?;
    ensure!(matches!(free, Acquired::Quarantined { .. }), "nothing is granted in quarantine: got {free:?}");
    match client.renew_one(taken.renewal()).await? {
        Renewed::Extended { .. } => {
            client.busy(&taken.claim.again()).await?;
            client.end(taken.release()).await?;
            let again = client.acquire(taken.claim.again()).await?;
            ensure!(
                matches!(again, Acquired::Quarantined { .. }),
                "a release does not end a quarantine: got {again:?}"
            );
        }
        Renewed::Gone(Gone::Absent) => {
            let again = client.acquire(taken.claim.again()).await?;
            ensure!(
                matches!(again, Acquired::Quarantined { .. }),
                "the forgotten grant may stand: got {again:?}"
            );
        }
        other => {
            return Err(Failure::new(format!(
                "a renewal is extended, or absent where it is forgotten: got {other:?}"
            )));
        }
    }
    Ok(())
}

/// A claim whose outcome was unknown is repeated while nobody knows what was forgotten: that its grant ended, perhaps, and that
/// another holds.
pub(super) async fn clause_08_nobody_adopts_in_quarantine(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let Some(connecting) = context.help(context.engine().forget(context.namespace(), context.long())) else {
        return Ok(());
    };
    let client = connecting.await?;
    for claim in [taken.claim.clone(), taken.claim.clone().queueing()] {
        let queues = claim.queue;
        let answer = client.acquire(claim).await?;
        let position = ensure_let!(
            Acquired::Quarantined { position, .. } = answer => position, "a repeated claim is granted nothing in quarantine"
        );
        let survived = client.holder(&taken.claim).await? == Some((taken.id(), taken.token()));
        ensure!(
            position.is_none() || queues && !survived,
            "whose grant stands has no place: got {position:?}"
        );
    }
    match client.renew_one(taken.renewal()).await? {
        Renewed::Extended { .. } | Renewed::Gone(Gone::Absent) => Ok(()),
        other => Err(Failure::new(format!(
            "the claim has changed nothing, so a renewal is extended, or absent where it is forgotten: got {other:?}"
        ))),
    }
}

/// A grant that its holder keeps by renewing is adopted by its own claim as soon as claims are granted again.
pub(super) async fn clause_08_a_survivor_is_adopted_after_the_quarantine(context: Context) -> Verdict {
    let whole = async |context: Context| {
        let (max_ttl, namespace) = (context.short(), random::namespace());
        let forget = || context.help(context.engine().forget(&namespace, max_ttl));
        let Some(connecting) = forget() else { return Ok(()) };
        let claim = context.claim("orders/42")?.for_(max_ttl);
        // On the way of the answer the grant runs already.
        let (taken, mut kept) = context.until_granted_since(&*connecting.await?, &claim).await?;
        let Some(connecting) = forget() else { return Ok(()) };
        let client = connecting.await?;
        let begin = Stopwatch::start();
        loop {
            let sent = Stopwatch::start();
            match client.renew_one(taken.renewal()).await? {
                Renewed::Extended { .. } => kept = sent,
                Renewed::Gone(Gone::Absent) => return Ok(()), // forgotten, too
                other => {
                    context.within(max_ttl.as_duration(), kept)?;
                    return Err(Failure::new(format!("a survivor is renewed in quarantine: got {other:?}")));
                }
            }
            match client.acquire(claim.clone()).await? {
                Acquired::Granted(grant) if grant.adopted => {
                    ensure!(grant.token >= taken.token(), "a token fell: {:?}", grant.token);
                    // Where a majority decides, it may be made up of nodes that had to be given the grant anew.
                    let same = !context.is_fifo() || grant.token == taken.token();
                    ensure!(same, "it is the same grant: got {grant:?}");
                    return Ok(());
                }
                Acquired::Quarantined { .. } => {}
                other => {
                    context.within(max_ttl.as_duration(), kept)?;
                    return Err(Failure::new(format!("a survivor is adopted by its claim: got {other:?}")));
                }
            }
            ensure!(begin.elapsed() < max_ttl.as_duration() + PATIENCE, "the quarantine did not end");
            tokio::time::sleep(GLANCE).await;
        }
    };
    context.in_time(whole).await
}

pub(super) async fn clause_08_places_may_be_taken_in_quarantine(context: Context) -> Verdict {
    let max_ttl = context.short();
    let Some(client) = forgetful(&context, max_ttl).await? else { return Ok(()) };
    if !context.is_fifo() {
        return Ok(());
    }
    let whole = queueing(&context, max_ttl)?;
    let (first, second) = (whole.again(), whole.again());
    let mut places = Vec::new();
    for claim in [&first, &second] {
        if let Acquired::Quarantined { position, .. } = client.acquire(claim.clone()).await? {
            places.push(position);
        }
    }
    let expected: Vec<Option<u32>> = (0..).map(Some).take(places.len()).collect();
    ensure_eq!(places, expected, "places are given in order");
    context.until_granted(&*client, &first).await?;
    client.busy(&second).await?;
    Ok(())
}

/// Those who queued up while nothing was granted are served in order when it is.
pub(super) async fn clause_08_the_order_holds_when_a_quarantine_ends(context: Context) -> Verdict {
    if !context.is_fifo() {
        return Ok(());
    }
    let whole = async |context: Context| {
        let max_ttl = context.short();
        let Some(client) = forgetful(&context, max_ttl).await? else { return Ok(()) };
        let claim = queueing(&context, max_ttl)?;
        let (first, second) = (claim.again(), claim.again());
        for claim in [&first, &second] {
            let answer = client.acquire(claim.clone()).await?;
            if !matches!(answer, Acquired::Quarantined { .. }) {
                return Err(Failure::too_slow("the quarantine was over before the waiters had come"));
            }
        }
        let (begin, mut quarantined) = (Stopwatch::start(), Stopwatch::start());
        loop {
            let sent = Stopwatch::start();
            match client.acquire(second.clone()).await? {
                Acquired::Quarantined { .. } => quarantined = sent,
                Acquired::Queued(_) => break,
                other => {
                    context.within(RESERVATION, quarantined)?;
                    return Err(Failure::new(format!("the second in line came first: got {other:?}")));
                }
            }
            ensure!(begin.elapsed() < max_ttl.as_duration() + PATIENCE, "the quarantine did not end");
            tokio::time::sleep(GLANCE).await;
        }
        client.take(&first).await.map_err(|failure| failure.while_("the first in line asks"))?;
        Ok(())
    };
    context.in_time(whole).await
}

pub(super) async fn clause_08_a_ready_namespace_is_not_quarantined(context: Context) -> Verdict {
    ensure_eq!(
        context.main().list(Listing::new()).await?.quarantine,
        None,
        "a namespace that was made ready grants"
    );
    context.main().take(&context.claim("orders/42")?).await?;
    let client = context.client().await?;
    client.take(&context.claim("orders/43")?).await?;
    Ok(())
}

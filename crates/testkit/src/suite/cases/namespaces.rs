//! The namespace itself: what a client is told when it connects, and `init`.

use leasehold_core::{Kind, Ttl, request::Preparation};

use super::super::{
    Context, Verdict,
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _},
};

pub(super) async fn profile_keeps_the_engines_word(context: Context) -> Verdict {
    let profile = context.main().profile();
    ensure_eq!(
        profile.capabilities,
        context.engine().capabilities(),
        "the engine can do what it is supposed to"
    );
    let word = !profile.engine.is_empty()
        && profile.engine.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    ensure!(word, "an engine's name is one lower-case word: {:?}", profile.engine);
    ensure!(profile.place.starts_with(profile.engine), "the place names the engine: {:?}", profile.place);
    ensure!(!profile.guarantee.after_failover.is_empty(), "the label says what happens after a failover");
    ensure!(!profile.guarantee.caveat.is_empty(), "the label says what its reader must know");
    Ok(())
}

pub(super) async fn prepare_finds_an_existing_namespace(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let prepared = context.main().prepare(Preparation::default()).await?;
    ensure!(!prepared.created, "the namespace was there");
    ensure_eq!(
        prepared.max_ttl,
        context.main().profile().max_ttl,
        "its longest TTL is what clients are told"
    );
    ensure_eq!(prepared.quarantine, None, "it is ready");
    ensure!(!prepared.place.is_empty(), "it says where it is");
    context.main().extended(taken.renewal()).await?;
    Ok(())
}

pub(super) async fn prepare_fresh_is_refused_where_the_namespace_exists(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let answer = context.main().prepare(Preparation { fresh: true, max_ttl: None }).await;
    let error = ensure_let!(Err(error) = answer => error, "nobody can vouch for a namespace that is in use");
    ensure!(!error.is_transient(), "asking again will not help: {error:?}");
    ensure!(error.kind() != Kind::Corrupt, "nothing is broken: {error:?}");
    context.main().extended(taken.renewal()).await?;
    Ok(())
}

pub(super) async fn prepare_sets_the_longest_ttl(context: Context) -> Verdict {
    let max_ttl = Ttl::new(context.short().as_duration() * 4)?;
    let prepared = context.main().prepare(Preparation { fresh: false, max_ttl: Some(max_ttl) }).await?;
    ensure_eq!(prepared.max_ttl, max_ttl, "the longest TTL is set");
    let prepared = context.main().prepare(Preparation::default()).await?;
    ensure_eq!(prepared.max_ttl, max_ttl, "and stays");
    let client = context.client().await?;
    ensure_eq!(client.profile().max_ttl, max_ttl, "a new client is told");
    let above = Ttl::from_millis(max_ttl.as_millis() + 1)?;
    client.refused(&context.claim("orders/42")?.for_(above)).await?;
    client.take(&context.claim("orders/42")?.for_(max_ttl)).await?;
    Ok(())
}

pub(super) async fn inspect_of_an_unknown_resource_is_empty(context: Context) -> Verdict {
    let claim = context.claim("never seen")?;
    let inspection = context.main().look(&claim).await?;
    ensure_eq!(inspection.resource, claim.resource, "it is about what was asked");
    ensure_eq!(inspection.record, None, "nobody holds it");
    ensure_eq!((inspection.last_token, inspection.last_success_us), (None, None), "nothing is remembered");
    ensure_eq!(
        (inspection.last_end, inspection.waiters, inspection.waiting),
        (None, Vec::new(), 0),
        "nothing at all"
    );
    Ok(())
}

//! Forgetting on demand: what nobody has used for a week, all of it, and nothing else.

use std::time::Duration;

use leasehold_core::{Kind, record::Purged, request::Purge};

use super::super::{
    Context, Failure, Verdict,
    failure::{ensure, ensure_eq},
    shape::{Expect as _, Shape as _},
};

/// Longer than anything is remembered.
const AGES: Duration = Duration::from_secs(8 * 86_400);

/// Step after step through the namespace. Those found idle; `None` on an engine that cannot be asked, and says so.
async fn purge(context: &Context, dry_run: bool) -> Result<Option<Vec<String>>, Failure> {
    let (mut after, mut found) = (None, Vec::new());
    for _ in 0..10_000 {
        let step = match context.main().purge(Purge { after: after.clone(), dry_run }).await {
            Err(error) if error.kind() == Kind::Unsupported => return Ok(None),
            other => other?,
        };
        let Purged { looked_at, idle, next } = step;
        ensure!(
            idle.len() as u64 <= looked_at,
            "more were idle than were looked at: {idle:?} of {looked_at}"
        );
        found.extend(idle.iter().map(|resource| resource.as_str().to_owned()));
        if next.is_none() {
            return Ok(Some(found));
        }
        ensure!(next != after, "a step goes on where it began: {next:?}");
        after = next;
    }
    Err(Failure::new("the steps do not come to an end"))
}

pub(super) async fn purge_leaves_what_was_used(context: Context) -> Verdict {
    let held = context.main().take(&context.claim("held")?).await?;
    let mut released = Vec::new();
    for name in ["a/b", "a b%_\u{e9}", "released"] {
        let taken = context.main().take(&context.claim(name)?).await?;
        context.main().end(taken.success()).await?;
        released.push(taken);
    }
    for dry_run in [true, false, false] {
        let Some(idle) = purge(&context, dry_run).await? else { return Ok(()) };
        ensure_eq!(idle, Vec::<String>::new(), "nothing has been idle for a week");
    }
    context.main().extended(held.renewal()).await?;
    for taken in released {
        let seen = context.main().look(&taken.claim).await?;
        ensure_eq!(seen.last_token, Some(taken.token()), "its token is remembered");
    }
    Ok(())
}

pub(super) async fn purge_forgets_what_nobody_has_used_for_a_week(context: Context) -> Verdict {
    context.in_time(forgets).await
}

async fn forgets(context: Context) -> Verdict {
    let old = context.main().take(&context.claim("old")?).await?;
    context.main().end(old.release()).await?;
    if context.help(context.engine().pass_time(context.namespace(), AGES)).is_none() {
        return Ok(());
    }
    // A dry run changes nothing, so the second finds the same. Clients forget by themselves too, at a time of their own.
    for _ in 0..2 {
        let Some(idle) = purge(&context, true).await? else { return Ok(()) };
        if !idle.iter().any(|name| name == "old") {
            let seen = context.main().look(&old.claim).await?;
            ensure_eq!(seen.last_token, None, "it is idle, and was not found so");
            return Err(Failure::too_slow("somebody else has forgotten it".to_owned()));
        }
    }
    let fresh = context.main().take(&context.claim("fresh")?).await?;
    context.main().end(fresh.release()).await?;
    let idle = purge(&context, false).await?.unwrap_or_default();
    ensure!(idle.iter().all(|name| name != "fresh"), "it was used just now: {idle:?}");
    let idle = purge(&context, true).await?.unwrap_or_default();
    ensure_eq!(idle, Vec::<String>::new(), "all that is idle is forgotten");
    ensure_eq!(context.main().look(&old.claim).await?.last_token, None, "it is forgotten");
    let next = context.main().take(&old.claim.again()).await?;
    ensure!(
        next.token() > old.token(),
        "tokens rise across a purge: {:?} after {:?}",
        next.token(),
        old.token()
    );
    context.main().end(next.release()).await
}

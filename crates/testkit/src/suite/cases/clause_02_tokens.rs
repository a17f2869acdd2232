//! Clause 2: tokens rise for ever.

use leasehold_core::{Kind, Token};

use super::super::{
    Context, Failure, Verdict,
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _},
};
use crate::clock::unix_us;

/// A minute: well inside the ten that a floor may be ahead.
const LEAD_US: u64 = 60_000_000;

/// A floor ahead of every clock: tokens above it rise only for an engine that remembers them.
fn ahead() -> Result<Token, Failure> {
    Ok(Token::new(unix_us() + LEAD_US)?)
}

pub(super) async fn clause_02_tokens_rise_across_release(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let client = context.client().await?;
    let raised = client.take(&claim.again().above(ahead()?)).await?;
    client.end(raised.release()).await?;
    let mut last = Some(raised.token());
    for _ in 0..40 {
        let taken = client.take(&claim.again()).await?;
        ensure!(last.is_none_or(|last| taken.token() > last), "token {} follows {last:?}", taken.token());
        last = Some(taken.token());
        client.end(taken.release()).await?;
    }
    ensure_eq!(
        client.look(&claim).await?.last_token,
        last,
        "the highest token is remembered when nobody holds"
    );
    Ok(())
}

pub(super) async fn clause_02_tokens_rise_across_expiry(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?.for_(context.short());
    let first = context.main().take(&claim.again().above(ahead()?)).await?;
    let second = context.until_granted(&**context.main(), &claim.again()).await?;
    ensure!(second.token() > first.token(), "token {} follows the expired {}", second.token(), first.token());
    let last = context.until_granted(&**context.main(), &claim.again()).await?;
    ensure!(last.token() > second.token(), "token {} follows the expired {}", last.token(), second.token());
    Ok(())
}

pub(super) async fn clause_02_tokens_rise_across_revocation(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let first = context.main().take(&claim.again().above(ahead()?)).await?;
    context.main().revoked(first.revocation_now()).await?;
    let second = context.main().take(&claim.again()).await?;
    ensure!(second.token() > first.token(), "token {} follows the revoked {}", second.token(), first.token());
    Ok(())
}

pub(super) async fn clause_02_tokens_rise_across_reconnection(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let first = {
        let client = context.client().await?;
        let taken = client.take(&claim.again().above(ahead()?)).await?;
        client.end(taken.release()).await?;
        taken
    };
    let client = context.client().await?;
    let second = client.take(&claim.again()).await?;
    ensure!(
        second.token() > first.token(),
        "token {} follows {} of a client that is gone",
        second.token(),
        first.token()
    );
    Ok(())
}

pub(super) async fn clause_02_a_token_is_above_the_floor(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let first = context.main().take(&claim).await?;
    context.main().end(first.release()).await?;
    let floor = Token::new(first.token().get() + LEAD_US)?;
    let second = context.main().take(&claim.again().above(floor)).await?;
    ensure!(second.token() > floor, "token {} is not above the floor {floor}", second.token());
    context.main().end(second.release()).await?;
    let third = context.main().take(&claim.again().above(first.token())).await?;
    ensure!(
        third.token() > second.token(),
        "a low floor does not pull tokens back: {} after {}",
        third.token(),
        second.token()
    );
    Ok(())
}

pub(super) async fn clause_02_a_wild_floor_is_refused(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let wild = Token::new(Token::MAX)?;
    let answer = context.main().acquire(claim.again().above(wild)).await;
    let error = ensure_let!(Err(error) = answer => error, "a floor that no grant can have had poisons the number line");
    ensure_eq!(error.kind(), Kind::Invalid, "a wild floor is an invalid request");
    ensure_eq!(context.main().holder(&claim).await?, None, "a refused claim holds nothing");
    let taken = context.main().take(&claim).await?;
    ensure!(
        taken.token().get() < Token::MAX / 2,
        "the refused floor still raised the token to {}",
        taken.token()
    );
    Ok(())
}

pub(super) async fn clause_02_renewal_keeps_the_token(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    for _ in 0..5 {
        context.main().extended(taken.renewal()).await?;
    }
    let inspection = context.main().look(&taken.claim).await?;
    ensure_eq!(
        inspection.record.map(|record| record.token),
        Some(taken.token()),
        "the grant keeps its token"
    );
    ensure_eq!(inspection.last_token, Some(taken.token()), "a renewal draws no token");
    Ok(())
}

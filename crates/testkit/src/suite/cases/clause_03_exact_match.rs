//! Clause 3: renew and release hit exactly one grant, or nothing.

use leasehold_core::{Token, record::Gone, request::Release};

use super::super::{
    Context, Failure, Verdict,
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _, Taken, take_back},
};
use crate::random;

async fn untouched(context: &Context, taken: &Taken) -> Verdict {
    let holder = context.main().holder(&taken.claim).await?;
    ensure_eq!(holder, Some((taken.id(), taken.token())), "the grant stands as it was");
    context.main().extended(taken.renewal()).await?;
    Ok(())
}

fn neighbours(token: Token) -> Result<[Token; 2], Failure> {
    Ok([Token::new(token.get() - 1)?, Token::new(token.get() + 1)?])
}

pub(super) async fn clause_03_renewal_matches_the_token(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    for token in neighbours(taken.token())? {
        let mut renewal = taken.renewal();
        renewal.token = token;
        context.main().gone(renewal).await.map_err(|failure| failure.while_(format!("token {token}")))?;
    }
    untouched(&context, &taken).await
}

pub(super) async fn clause_03_renewal_matches_the_lease_id(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let mut renewal = taken.renewal();
    renewal.lease_id = random::lease_id();
    context.client().await?.gone(renewal).await?;
    untouched(&context, &taken).await
}

pub(super) async fn clause_03_release_matches_the_token(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    for token in neighbours(taken.token())? {
        let release = Release { token: Some(token), ..taken.release() };
        context.main().not_held(release).await.map_err(|failure| failure.while_(format!("token {token}")))?;
    }
    untouched(&context, &taken).await
}

pub(super) async fn clause_03_release_matches_the_lease_id(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let release = Release { lease_id: random::lease_id(), ..taken.release() };
    context.client().await?.not_held(release).await?;
    untouched(&context, &taken).await
}

pub(super) async fn clause_03_release_by_lease_id_alone_is_for_the_own_claim(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    context.client().await?.not_held(take_back(&taken.claim.again())).await?;
    untouched(&context, &taken).await?;
    context.main().end(take_back(&taken.claim)).await?;
    ensure_eq!(context.main().holder(&taken.claim).await?, None, "the own claim is taken back");
    Ok(())
}

pub(super) async fn clause_03_a_late_release_leaves_the_successor(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let old = context.main().take(&claim.again().for_(context.short())).await?;
    let client = context.client().await?;
    let successor = context.until_granted(&*client, &claim.again()).await?;
    for release in [old.release(), take_back(&old.claim), old.success()] {
        context.main().not_held(release).await?;
    }
    context.main().gone(old.renewal()).await?;
    ensure_eq!(context.main().look(&claim).await?.last_success_us, None, "a late success is not recorded");
    untouched(&context, &successor).await
}

async fn both(context: &Context, taken: &Taken, expected: impl Fn(&Gone) -> bool, name: &str) -> Verdict {
    let gone = context.main().gone(taken.renewal()).await?;
    ensure!(expected(&gone), "a renewal should be told {name}: got {gone:?}");
    let gone = context.main().not_held(taken.release()).await?;
    ensure!(expected(&gone), "a release should be told {name}: got {gone:?}");
    Ok(())
}

pub(super) async fn clause_03_gone_says_released(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    context.main().end(taken.release()).await?;
    both(&context, &taken, |gone| *gone == Gone::Released, "that it was released").await
}

pub(super) async fn clause_03_gone_says_expired(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?.for_(context.short())).await?;
    context.until_lapsed(&**context.main(), &taken.claim).await?;
    both(&context, &taken, |gone| *gone == Gone::Expired, "that it expired").await
}

pub(super) async fn clause_03_gone_says_superseded(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let old = context.main().take(&claim).await?;
    context.main().end(old.release()).await?;
    let middle = context.main().take(&claim.again()).await?;
    context.main().end(middle.release()).await?;
    let new = context.main().take(&claim.again()).await?;
    let token = new.token();
    both(&context, &old, |gone| *gone == Gone::Superseded { token }, "who followed").await
}

pub(super) async fn clause_03_gone_says_revoked(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("orders/42")?).await?;
    let revocation = taken.revocation_now();
    context.main().revoked(revocation.clone()).await?;
    let told = |gone: &Gone| {
        matches!(gone, Gone::Revoked { by, reason, remaining }
            if *by == revocation.by && *reason == revocation.reason && remaining.is_zero())
    };
    both(&context, &taken, told, "who revoked and why").await
}

pub(super) async fn clause_03_gone_says_absent(context: Context) -> Verdict {
    let real = context.main().take(&context.claim("elsewhere")?).await?;
    let never = Taken { claim: context.claim("orders/42")?, grant: real.grant };
    both(&context, &never, |gone| *gone == Gone::Absent, "that there never was one").await?;
    let gone = context.main().not_held(take_back(&never.claim)).await?;
    ensure_let!(Gone::Absent = gone => (), "a claim that was never made is absent");
    ensure_eq!(context.main().holder(&never.claim).await?, None, "nothing was made");
    Ok(())
}

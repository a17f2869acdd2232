//! Clause 1: one holder per resource, and what it looks like to the others.

use std::collections::BTreeSet;

use leasehold_core::request::Listing;

use super::super::{
    Context, Verdict,
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _},
};

pub(super) async fn clause_01_a_free_resource_is_granted(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let taken = context.main().take(&claim).await?;
    ensure!(!taken.grant.adopted && !taken.grant.after_lapse, "a first grant is new: got {:?}", taken.grant);
    let record = ensure_let!(Some(record) = context.main().look(&claim).await?.record => record, "a grant is on record");
    ensure_eq!((record.lease_id, record.token), (taken.id(), taken.token()), "the record is of this grant");
    ensure_eq!(record.holder_id, claim.holder_id, "the record names the holding process");
    ensure_eq!(record.label, claim.label, "the record carries the label");
    ensure_eq!(record.granted_us, taken.grant.granted_us, "the record dates the grant as the answer did");
    ensure_eq!(record.revoked, None, "nobody has revoked it");
    ensure!(
        record.ttl >= claim.ttl,
        "the record's TTL {:?} is below the claim's {:?}",
        record.ttl,
        claim.ttl
    );
    ensure!(record.remaining <= record.ttl.as_duration(), "more remains than was given: {record:?}");
    Ok(())
}

pub(super) async fn clause_01_a_busy_answer_names_the_holder(context: Context) -> Verdict {
    let claim = context.claim("orders/42")?;
    let taken = context.main().take(&claim.called("db-1:99:nightly")).await?;
    let busy = context.client().await?.busy(&taken.claim.again().called("db-2:1:nightly")).await?;
    ensure_eq!(
        (busy.holder.lease_id, busy.holder.token),
        (taken.id(), taken.token()),
        "busy names the grant"
    );
    ensure_eq!(busy.holder.label.as_str(), "db-1:99:nightly", "busy names the holder");
    ensure_eq!(busy.holder.granted_us, taken.grant.granted_us, "busy says since when");
    ensure!(!busy.holder.remaining.is_zero(), "a grant just made has time left: {busy:?}");
    ensure_eq!(busy.position, None, "a claim that does not queue has no place");
    Ok(())
}

pub(super) async fn clause_01_resources_do_not_interfere(context: Context) -> Verdict {
    let client = context.client().await?;
    let first = context.main().take(&context.claim("a")?).await?;
    let second = client.take(&context.claim("b")?).await?;
    client.end(second.release()).await?;
    ensure_eq!(
        client.holder(&first.claim).await?,
        Some((first.id(), first.token())),
        "ending b left a alone"
    );
    context.main().extended(first.renewal()).await?;
    Ok(())
}

pub(super) async fn clause_01_namespaces_do_not_interfere(context: Context) -> Verdict {
    let elsewhere = crate::random::namespace();
    let other = context.engine().connect(&elsewhere).await?;
    let here = context.main().take(&context.claim("orders/42")?).await?;
    let there = other.take(&here.claim.again()).await?;
    other.end(there.release()).await?;
    ensure_eq!(
        context.main().holder(&here.claim).await?,
        Some((here.id(), here.token())),
        "a release in another namespace left this one alone"
    );
    let page = other.list(Listing::new()).await?;
    ensure!(page.items.is_empty(), "a namespace lists only its own resources: got {:?}", page.items);
    other.gone(here.renewal()).await?;
    Ok(())
}

/// Names that meet somewhere when an engine folds case, trims, normalises, splits, cuts or takes a character for syntax.
const HOSTILE: &[&str] = &[
    "a",
    "A",
    "a ",
    " a",
    "a\t",
    "a\n",
    "a/b",
    "a/b/",
    "a//b",
    "/",
    "//",
    ".",
    "..",
    "a.",
    "a\\",
    "a:b",
    "a::b",
    "%",
    "%%",
    "%2F",
    "%25",
    "_",
    "a_b",
    "a%b",
    "*",
    "a*",
    "?",
    "[a]",
    "{a}",
    "{}",
    "{",
    "}",
    "a{b}c",
    "'",
    "''",
    "'; DROP TABLE x; --",
    "\"",
    "`",
    "$1",
    "${HOME}",
    "\u{1}",
    "\u{1b}[2J",
    "\u{7f}",
    "\u{e9}",
    "e\u{301}",
    "ß",
    "ss",
    "İ",
    "i",
    "ı",
    "\u{202e}x",
    "\u{200b}",
    "\u{feff}a",
    "\u{fffd}",
    "🦀",
    "日本語",
    "NULL",
    "null",
    "-1",
    "0",
    "00",
    "1e3",
    "1000",
    "CON",
    "meta",
    "base",
];

pub(super) async fn clause_01_hostile_names_are_kept_apart(context: Context) -> Verdict {
    let long = ["x".repeat(255), "x".repeat(254), "é".repeat(127), format!("{}y", "x".repeat(254))];
    let names: Vec<&str> = HOSTILE.iter().copied().chain(long.iter().map(String::as_str)).collect();
    let mut tokens = Vec::new();
    for &name in &names {
        let claim =
            context.claim(name)?.called(&format!("label of {name}").chars().take(60).collect::<String>());
        let taken = context
            .main()
            .take(&claim)
            .await
            .map_err(|failure| failure.while_(format!("claiming {name:?}")))?;
        tokens.push(taken);
    }
    for taken in &tokens {
        let inspection = context.main().look(&taken.claim).await?;
        ensure_eq!(
            inspection.resource,
            taken.claim.resource,
            "an inspection names the resource as it was given"
        );
        let record = inspection.record.map(|record| (record.lease_id, record.label));
        ensure_eq!(
            record,
            Some((taken.id(), taken.claim.label.clone())),
            "{:?} has its own record",
            taken.claim.resource
        );
    }
    let page = context.main().list(Listing::new()).await?;
    let listed: Vec<&str> = page.items.iter().map(|item| item.resource.as_str()).collect();
    let distinct: BTreeSet<&str> = listed.iter().copied().collect();
    ensure_eq!(listed.len(), distinct.len(), "nothing is listed twice");
    ensure_eq!(
        distinct,
        names.iter().copied().collect::<BTreeSet<_>>(),
        "the list names what is held, as it was given"
    );
    Ok(())
}

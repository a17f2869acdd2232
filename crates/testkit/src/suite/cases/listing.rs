//! Lists: what is shown, and page by page without gaps.

use std::collections::BTreeSet;

use leasehold_core::{Kind, Resource, request::Listing};

use super::super::{
    Context, Failure, Verdict,
    failure::{ensure, ensure_eq, ensure_let},
    shape::{Expect as _, Shape as _},
};

async fn names(context: &Context, listing: Listing) -> Result<Vec<String>, Failure> {
    let page = context.main().list(listing).await?;
    Ok(page.items.iter().map(|item| item.resource.as_str().to_owned()).collect())
}

fn below(prefix: &str) -> Listing {
    Listing { prefix: prefix.to_owned(), ..Listing::new() }
}

pub(super) async fn list_shows_what_is_held_or_waited_for(context: Context) -> Verdict {
    let held = context.main().take(&context.claim("held")?).await?;
    let waiter = context.claim("held")?.queueing();
    context.main().busy(&waiter).await?;
    let released = context.main().take(&context.claim("released")?).await?;
    context.main().end(released.release()).await?;
    let page = context.main().list(Listing::new()).await?;
    ensure!(!page.more, "everything fits one page");
    let item = ensure_let!([item] = &page.items[..] => item, "one resource is held");
    ensure_eq!(item.resource.as_str(), "held", "the held one");
    ensure_eq!(item.record.as_ref().map(|record| record.token), Some(held.token()), "with its record");
    ensure_eq!(item.waiting, u32::from(context.is_fifo()), "with the number of those who wait");
    ensure!(item.waiters.is_empty(), "a list counts waiters and does not name them");
    Ok(())
}

/// Characters that mean something to engines' pattern languages mean nothing here.
pub(super) async fn list_takes_a_prefix_literally(context: Context) -> Verdict {
    let all =
        ["a%b", "a_b", "axb", "a*b", "A%b", "a/b/c", "a/bc", "é1", "e\u{301}1", "[x]", "x", "日本", "日"];
    for name in all {
        context.main().take(&context.claim(name)?).await?;
    }
    for prefix in [
        "", "a", "a%", "a_", "a*", "A", "a/", "a/b/", "é", "[", "[x", "x", "日", "日本", "nothing", "%", "_",
        "*", "?",
    ] {
        let found: BTreeSet<String> = names(&context, below(prefix)).await?.into_iter().collect();
        let expected: BTreeSet<String> =
            all.iter().filter(|name| name.starts_with(prefix)).map(|&name| name.to_owned()).collect();
        ensure_eq!(found, expected, "the list below {prefix:?}");
    }
    Ok(())
}

pub(super) async fn list_pages_without_gaps(context: Context) -> Verdict {
    let mut expected = BTreeSet::new();
    for at in 0..23 {
        let name = format!("p/{at}");
        context.main().take(&context.claim(&name)?).await?;
        context.main().take(&context.claim(&format!("q/{at}"))?).await?;
        expected.insert(name);
    }
    for limit in [1, 5, 23, 24] {
        let (mut seen, mut after, mut pages) = (Vec::new(), None::<Resource>, 0);
        loop {
            let page = context.main().list(Listing { after: after.take(), limit, ..below("p/") }).await?;
            ensure!(
                page.items.len() <= usize::from(limit),
                "a page of {limit} has {} resources",
                page.items.len()
            );
            ensure!(
                !page.more || page.items.len() == usize::from(limit),
                "more follow, and the page is not full"
            );
            seen.extend(page.items.iter().map(|item| item.resource.as_str().to_owned()));
            after = page.items.last().map(|item| item.resource.clone());
            pages += 1;
            ensure!(pages <= 24, "the pages do not end");
            if !page.more {
                break;
            }
        }
        ensure_eq!(seen.len(), expected.len(), "nothing twice, in pages of {limit}");
        ensure_eq!(
            seen.into_iter().collect::<BTreeSet<_>>(),
            expected,
            "nothing left out, in pages of {limit}"
        );
    }
    // A page may start after a resource that is gone since.
    let after = Some(Resource::new("p/")?);
    let rest = names(&context, Listing { after, ..below("p/") }).await?;
    ensure_eq!(rest.len(), 23, "a page starts after a name, whether or not it is there");
    Ok(())
}

pub(super) async fn list_refuses_wrong_limits(context: Context) -> Verdict {
    for limit in [0, Listing::MAX + 1, u16::MAX] {
        let answer = context.main().list(Listing { limit, ..Listing::new() }).await;
        let error = ensure_let!(Err(error) = answer => error, "a page of {limit} is refused");
        ensure_eq!(error.kind(), Kind::Invalid, "as invalid");
    }
    ensure!(names(&context, Listing::new()).await?.is_empty(), "an empty namespace lists nothing");
    Ok(())
}

pub(super) async fn list_remembers_the_free(context: Context) -> Verdict {
    let taken = context.main().take(&context.claim("free")?).await?;
    context.main().end(taken.success()).await?;
    ensure!(names(&context, Listing::new()).await?.is_empty(), "what is free is not listed unasked");
    let page = context.main().list(Listing { free_too: true, ..Listing::new() }).await?;
    let item = ensure_let!([item] = &page.items[..] => item, "what is free is remembered");
    ensure_eq!(item.last_token, Some(taken.token()), "with its highest token");
    ensure_eq!(item.last_end.as_ref().map(|end| end.lease_id), Some(taken.id()), "with its last end");
    ensure_eq!(item.record, None, "with no record");
    Ok(())
}

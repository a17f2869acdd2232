//! Looks: one resource, or a page of them, as a majority sees it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use leasehold_core::{
    Error, Resource,
    record::{Inspection, Page},
    request::Listing,
};

use super::{
    circle::{Circle, News, Patience, no_majority},
    member::{Told, Weight},
    merge,
};
use crate::coordinator::{
    redis::{
        answer::{self, Seen, Shown},
        op::Op,
    },
    rules,
};

/// Names read at a time from each node.
pub(super) const NAMES: u64 = 256;

/// Reads from all nodes, and waits for as many as are not stopped: at least a majority. Stops early when `enough` says so.
pub(super) async fn read<T>(
    circle: &Circle,
    ops: &[Op],
    parse: impl Fn(Told) -> Result<T, Error>,
    enough: impl Fn(&[T]) -> bool,
) -> Result<Vec<T>, Error> {
    let mut asked = circle.ask(ops, Weight::Rest, Patience::UNHURRIED);
    let (mut heard, mut failures) = (Vec::new(), Vec::new());
    let mut open: Vec<usize> = (0..circle.quorum.nodes()).collect();
    let mut stopped = None;
    loop {
        match asked.next().await {
            News::From(from, reply) => {
                open.retain(|at| *at != from);
                match reply.and_then(&parse) {
                    Ok(value) => heard.push(value),
                    Err(error) => failures.push(error),
                }
            }
            News::Late => stopped = Some(circle.stopped()),
            News::Over | News::Silence => break,
        }
        // Nodes that differ are asked all, as far as they answer: what one of them lacks, or still has, may be under way.
        let rest = stopped.as_ref().is_some_and(|stopped| open.iter().all(|at| stopped.contains(at)));
        if (rest && heard.len() >= circle.quorum.majority()) || enough(&heard) {
            break;
        }
    }
    if heard.len() >= circle.quorum.majority() {
        return Ok(heard);
    }
    match failures.iter().find(|error| !error.is_transient()) {
        Some(refusal) if failures.len() > circle.quorum.minority() => Err(refusal.clone()),
        _ => Err(no_majority(circle.quorum, heard.len(), &failures)),
    }
}

fn only(told: Told) -> redis::Value {
    told.answers.into_iter().next().unwrap_or(redis::Value::Nil)
}

/// One resource.
pub(super) async fn inspect(circle: Arc<Circle>, resource: Resource) -> Result<Inspection, Error> {
    let op = Op::inspect(&circle.space, &Circle::name(&resource), 0);
    let clear = |heard: &[Seen]| merge::is_clear(circle.quorum, heard);
    let heard = read(&circle, &[op], |told| answer::seen(only(told)), clear).await?;
    Ok(merge::seen(circle.quorum, resource, &heard))
}

/// What every node is and some of its names.
pub(super) async fn shown(circle: &Circle, op: Op) -> Result<Vec<Shown>, Error> {
    read(circle, &[op], |told| answer::shown(only(told)), |_| false).await
}

/// In how long a majority grants, while none does.
pub(super) fn quarantine(circle: &Circle, each: &[Option<Duration>]) -> Option<Duration> {
    let ready = each.iter().filter(|quarantine| quarantine.is_none()).count();
    let opens = circle.quorum.opens(ready, each.iter().flatten().copied());
    opens.or_else(|| each.iter().flatten().max().copied()).filter(|left| !left.is_zero())
}

/// A page of resources.
pub(super) async fn list(circle: Arc<Circle>, listing: Listing) -> Result<Page, Error> {
    rules::check_listing(&listing)?;
    let prefix = Resource::new(&listing.prefix).map(|prefix| prefix.encode()).unwrap_or_default();
    let after = listing.after.as_ref().map(Resource::encode);
    let mut from = match after {
        Some(after) if after >= prefix => format!("({after}"),
        _ if prefix.is_empty() => "-".to_owned(),
        _ => format!("[{prefix}"),
    };
    // Every encoded name is ASCII: `~` sorts behind all that may follow the prefix.
    let to = if prefix.is_empty() { "+".to_owned() } else { format!("({prefix}~") };
    let wanted = usize::from(listing.limit) + 1;
    let mut items = Vec::new();
    loop {
        let each = shown(&circle, Op::names(&from, &to, NAMES)).await?;
        let quarantines: Vec<Option<Duration>> = each.iter().map(|shown| shown.quarantine).collect();
        let (names, more) = union(&each);
        if let Some(last) = names.last() {
            from = format!("({last}");
        }
        describe(&circle, names, listing.free_too, &mut items).await?;
        if !more || items.len() >= wanted {
            let more = items.len() >= wanted;
            items.truncate(usize::from(listing.limit));
            return Ok(Page { items, more, quarantine: quarantine(&circle, &quarantines) });
        }
    }
}

/// The names that nodes have, as far as all of them have said; and whether there may be more.
pub(super) fn union(each: &[Shown]) -> (Vec<String>, bool) {
    let whole = |shown: &&Shown| shown.names.len() as u64 >= NAMES;
    // Beyond the last name of a full page that node may have names that it has not said.
    let edge = each.iter().filter(whole).filter_map(|shown| shown.names.last()).min().cloned();
    let names = each.iter().flat_map(|shown| &shown.names);
    let known = names.filter(|name| edge.as_ref().is_none_or(|edge| *name <= edge));
    let known: std::collections::BTreeSet<String> = known.cloned().collect();
    (known.into_iter().collect(), edge.is_some())
}

async fn describe(
    circle: &Circle,
    names: Vec<String>,
    free_too: bool,
    items: &mut Vec<Inspection>,
) -> Result<(), Error> {
    if names.is_empty() {
        return Ok(());
    }
    let ops: Vec<Op> = names.iter().map(|name| Op::inspect(&circle.space, name, 0)).collect();
    let all = |told: Told| told.answers.into_iter().map(answer::seen).collect::<Result<Vec<Seen>, Error>>();
    let mut views = BTreeMap::new();
    for view in read(circle, &ops, all, |_| false).await? {
        for (name, seen) in names.iter().zip(view) {
            views.entry(name).or_insert_with(Vec::new).push(seen);
        }
    }
    for (name, views) in views {
        let resource = answer::named(name)?;
        let known = views.iter().any(|seen| seen.known);
        let item = merge::seen(circle.quorum, resource, &views);
        if known && (free_too || item.record.is_some()) {
            items.push(item);
        }
    }
    Ok(())
}

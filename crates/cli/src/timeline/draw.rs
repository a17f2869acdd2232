//! Bars in a terminal: a row for each holder, a column for each slice of time.

use std::collections::BTreeMap;

use super::{Grant, Story, Tale, findings::span};
use crate::{people, table::table};

const HEAD: [&str; 6] = ["TOKEN", "HOLDER", "FROM", "FOR", "RENEWALS", "END"];

/// What a cell shows; the later ones win where several fall into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    Nothing,
    /// Perhaps still believed in: nobody tells.
    Silent,
    Held,
    Draining,
    /// A failed renewal.
    Failed,
    Lost,
    /// A write that a fence refused.
    Bounced,
}

impl Cell {
    const fn sign(self) -> char {
        match self {
            Self::Nothing => ' ',
            Self::Silent => '·',
            Self::Held => '█',
            Self::Draining => '▒',
            Self::Failed => '!',
            Self::Lost => 'x',
            Self::Bounced => '#',
        }
    }
}

/// What the signs mean.
pub(crate) const LEGEND: &str = "█ held  ▒ draining  · no end is told: until then at the latest  ! renewal failed  x lost  # write refused";

/// The first and the last moment of a resource.
pub(super) fn extent(tale: &Tale) -> (i64, i64) {
    let from = tale.grants.values().map(|grant| grant.from_us);
    let to = tale.grants.values().map(Grant::latest_us);
    let bounced = || tale.bounced.iter().map(|(at_us, ..)| *at_us);
    let from_us = from.chain(bounced()).min().unwrap_or(0);
    (from_us, to.chain(bounced()).max().unwrap_or(0).max(from_us + 1))
}

/// A resource as lines for a terminal of `width` columns.
pub(crate) fn lines(story: &Story, resource: &str, tale: &Tale, width: usize) -> Vec<String> {
    let (from_us, to_us) = extent(tale);
    let instant = |us: i64| people::instant(us.max(0).unsigned_abs());
    let mut lines = vec![format!(
        "{resource}  {} to {} ({}), {} grants, {} claims refused",
        instant(from_us),
        instant(to_us),
        span(to_us - from_us),
        tale.grants.len(),
        tale.refused
    )];
    let rows = rows(story, tale);
    let label = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let columns = width.saturating_sub(label + 4).max(10);
    let column = |us: i64| {
        let part = i128::from(us - from_us) * (columns as i128 - 1) / i128::from(to_us - from_us);
        usize::try_from(part).unwrap_or(0).min(columns - 1)
    };
    for (name, grants) in rows {
        let mut cells = vec![Cell::Nothing; columns];
        for (token, grant) in grants {
            let bounced =
                tale.bounced.iter().filter(|(_, under, _)| *under == token).map(|(at_us, ..)| *at_us);
            paint(&mut cells, grant, bounced, &column);
        }
        let bar: String = cells.into_iter().map(Cell::sign).collect();
        lines.push(format!("  {name:<label$}  {}", bar.trim_end()));
    }
    lines
}

/// The grants by holder, in the order in which they first held.
fn rows<'a>(story: &Story, tale: &'a Tale) -> Vec<(String, Vec<(u64, &'a Grant)>)> {
    let mut rows: BTreeMap<(i64, &str), Vec<(u64, &Grant)>> = BTreeMap::new();
    let mut first: BTreeMap<&str, i64> = BTreeMap::new();
    for (token, grant) in &tale.grants {
        let first = *first.entry(&grant.holder_id).or_insert(grant.from_us);
        rows.entry((first, &grant.holder_id)).or_default().push((*token, grant));
    }
    rows.into_iter().map(|((_, id), grants)| (people::visible(&story.name(id)), grants)).collect()
}

fn paint(
    cells: &mut [Cell],
    grant: &Grant,
    bounced: impl Iterator<Item = i64>,
    column: &impl Fn(i64) -> usize,
) {
    let mut set = |at: usize, cell: Cell| {
        if let Some(there) = cells.get_mut(at) {
            *there = cell.max(*there);
        }
    };
    let mut fill = |from_us, to_us, cell| (column(from_us)..=column(to_us)).for_each(|at| set(at, cell));
    fill(grant.last_us(), grant.latest_us(), Cell::Silent);
    fill(grant.from_us, grant.last_us(), Cell::Held);
    if let Some(draining_us) = grant.draining {
        fill(draining_us, grant.last_us(), Cell::Draining);
    }
    for at_us in &grant.failed {
        fill(*at_us, *at_us, Cell::Failed);
    }
    if let Some(finish) = grant.finish.as_ref().filter(|finish| finish.reason != "released") {
        fill(finish.at_us, finish.at_us, Cell::Lost);
    }
    for at_us in bounced {
        fill(at_us, at_us, Cell::Bounced);
    }
}

/// The grants of a resource as a table.
pub(crate) fn grants(story: &Story, tale: &Tale) -> String {
    let row = |(token, grant): (&u64, &Grant)| {
        [
            token.to_string(),
            people::visible(&story.name(&grant.holder_id)),
            people::instant(grant.from_us.max(0).unsigned_abs()),
            span(grant.last_us() - grant.from_us),
            match grant.failed.len() {
                0 => grant.renewed.len().to_string(),
                failed => format!("{} ({failed} failed)", grant.renewed.len()),
            },
            people::visible(grant.end_word()),
        ]
    };
    let rows: Vec<[String; 6]> = tale.grants.iter().map(row).collect();
    table(Some(HEAD), &rows)
}

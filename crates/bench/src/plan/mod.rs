//! What is measured and what must be reached, as data. Nothing here runs anything.

mod keeping;
mod rates;
mod turns;

use serde::{Deserialize, Serialize};

use crate::{stage::Stage, task::What};

/// Whose program is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// This one: ourselves, the floors, and rivals that an engine brings along.
    Own,
    Rust,
    Python,
    Node,
}

/// What a figure stands for in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Floor,
    Rival,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// As tasks and results name it.
    pub(crate) id: &'static str,
    /// As people read it.
    pub(crate) label: &'static str,
    pub(crate) side: Side,
    pub(crate) program: Program,
}

impl Who {
    const fn ours(id: &'static str, label: &'static str) -> Self {
        Self { id, label, side: Side::Ours, program: Program::Own }
    }

    const fn floor(id: &'static str, label: &'static str) -> Self {
        Self { id, label, side: Side::Floor, program: Program::Own }
    }

    const fn rival(id: &'static str, label: &'static str, program: Program) -> Self {
        Self { id, label, side: Side::Rival, program }
    }
}

pub(crate) const OURS: Who = Who::ours("leasehold", "Leasehold");

/// One thing that is measured: the key of all results.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) stage: Stage,
    pub(crate) what: What,
    pub(crate) who: String,
    pub(crate) size: u32,
}

/// A row of a group: somebody does something at some size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) who: Who,
    pub(crate) what: What,
    pub(crate) size: u32,
}

/// What a bound is a multiple of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    /// Of nothing: the figure itself.
    Itself,
    /// Of the same figure of somebody else in the group.
    Of(Entry),
}

/// A promise about one figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// What the row is called.
    pub(crate) what: &'static str,
    pub(crate) of: Entry,
    pub(crate) figure: &'static str,
    /// True: at least the bound; else at most.
    pub(crate) at_least: bool,
    pub(crate) bound: f64,
    pub(crate) base: Base,
}

/// What is measured in turns, and judged together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) stage: Stage,
    pub(crate) title: &'static str,
    /// How long each measurement lasts, ms.
    pub(crate) millis: u64,
    /// In every round, or in the first alone: long ones that average over many leases and seconds.
    pub(crate) once: bool,
    pub(crate) entries: Vec<Entry>,
    pub(crate) goals: Vec<Goal>,
}

impl Entry {
    pub(crate) fn cell(&self, stage: Stage) -> Cell {
        Cell { stage, what: self.what, who: self.who.id.to_owned(), size: self.size }
    }
}

/// A rival that is named and never measured, and why.
pub(crate) struct LeftOut {
    pub(crate) who: &'static str,
    pub(crate) where_: &'static str,
    pub(crate) why: &'static str,
}

pub(crate) const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        who: "kazoo (ZooKeeper)",
        where_: "hand-over",
        why: "Leasehold has no ZooKeeper engine, so there is no server to share; measured once by hand: 932 us with 2 waiters, 887 us with 50",
    },
    LeftOut {
        who: "a keepalive stream for each lease (etcd)",
        where_: "10,000 leases held",
        why: "no library to take it from; measured once by hand: 6.2 % client, 29 % etcd, 147 MB",
    },
];

/// All groups, in the order in which engines are started.
pub(crate) fn groups(quick: bool) -> Vec<Group> {
    let mut groups: Vec<Group> =
        [rates::groups(quick), turns::groups(quick), keeping::groups(quick)].into_iter().flatten().collect();
    groups.sort_by_key(|group| group.stage);
    groups
}

/// A growth curve: one line for each who of one stage that was measured at several sizes.
pub(crate) struct Curve {
    /// The file's name.
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) across: &'static str,
    pub(crate) up: &'static str,
    pub(crate) what: What,
    pub(crate) figure: &'static str,
    pub(crate) lines: &'static [(Stage, &'static str, &'static str)],
}

pub(crate) use turns::CURVES as TURN_CURVES;
pub(crate) use {keeping::CURVES as KEEP_CURVES, rates::CURVES as RATE_CURVES};

/// Shorthands of the lists.
fn entries(what: What, size: u32, who: &[Who]) -> Vec<Entry> {
    who.iter().map(|&who| Entry { who, what, size }).collect()
}

const fn entry(who: Who, what: What, size: u32) -> Entry {
    Entry { who, what, size }
}

fn at_least(what: &'static str, of: Entry, figure: &'static str, bound: f64, base: Base) -> Goal {
    Goal { what, of, figure, at_least: true, bound, base }
}

fn at_most(what: &'static str, of: Entry, figure: &'static str, bound: f64, base: Base) -> Goal {
    Goal { what, of, figure, at_least: false, bound, base }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_is_about_what_its_group_measures() {
        for group in groups(false) {
            let measured: Vec<Cell> = group.entries.iter().map(|entry| entry.cell(group.stage)).collect();
            for goal in &group.goals {
                assert!(measured.contains(&goal.of.cell(group.stage)), "{}: {}", group.title, goal.what);
                if let Base::Of(base) = goal.base {
                    assert!(measured.contains(&base.cell(group.stage)), "{}: {}", group.title, goal.what);
                }
            }
        }
    }

    #[test]
    fn nothing_is_measured_in_two_groups() {
        let mut seen = std::collections::BTreeSet::new();
        for group in groups(false) {
            for entry in group.entries {
                assert!(seen.insert(entry.cell(group.stage)), "{}: {:?}", group.title, entry);
            }
        }
    }

    #[test]
    fn every_line_of_a_curve_has_points() {
        let groups = groups(false);
        for curve in RATE_CURVES.iter().chain(TURN_CURVES).chain(KEEP_CURVES) {
            for (stage, who, _) in curve.lines {
                let points =
                    groups.iter().filter(|group| group.stage == *stage).flat_map(|group| &group.entries);
                let points = points.filter(|entry| entry.what == curve.what && entry.who.id == *who).count();
                assert!(points > 2, "{} {who}: {points} points", curve.file);
            }
        }
    }
}

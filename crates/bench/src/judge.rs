//! What a promise has come to: the figure, what it is compared with, and whether that is enough.

use crate::{
    plan::{Base, Entry, Goal, Group, Side},
    results::{Middle, Results},
};

/// A promise and what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) ours: Option<Middle>,
    /// Why there is no figure of ours.
    pub(crate) failure: Option<String>,
    /// The floor of the same size, where there is one.
    pub(crate) floor: Option<Middle>,
    /// The best rival of the same size, with its name.
    pub(crate) rival: Option<(&'static str, Middle)>,
    /// What is held against the bound: the figure itself, or its ratio to the base.
    pub(crate) reached: Option<Middle>,
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Reached,
    /// The median misses the bound, and some round meets it.
    Nearly,
    Missed,
    Unknown,
}

/// Judges one promise of a group.
pub(crate) fn judge(group: &Group, goal: &Goal, results: &Results) -> Judged {
    let cell = goal.of.cell(group.stage);
    let ours = results.middle(&cell, goal.figure);
    let reached = match goal.base {
        Base::Itself => ours,
        Base::Of(base) => results.ratio(&cell, &base.cell(group.stage), goal.figure),
    };
    Judged {
        ours,
        failure: results.failure(&cell).map(str::to_owned),
        floor: best(group, goal, results, Side::Floor).map(|(_, middle)| middle),
        rival: best(group, goal, results, Side::Rival),
        reached,
        verdict: verdict(goal, reached),
    }
}

fn verdict(goal: &Goal, reached: Option<Middle>) -> Verdict {
    let Some(Middle { median, low, high, .. }) = reached else { return Verdict::Unknown };
    let meets = |value: f64| if goal.at_least { value >= goal.bound } else { value <= goal.bound };
    match (meets(median), meets(low) || meets(high)) {
        (true, _) => Verdict::Reached,
        (false, true) => Verdict::Nearly,
        (false, false) => Verdict::Missed,
    }
}

/// The base itself where it is of this side, else the best one of the same size: the most of a rate, the least of a time.
fn best(group: &Group, goal: &Goal, results: &Results, side: Side) -> Option<(&'static str, Middle)> {
    let figure = |entry: &Entry| {
        let middle = results.middle(&entry.cell(group.stage), goal.figure)?;
        Some((entry.who.label, middle))
    };
    if let Base::Of(base) = goal.base
        && base.who.side == side
        && let Some(found) = figure(&base)
    {
        return Some(found);
    }
    let same =
        |entry: &&Entry| entry.who.side == side && entry.size == goal.of.size && entry.what == goal.of.what;
    let all = group.entries.iter().filter(same).filter_map(figure);
    if goal.at_least {
        all.max_by(|one, other| one.1.median.total_cmp(&other.1.median))
    } else {
        all.min_by(|one, other| one.1.median.total_cmp(&other.1.median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Cell, groups},
        results::Line,
        stage::Stage,
        task::{Answer, What, figure},
    };

    /// Pairs of one task on Redis.
    fn judged(rates: &[(&str, &[f64])]) -> Judged {
        let mut results = Results::default();
        for (who, values) in rates {
            for (round, value) in (0..).zip(*values) {
                let cell = Cell { stage: Stage::Redis, what: What::Pairs, who: (*who).to_owned(), size: 1 };
                let outcome = Ok(Answer::from([(figure::RATE.to_owned(), *value)]));
                results.add(Line { cell, round, outcome });
            }
        }
        let groups = groups(false);
        let group =
            groups.iter().find(|group| group.stage == Stage::Redis && group.title == "pairs").unwrap();
        judge(group, &group.goals[0], &results)
    }

    #[test]
    fn a_promise_is_held_against_its_base() {
        // At least 0.85 of rslock.
        let verdict =
            |ours: &[f64]| judged(&[("leasehold", ours), ("rslock", &[100.0, 100.0, 100.0])]).verdict;
        assert_eq!(verdict(&[85.0, 90.0, 80.0]), Verdict::Reached);
        assert_eq!(verdict(&[84.0, 90.0, 80.0]), Verdict::Nearly);
        assert_eq!(verdict(&[84.0, 70.0, 80.0]), Verdict::Missed);
        assert_eq!(judged(&[("leasehold", &[1.0])]).verdict, Verdict::Unknown);
    }

    #[test]
    fn the_base_stands_as_the_rival_even_where_another_is_quicker() {
        let all: &[(&str, &[f64])] =
            &[("leasehold", &[9.0]), ("rslock", &[10.0]), ("node-redlock", &[20.0]), ("floor", &[30.0])];
        let judged = judged(all);
        assert_eq!(judged.rival.map(|(who, _)| who), Some("rslock"));
        assert_eq!(judged.floor.map(|floor| floor.median), Some(30.0));
    }

    #[test]
    fn without_the_base_the_best_of_the_others_stands() {
        let judged = judged(&[("leasehold", &[9.0]), ("node-redlock", &[20.0]), ("redis-py", &[5.0])]);
        assert_eq!(judged.rival.map(|(who, _)| who), Some("node-redlock"));
        assert_eq!(judged.verdict, Verdict::Unknown);
    }
}

//! Tables: what must be reached, and everything that was measured.

use std::fmt::Write as _;

use super::say;
use crate::{
    judge::{Judged, Verdict, judge},
    plan::{Base, Entry, Goal, Group, LEFT_OUT, Side},
    results::Results,
    stage::Stage,
    task::{What, figure},
};

/// Our figure, the floor, the best rival, and what must be reached; one row for each promise.
pub(super) fn goals(groups: &[Group], results: &Results) -> String {
    let mut text = String::new();
    let (mut met, mut all) = (0, 0);
    for on_stage in groups.chunk_by(|one, other| one.stage == other.stage) {
        let mut rows = String::new();
        for (group, goal) in
            on_stage.iter().flat_map(|group| group.goals.iter().map(move |goal| (group, goal)))
        {
            let judged = judge(group, goal, results);
            all += 1;
            met += usize::from(judged.verdict == Verdict::Reached);
            rows.push_str(&row(goal, &judged));
        }
        if let Some(group) = on_stage.first().filter(|_| !rows.is_empty()) {
            let _ = write!(
                text,
                "### {}\n\n| | ours | floor | best rival | must reach | reached |\n| --- | --- | --- | --- | --- | --- |\n{rows}\n",
                group.stage
            );
        }
    }
    format!("{met} of {all} reached.\n\n{text}")
}

fn row(goal: &Goal, judged: &Judged) -> String {
    let shown = |middle| say::middle(middle, goal.figure);
    let ours = judged.ours.map_or_else(|| missing(judged.failure.as_deref()), shown);
    let floor = judged.floor.map_or_else(String::new, shown);
    let rival = judged.rival.map_or_else(String::new, |(who, middle)| format!("{}: {}", who, shown(middle)));
    format!("| {} | {ours} | {floor} | {rival} | {} | {} |\n", goal.what, bound(goal), reached(goal, judged))
}

fn bound(goal: &Goal) -> String {
    let sign = if goal.at_least { "≥" } else { "≤" };
    let value = say::number(goal.bound);
    match goal.base {
        Base::Itself => format!("{sign} {value}{}", say::unit(goal.figure)),
        Base::Of(base) if base.who.side == Side::Floor => format!("{sign} {value} × floor"),
        Base::Of(base) if base.who.side == Side::Ours => {
            let of = if base.size == goal.of.size { "" } else { ", one task" };
            format!("{sign} {value} × ours{of}")
        }
        Base::Of(base) => format!("{sign} {value} × {}", base.who.label),
    }
}

fn reached(goal: &Goal, judged: &Judged) -> String {
    let by = judged.reached.map_or_else(String::new, |middle| match goal.base {
        Base::Itself => String::new(),
        Base::Of(_) => format!(", {} ×", say::number(middle.median)),
    });
    match judged.verdict {
        Verdict::Reached => format!("yes{by}"),
        Verdict::Nearly => format!("**not quite**{by}; in some rounds"),
        Verdict::Missed => format!("**no**{by}"),
        Verdict::Unknown => "not known".to_owned(),
    }
}

fn missing(why: Option<&str>) -> String {
    why.map_or_else(|| "not measured".to_owned(), |why| format!("not measured: {}", clean(why)))
}

/// Every figure, by engine and kind; with what could not be measured, and why.
pub(super) fn figures(groups: &[Group], results: &Results) -> String {
    let mut text = String::new();
    for on_stage in groups.chunk_by(|one, other| one.stage == other.stage) {
        let Some(first) = on_stage.first() else { continue };
        let mut entries: Vec<Entry> =
            on_stage.iter().flat_map(|group| group.entries.iter().copied()).collect();
        entries.sort_by_key(|entry| (entry.what, entry.size, entry.who.side == Side::Rival, entry.who.id));
        let rows: String = entries.iter().map(|entry| figures_row(first.stage, entry, results)).collect();
        let _ = write!(
            text,
            "### All figures: {}\n\n| | who | figures |\n| --- | --- | --- |\n{rows}\n",
            first.stage
        );
    }
    text.push_str("### Not measured\n\n| who | where | why |\n| --- | --- | --- |\n");
    for left_out in LEFT_OUT {
        let _ = writeln!(text, "| {} | {} | {} |", left_out.who, left_out.where_, left_out.why);
    }
    text
}

fn figures_row(stage: Stage, entry: &Entry, results: &Results) -> String {
    const ALL: [(&str, &str); 14] = [
        (figure::RATE, ""),
        (figure::SLOWEST, "slowest process "),
        (figure::P50, "p50 "),
        (figure::P99, "p99 "),
        (figure::COMMANDS, "requests each "),
        (figure::TURN, "longest turn "),
        (figure::CLIENT, "client "),
        (figure::ENGINE, "engine "),
        (figure::CLIENT_BYTES, "client memory each "),
        (figure::ENGINE_BYTES, "engine memory each "),
        (figure::HOT, "HOT "),
        (figure::LOST, "lost "),
        (figure::WALL, ""),
        (figure::NANOSECONDS, ""),
    ];
    let cell = entry.cell(stage);
    let shown = ALL.iter().filter_map(|(figure, name)| {
        Some(format!("{name}{}", say::middle(results.middle(&cell, figure)?, figure)))
    });
    let shown: Vec<String> = shown.collect();
    let shown = if shown.is_empty() { missing(results.failure(&cell)) } else { shown.join(", ") };
    format!("| {} | {} | {shown} |\n", what(entry), entry.who.label)
}

fn what(entry: &Entry) -> String {
    let size = say::number(f64::from(entry.size));
    let many = |one: &str, more: &str| format!("{size} {}", if entry.size == 1 { one } else { more });
    match entry.what {
        What::Pairs => format!("pairs, {}", many("task", "tasks")),
        What::Stalled => format!("pairs, {}, one node stalled", many("task", "tasks")),
        What::Processes => format!("pairs, {}", many("process", "processes")),
        What::HandOver => format!("hand-over, {}", many("waiter", "waiters")),
        What::Keep => format!("{} held", many("lease", "leases")),
        What::Rest => format!("at rest, {}", many("waiter", "waiters")),
        What::Command => "a command".to_owned(),
        What::Check => "`check()`".to_owned(),
    }
}

/// What another program said, fit for a table that everybody may read: short, and without this machine's paths.
fn clean(said: &str) -> String {
    const LONGEST: usize = 160;
    let words =
        said.split_whitespace().map(|word| if word.contains('/') && word.len() > 3 { "…" } else { word });
    let text = words.collect::<Vec<_>>().join(" ").replace('|', "/");
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{self, Cell},
        results::Line,
    };

    fn results() -> Results {
        let mut results = Results::default();
        let cell = |who: &str| Cell { stage: Stage::Redis, what: What::Pairs, who: who.to_owned(), size: 1 };
        for (who, rate) in [("leasehold", 9_000.0), ("rslock", 10_000.0)] {
            let outcome = Ok([(figure::RATE.to_owned(), rate)].into());
            results.add(Line { cell: cell(who), round: 0, outcome });
        }
        let why = "failed: no module in /home/somebody/x | y".to_owned();
        results.add(Line { cell: cell("redis-py"), round: 0, outcome: Err(why) });
        results
    }

    #[test]
    fn a_promise_is_a_row_with_everything_it_is_compared_with() {
        let text = goals(&plan::groups(false), &results());
        let row = "| pairs, 1 task | 9,000/s |  | rslock: 10,000/s | ≥ 0.85 × rslock | yes, 0.90 × |";
        assert!(text.contains(row), "{text}");
        assert!(text.starts_with("1 of "), "{text}");
        assert!(text.contains("| not measured |") && text.contains("| not known |"), "{text}");
    }

    #[test]
    fn a_rival_that_is_not_there_is_named_with_its_reason_and_no_path() {
        let text = figures(&plan::groups(false), &results());
        assert!(text.contains("| redis-py Lock | not measured: failed: no module in … / y |"), "{text}");
        assert!(text.contains("| node-redlock | not measured |") && text.contains("kazoo"), "{text}");
    }
}

//! What was measured, round by round, and what could not be. Kept as lines of JSON, so that tables and plots can be written
//! again without measuring again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    plan::Cell,
    task::{Answer, Failure},
};

/// One measurement that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    pub(crate) round: u32,
    /// The figures, or why there are none.
    pub(crate) outcome: Result<Answer, String>,
}

#[derive(Debug, Default)]
pub(crate) struct Results {
    rounds: BTreeMap<Cell, BTreeMap<u32, Answer>>,
    failures: BTreeMap<Cell, String>,
}

/// A median, and the lowest and highest of what it was taken of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

impl Middle {
    /// Nothing of nothing.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (&low, &high) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        // Of an even number, between the two in the middle.
        let lower = if values.len().is_multiple_of(2) { *values.get(middle - 1)? } else { upper };
        Some(Self { median: f64::midpoint(lower, upper), low, high, rounds: values.len() })
    }
}

impl Results {
    pub(crate) fn add(&mut self, line: Line) {
        match line.outcome {
            Ok(answer) => {
                self.rounds.entry(line.cell).or_default().insert(line.round, answer);
            }
            Err(why) => {
                self.failures.insert(line.cell, why);
            }
        }
    }

    /// Reads lines back.
    ///
    /// # Errors
    /// When a line is none of ours.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut results = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            results.add(serde_json::from_str(line)?);
        }
        Ok(results)
    }

    /// Why there is no figure; `None` where there is one, or nobody tried.
    pub(crate) fn failure(&self, cell: &Cell) -> Option<&str> {
        if self.rounds.contains_key(cell) { None } else { self.failures.get(cell).map(String::as_str) }
    }

    pub(crate) fn middle(&self, cell: &Cell, figure: &str) -> Option<Middle> {
        let values = self.rounds.get(cell)?.values().filter_map(|answer| answer.get(figure).copied());
        Middle::of(values.collect())
    }

    /// How one figure stands to another: quotients are taken within a round, since only what was measured in turns compares.
    pub(crate) fn ratio(&self, cell: &Cell, base: &Cell, figure: &str) -> Option<Middle> {
        let (ours, theirs) = (self.rounds.get(cell)?, self.rounds.get(base)?);
        let within = |(round, answer): (&u32, &Answer)| {
            Some(answer.get(figure)? / theirs.get(round)?.get(figure).filter(|value| **value > 0.0)?)
        };
        Middle::of(ours.iter().filter_map(within).collect())
    }

    /// Every cell that was tried.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rounds.keys().chain(self.failures.keys().filter(|cell| !self.rounds.contains_key(*cell)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{stage::Stage, task::What};

    fn cell(who: &str) -> Cell {
        Cell { stage: Stage::Redis, what: What::Pairs, who: who.to_owned(), size: 1 }
    }

    fn results(lines: &[(&str, u32, f64)]) -> Results {
        let mut results = Results::default();
        for &(who, round, value) in lines {
            let outcome = Ok(Answer::from([("rate".to_owned(), value)]));
            results.add(Line { cell: cell(who), round, outcome });
        }
        results
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was ten times slower in the second round, for both.
        let results =
            results(&[("a", 0, 50.0), ("b", 0, 100.0), ("a", 1, 5.0), ("b", 1, 10.0), ("a", 2, 900.0)]);
        let ratio = results.ratio(&cell("a"), &cell("b"), "rate").unwrap();
        assert_eq!(ratio, Middle { median: 0.5, low: 0.5, high: 0.5, rounds: 2 });
        assert!(results.ratio(&cell("a"), &cell("c"), "rate").is_none());
        assert!(results.ratio(&cell("a"), &cell("b"), "other").is_none());
    }

    #[test]
    fn medians_stand_in_the_middle() {
        let middle = |values: &[f64]| Middle::of(values.to_vec()).map(|middle| middle.median);
        assert_eq!(middle(&[3.0, 1.0, 9.0]), Some(3.0));
        assert_eq!(middle(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(middle(&[]), None);
    }

    #[test]
    fn a_failure_is_forgotten_where_another_round_succeeded() {
        let mut results = results(&[("a", 0, 1.0)]);
        for who in ["a", "b"] {
            let outcome = Err("no answer".to_owned());
            results.add(Line { cell: cell(who), round: 1, outcome });
        }
        assert_eq!(results.failure(&cell("a")), None);
        assert_eq!(results.failure(&cell("b")), Some("no answer"));
        assert_eq!(results.cells().count(), 2);
    }

    #[test]
    fn lines_are_read_back_as_they_were_written() {
        let line = Line { cell: cell("a"), round: 2, outcome: Ok(Answer::from([("rate".to_owned(), 1.5)])) };
        let text = format!("{}\n\n", serde_json::to_string(&line).unwrap());
        let results = Results::parse(&text).unwrap();
        assert_eq!(results.middle(&cell("a"), "rate").unwrap().rounds, 1);
        assert!(Results::parse("{}").is_err());
    }
}

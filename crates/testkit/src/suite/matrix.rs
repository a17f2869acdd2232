//! Engine × case: what ran, and what it said.

use std::{collections::BTreeMap, fmt};

/// The outcome of one case on one engine.
#[derive(Clone, Debug)]
pub enum Cell {
    /// It passed.
    Passed,
    /// It passed, and could not check everything.
    Partly(&'static str),
    /// It passed, and what it would do further cannot happen to this engine.
    Inapplicable(&'static str),
    /// It failed, with this message.
    Failed(String),
}

/// What every case said on every engine. A case without an outcome did not run, which counts as a failure.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    cells: BTreeMap<(String, &'static str), Cell>,
}

impl Matrix {
    /// Notes an outcome.
    pub fn note(&mut self, engine: &str, case: &'static str, cell: Cell) {
        self.cells.insert((engine.to_owned(), case), cell);
    }

    /// The outcome of a case.
    pub fn get(&self, engine: &str, case: &'static str) -> Option<&Cell> {
        self.cells.get(&(engine.to_owned(), case))
    }

    /// The cases that did not run, as `engine::case`.
    pub fn gaps<'a>(&self, engines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut gaps = Vec::new();
        for engine in engines {
            let missing = |case: &&'static str| self.get(engine, case).is_none();
            gaps.extend(super::case_names().filter(missing).map(|case| format!("{engine}::{case}")));
        }
        gaps
    }

    /// The table, one line per case, one column per engine.
    pub fn table<'a>(&'a self, engines: &'a [String]) -> impl fmt::Display + 'a {
        Table { matrix: self, engines }
    }
}

struct Table<'a> {
    matrix: &'a Matrix,
    engines: &'a [String],
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = super::case_names().map(str::len).max().unwrap_or_default();
        write!(f, "{:width$}", "")?;
        self.engines.iter().try_for_each(|engine| write!(f, "  {engine}"))?;
        let mut notes = Vec::new();
        for case in super::case_names() {
            write!(f, "\n{case:width$}")?;
            for engine in self.engines {
                let word = match self.matrix.get(engine, case) {
                    Some(Cell::Passed) => "ok",
                    Some(Cell::Partly(why)) => {
                        notes.push(format!("partly: {engine}::{case}: {why}"));
                        "partly"
                    }
                    Some(Cell::Inapplicable(why)) => {
                        notes.push(format!("n/a: {engine}::{case}: {why}"));
                        "n/a"
                    }
                    Some(Cell::Failed(_)) => "FAILED",
                    None => "NOT RUN",
                };
                write!(f, "  {word:columns$}", columns = engine.len())?;
            }
        }
        notes.iter().try_for_each(|note| write!(f, "\n{note}"))
    }
}

//! The verdict on a history.

use std::fmt;

use serde::Serialize;

use super::Event;

/// One broken invariant, with the smallest evidence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Violation {
    /// Which invariant, by its short name.
    pub invariant: &'static str,
    /// The resource.
    pub resource: String,
    /// What is wrong, in a sentence with figures.
    pub text: String,
    /// The events that show it: two, where two suffice.
    pub evidence: Vec<Event>,
}

/// How much was judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Judged {
    /// Events in all.
    pub events: usize,
    /// Grants.
    pub grants: usize,
    /// Confirmed renewals.
    pub extensions: usize,
    /// Writes that the resource saw.
    pub writes: usize,
    /// Grants that followed another of the same resource.
    pub handovers: usize,
}

/// What a history shows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// How much was judged. Little of it proves little.
    pub judged: Judged,
    /// What is broken.
    pub violations: Vec<Violation>,
    /// What may be broken, or may be made up by clocks that disagree. No failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub possible: Vec<Violation>,
}

impl Report {
    /// True when no invariant is broken.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// The names of the broken invariants, each once.
    pub fn broken(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.violations.iter().map(|violation| violation.invariant).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}: {}", self.invariant, self.resource, self.text)?;
        for event in &self.evidence {
            let line = event.line().map_err(|_| fmt::Error)?;
            write!(f, "\n    {}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Violations shown in full; the others are counted.
const SHOWN: usize = 5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Judged { events, grants, extensions, writes, handovers } = self.judged;
        write!(
            f,
            "{} violations in {events} events ({grants} grants, {extensions} extensions, {handovers} handovers, {writes} writes)",
            self.violations.len()
        )?;
        self.violations.iter().take(SHOWN).try_for_each(|violation| write!(f, "\n  {violation}"))?;
        match self.violations.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  … and {more} more"),
        }
    }
}

//! What a judgement is worth: pass, violation, or too little to say.

use serde::Serialize;

use super::{Ledger, plan::Recipe};
use crate::exit::Exit;

/// Fewer hand-overs show nothing.
pub(super) const ENOUGH: u64 = 20;

/// How a run or a history is judged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "result", content = "why", rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Nothing is broken, and it would have shown.
    Pass,
    /// Something is broken.
    Violation,
    /// Nothing is broken, but that shows little, for these reasons.
    Inconclusive(Vec<String>),
}

impl Verdict {
    /// Judges what the events show.
    pub(crate) fn of(ledger: &Ledger, recipe: Recipe) -> Self {
        if !ledger.broken.is_empty() {
            return Self::Violation;
        }
        let mut why = Vec::new();
        if ledger.handovers < ENOUGH {
            why.push(format!("only {} hand-overs, fewer than {ENOUGH}", ledger.handovers));
        }
        if ledger.control_landed == 0 {
            why.push("no stale write reached the control, so that none could have been refused".to_owned());
        }
        if recipe == Recipe::Leases && ledger.stale_tried() == 0 {
            why.push("no stale write reached the fence, so that it had nothing to refuse".to_owned());
        }
        if recipe == Recipe::Naive {
            why.push("the textbook recipe was lucky: no overlap happened in this time".to_owned());
        }
        if why.is_empty() { Self::Pass } else { Self::Inconclusive(why) }
    }

    /// Adds a reason that has nothing to do with the events.
    #[must_use]
    pub(crate) fn unless(self, fails: bool, reason: impl FnOnce() -> String) -> Self {
        match self {
            Self::Pass if fails => Self::Inconclusive(vec![reason()]),
            Self::Inconclusive(mut why) if fails => {
                why.push(reason());
                Self::Inconclusive(why)
            }
            other => other,
        }
    }

    /// How the program ends.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Pass => Exit::Done,
            Self::Violation => Exit::Unfit,
            Self::Inconclusive(_) => Exit::Inconclusive,
        }
    }
}

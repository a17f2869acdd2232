//! Coordinators that are wrong on purpose, each in one way that somebody's lock service has been wrong.
//!
//! The suite is trusted because it catches them: each names the clause it breaks, and a case of that clause must fail on it.
//! They follow the [`Rules`] of the reference but for one.

mod durations;
mod grants;
mod history;
mod outer;
mod purging;
mod queue;

use std::{fmt, sync::Arc};

use crate::reference::{Reference, Rules};

/// One broken coordinator.
#[derive(Clone, Copy)]
pub struct Mutant {
    /// Its name, which says what it does.
    pub name: &'static str,
    /// What the names of the cases start with that must catch it.
    pub clause: &'static str,
    rules: fn() -> Arc<dyn Rules>,
}

impl Mutant {
    /// The rules it follows.
    pub fn rules(&self) -> Arc<dyn Rules> {
        (self.rules)()
    }

    /// An engine that is broken in this way.
    pub fn engine(&self) -> Reference {
        Reference::with_rules(self.name, self.rules())
    }
}

impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutant({} against {})", self.name, self.clause)
    }
}

/// All of them.
pub fn mutants() -> impl Iterator<Item = &'static Mutant> {
    [grants::MUTANTS, durations::MUTANTS, queue::MUTANTS, outer::MUTANTS, history::MUTANTS, purging::MUTANTS]
        .into_iter()
        .flatten()
}

/// Types that break one rule each, and their list.
macro_rules! broken_rules {
    ($($name:ident breaks $clause:literal { $($rule:tt)* })+) => {
        $(
            #[derive(Debug)]
            struct $name;

            impl $crate::reference::Rules for $name {
                $($rule)*
            }
        )+

        pub(super) static MUTANTS: &[$crate::broken::Mutant] = &[$(
            $crate::broken::Mutant {
                name: stringify!($name),
                clause: $clause,
                rules: || std::sync::Arc::new($name),
            },
        )+];
    };
}

use broken_rules;

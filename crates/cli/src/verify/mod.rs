//! `verify`: does this coordinator keep apart what it should, while workers are killed, paused and cut off?
//!
//! ```text
//!   parent: run ── faults ──▶ crew (kill, stop, cut) ──▶ worker processes ──▶ coordinator
//!              │                                              │   └──▶ registers: one fenced, one not (the control)
//!              └── tails ◀───────── histories ◀───────────────┘
//!                    └──▶ ledger (the checker judges) ──▶ report, page
//! ```
//!
//! Nothing here decides who is right: the workers write down what they believed and when, and the judge is the checker of
//! the test kit, the same that judges the project's own tests. The control is what makes a pass worth something: writes without
//! a fence, of which stale ones must have landed.
//!
//! It is safe beside a deployment in use: a namespace of its own, a bounded number of workers and requests, faults in its own
//! processes and connections only. At its end the namespace goes, however the run ended.

mod crew;
mod ending;
mod facts;
mod faults;
mod ledger;
mod naive;
mod page;
mod plan;
mod register;
mod report;
mod run;
mod tails;
mod usage;
mod verdict;
mod worker;

pub(crate) use ledger::Ledger;
pub(crate) use page::page;
pub(crate) use plan::{Options, Recipe};
pub(crate) use report::{Report, lines};
pub(crate) use run::run;
pub(crate) use verdict::Verdict;
pub(crate) use worker::work;

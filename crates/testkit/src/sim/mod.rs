//! A deterministic simulator: whole runs of holders, waiters, engines, clocks and a network that breaks, decided by one seed.
//!
//! The state machines that decide in the library decide here too ([`leasehold_core`]); only what acts is simulated. Time is
//! virtual: a minute of it costs a millisecond. A run is data before it happens ([`Schedule`]), so that it can be repeated,
//! and shrunk; what it leaves is a history in true time, which [`crate::check`] judges.
//!
//! | question | module |
//! | --- | --- |
//! | what can happen, and how is it drawn from a seed? | [`schedule`], [`scenario`] |
//! | which promise is expected to hold under which fault? | [`claims`] |
//! | what does a process do? | `node` |
//! | what does an engine do? | [`engine`] |
//! | what connects them? | `world`, `network`, `clock`, `fence` |
//! | what is held against real servers? | [`engine`], [`Whole`] |
//! | how is a failure made small? | [`shrink`] |
//! | how are many runs run, and a failure told? | [`campaign`] |

pub mod campaign;
pub mod claims;
pub mod engine;
pub mod scenario;
pub mod schedule;
pub mod shrink;

mod client;
mod clock;
mod fence;
mod mutant;
mod network;
mod node;
mod whole;
mod world;

pub use client::Kindred;
pub use clock::Which;
pub use mutant::{MUTANTS, Mutant};
pub use scenario::{SCENARIOS, Scenario};
pub use schedule::Schedule;
pub use whole::Whole;

use crate::check::{History, Report};

/// Runs a schedule, and judges what it left by what its scenario claims.
pub fn run(schedule: &Schedule, mutant: Option<Mutant>) -> Report {
    let history = history(schedule, mutant);
    claims::judge(&history, schedule)
}

/// Runs a schedule. What it left, in true time.
pub fn history(schedule: &Schedule, mutant: Option<Mutant>) -> History {
    History::new(world::run(schedule, mutant))
}

//! Judges what happened, from what every process wrote down.
//!
//! A history is a list of [`Event`]s, in files one JSON object per line. All times are CLOCK_BOOTTIME of one machine, in
//! nanoseconds, so events of different processes compare exactly. Each invariant has a file of its own, whose head says
//! what would break for a user.
//!
//! A judgement of nothing is worth nothing: look at [`Report::judged`] before believing a clean one.

mod conservative;
mod event;
mod fairness;
mod fence;
mod history;
mod identity;
mod order;
mod overlap;
mod report;
mod resurrection;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod properties;

pub use event::{Event, What};
pub use fairness::Fairness;
pub use history::{Ending, GrantSpan, History, Unreadable};
pub use report::{Judged, Report, Violation};

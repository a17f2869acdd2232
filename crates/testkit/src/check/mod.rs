//! Judges what happened, from what every process wrote down.
//!
//! A history is a list of [`Event`]s, in files one JSON object per line. All times are CLOCK_BOOTTIME of one machine, in
//! nanoseconds, so events of different processes compare exactly. Each invariant has a file of its own, whose head says
//! what would break for a user.
//!
//! | | invariant | file |
//! | --- | --- | --- |
//! | S1 | no two windows overlap | `overlap` |
//! | S2 | tokens rise | `order` |
//! | S3 | a token belongs to one grant | `identity` |
//! | S4 | no window outlasts its TTL from the send | `conservative` |
//! | S5 | nothing lost is held again | `resurrection` |
//! | S6 | the fence is monotone | `fence` |
//! | S7 | seal before read; no lost update | `sealing` |
//! | S8 | writes of one grant in their own order | `numbering` |
//! | S9 | a request changes the grant it names, or nothing | `exact` |
//! | S10 | "nothing stands" can be relied on | `ambiguity` |
//! | S11 | no grant while memory may be missing | `amnesia` |
//! | S12 | a token that went back is not used | `regression` |
//! | S13 | one effect, whole | `effects` |
//! | L1, L2 | waiters are granted, free resources taken | `waiting` |
//! | L3, L7 | no grant outlives its holder by more than its TTL | `orphan` |
//! | L4, L5 | the healthy keep, the stuck lose | `healthy` |
//! | L6 | quarantines end | `quarantine` |
//! | L8 | everybody gets a share | `fairness` |
//! | L9 | the rightful holder is not fenced out | `rightful` |
//!
//! A judgement of nothing is worth nothing: look at [`Report::judged`] before believing a clean one.

mod ambiguity;
mod amnesia;
mod conservative;
mod effects;
mod errors;
mod event;
mod exact;
mod fairness;
mod fence;
mod healthy;
mod history;
mod identity;
mod numbering;
mod order;
mod orphan;
mod overlap;
mod quarantine;
mod regression;
mod report;
mod resurrection;
mod rightful;
mod sealing;
mod waiting;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod more_faults;
#[cfg(test)]
mod properties;

pub use errors::ClockErrors;
pub use event::{Event, Part, What};
pub use fairness::Fairness;
pub use history::{Bounds, Ending, GrantSpan, History, Unreadable};
pub use report::{Judged, Report, Violation};

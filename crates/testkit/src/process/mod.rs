//! Real processes: start many, stop and kill them, wait for what must happen, and judge what they wrote down.
//!
//! A [`Fleet`] is a folder and the children that work in it. Children write their histories there, one file each, through a
//! [`Journal`]; the fleet joins them. All processes of one machine share CLOCK_BOOTTIME, so their times compare exactly.
//!
//! # Nobody is left behind
//!
//! Dropping a [`Child`] or a [`Fleet`] kills what still runs, by process id and process group, so a test that panics cleans
//! up too. A test process that is itself killed with SIGKILL runs no destructor: children that are our own programs call
//! [`end_with_parent`] first thing, and other programs can be started [bound to their starter](Spawn::bound_to_starter).

mod child;
mod fleet;
mod journal;
mod wait;

pub use child::{Child, Signal, Spawn, end_with_parent};
pub use fleet::Fleet;
pub use journal::Journal;
pub use wait::{TimedOut, wait_until};

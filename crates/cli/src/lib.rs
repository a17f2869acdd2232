//! The parts of the `leasehold` command, as a library so that they can be tested one by one.
//!
//! Not an interface for other programs: that is the `leasehold` crate.

mod exit;
mod run;
pub mod supervise;

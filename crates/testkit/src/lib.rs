//! Proofs for coordinators: what an engine must show before anybody trusts it with a lease.
//!
//! | to … | use |
//! | --- | --- |
//! | run the contract's clauses against an engine | [`suite`] |
//! | judge what really happened, after the fact | [`check`] |
//! | have a small correct coordinator at hand | [`reference`](mod@reference) |
//! | see that the suite would have noticed | [`broken`] |
//! | drive the engine's rules with random operations in virtual time | [`driver_random`] |
//! | give a reader what readers stumble over | [`hostile`] |
//! | run real processes, stop and kill them, and collect what they saw | [`process`] |
//! | break the network in front of a server | [`proxy`] |
//! | start real servers and kill them | [`server`] |
//! | simulate whole deployments with their clocks, faults and restarts, in virtual time | [`sim`] |
//!
//! Without the default feature `full` there is what judges histories and drives processes: [`check`], [`process`], [`proxy`],
//! [`clock`], [`random`]. It brings no heavy dependency; `leasehold verify` stands on it.
//!
//! A check is trusted after it has caught a planted fault: every invariant has a bad history that it must flag, and every
//! clause has a broken coordinator that its cases must catch.

#![forbid(unsafe_code)]

#[cfg(feature = "full")]
pub mod broken;
pub mod check;
pub mod clock;
#[cfg(feature = "full")]
pub mod driver_random;
#[cfg(feature = "full")]
pub mod hostile;
mod port;
pub mod process;
pub mod proxy;
pub mod random;
#[cfg(feature = "full")]
pub mod reference;
#[cfg(feature = "full")]
pub mod server;
#[cfg(feature = "full")]
pub mod sim;
#[cfg(feature = "full")]
pub mod suite;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex whose holder panicked still guards whole values here: every step replaces its value at the end.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

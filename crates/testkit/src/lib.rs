//! Proofs for coordinators: what an engine must show before anybody trusts it with a lease.
//!
//! | to … | use |
//! | --- | --- |
//! | run the contract's clauses against an engine | [`suite`] |
//! | judge what really happened, after the fact | [`check`] |
//! | have a small correct coordinator at hand | [`reference`](mod@reference) |
//! | see that the suite would have noticed | [`broken`] |
//! | drive the engine's rules with random operations in virtual time | [`driver_random`] |
//! | run real processes, stop and kill them, and collect what they saw | [`process`] |
//!
//! A check is trusted after it has caught a planted fault: every invariant has a bad history that it must flag, and every
//! clause has a broken coordinator that its cases must catch.

#![forbid(unsafe_code)]

pub mod broken;
pub mod check;
pub mod clock;
pub mod driver_random;
pub mod process;
pub mod random;
pub mod reference;
pub mod suite;

//! Redlock hurt on purpose: real servers of which some are killed, stopped, emptied, delayed, cut off and lied to.
//!
//! Each test asserts safety (no second grant inside a window, tokens that rise) and what the caller is told.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod chaos;
mod deployment;
mod memory;
mod nodes;
mod order;
mod speed;
mod world;

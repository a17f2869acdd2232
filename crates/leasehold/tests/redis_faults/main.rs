//! Redis hurt on purpose: real servers that are killed, stopped, emptied, promoted, cut off, filled and lied to.
//!
//! Each test asserts safety (no second grant inside a window, tokens that rise) and what the caller is told.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clock;
mod doctor;
mod library;
mod memory;
mod network;
mod resp2;
mod topology;
mod trips;
mod words;
mod world;

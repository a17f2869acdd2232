//! `leasehold run`, as a user starts it: the real binary, real processes, one SQLite file each.
//!
//! The supervision has tests of its own; these show that its promises hold for a command under a real lease, and what
//! those who wait see of it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod bench;
mod contend;
mod outages;
mod outcomes;
mod promises;
mod suspend;

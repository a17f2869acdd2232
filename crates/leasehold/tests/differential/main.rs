//! The engines of this crate answer as the simulator's do: the same random requests, at the same times, get the same answers.
//! What the simulator shows of its engines is therefore shown of these.
//!
//! | engine | the simulator's | how time is the same | what is compared |
//! | --- | --- | --- | --- |
//! | memory, SQLite | `SlotEngine` | a clock moved by hand | every answer and record, to the microsecond |
//! | Redis, PostgreSQL | `SlotEngine` | the server's wall clock stands still between steps | as above |
//! | PostgreSQL, observed expiry | `Observed` and its client | as above; nothing expires | outcomes and tokens |
//! | Redlock | `Member` × 3 and their client | three clocks stand still and agree | outcomes, and the order of tokens |
//! | etcd, the contract | `SlotEngine` | nothing expires; reservations may end any time | outcomes, and the order of tokens |
//! | etcd, its keys and leases | `Etcd` | nothing expires | every answer; revisions count from another number |
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", feature = "etcd"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod embedded;
mod loose;
mod raw_etcd;
mod replay;
mod script;
mod servers;
mod strict;

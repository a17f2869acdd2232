//! What a coordinator keeps beside leases, by means that every engine has: the settings of all, and checkpoints.
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", feature = "etcd"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod place;
mod settings;

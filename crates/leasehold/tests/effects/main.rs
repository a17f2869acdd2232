//! Effects that happen once: on SQLite, and on real servers of PostgreSQL and Redis, under crashes, pauses and races.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod bell;
#[path = "../common/mod.rs"]
mod common;
mod crashes;
mod external;
mod http;
mod once;
mod races;
mod redis;
mod redis_memory;
mod redis_places;
mod relay;
mod storm;
mod stream;
mod world;

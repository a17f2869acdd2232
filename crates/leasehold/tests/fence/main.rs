//! The fences: one table of cases over every adapter, and what each adapter promises beside it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod http;
mod lease;
mod local;
mod postgres;
mod redis;
mod stores;
mod table;
mod tickets;

//! The slow writer: why a lease alone is not enough, and what a fence does about it. Real processes, really stopped.
//!
//! ```text
//! cargo run -p leasehold --example slow_writer                     leases and account in SQLite files
//! cargo run -p leasehold --example slow_writer -- --unfenced       the same without the fence: money is lost
//! cargo run -p leasehold --example slow_writer -- postgres://user@host/db      leases and account in PostgreSQL
//! cargo run -p leasehold --example slow_writer -- --fence psql postgres://…    the same, with nothing but psql
//! ```
//!
//! `--fence` is `sqlite`, `file` (replaced as a whole), `postgres`, `psql`, `redis` or `http`; `--data URL` says where the account is,
//! unless it is where the leases are. On PostgreSQL the account is in a schema `slow_writer`, which is dropped first.
//!
//! Alice holds the lease on an account, reads it, checks that the lease is hers, and is stopped right before she writes, for
//! longer than the TTL. Bob gets the lease, seals the fence, reads, and writes. Alice wakes and writes what she had in mind.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example that tells a story")]

mod bank;
mod person;
mod play;

use std::error::Error;

/// What was asked for on the command line.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The coordinator; `None`: a file in a temporary folder.
    url: Option<String>,
    /// Which fence, and where the account is kept.
    fence: Option<String>,
    /// Where the account is kept, if not where the leases are.
    data: Option<String>,
    fenced: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    // The director starts this program twice more, once for each person.
    if let Ok(name) = std::env::var(person::NAME) {
        return person::live(&name);
    }
    let mut setting = Setting { url: None, fence: None, data: None, fenced: true };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--unfenced" => setting.fenced = false,
            "--data" => setting.data = words.next(),
            "--fence" => setting.fence = words.next(),
            _ => setting.url = Some(word),
        }
    }
    play::perform(&setting)
}

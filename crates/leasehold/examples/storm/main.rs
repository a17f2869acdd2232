//! The storm: thousands of payments, each asked for three times, by processes that are killed with -9 and stopped for longer than
//! their leases last. In the end there are as many keys as effects as events.
//!
//! ```text
//! cargo run --release -p leasehold --example storm                                   in SQLite files
//! cargo run --release -p leasehold --example storm -- --naive                        the control, which must lose
//! cargo run --release -p leasehold --example storm -- --keys 500 postgres://user@host/db     in PostgreSQL
//! cargo run --release -p leasehold --example storm -- --keys 500 redis://host                in Redis
//! ```
//!
//! `--seed N` blows the same weather again, as far as two runs can be the same. In PostgreSQL everything is in a schema `storm`,
//! which is dropped first, in Redis under a hash tag
//! of that name, which is emptied, and the leases are in a namespace of that name.
//!
//! The control does what many write first: look the key up, take the lease, look again, charge, write the key, tell the world,
//! release; each in a transaction of its own.
#![allow(clippy::print_stdout, reason = "an example that tells a story")]

mod bank;
mod client;
mod redis;
mod report;
mod teller;
mod weather;

use std::{error::Error, process::ExitCode};

/// What went wrong, for people.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Most keys of a storm.
const MOST: u64 = 100_000;

/// What was asked for on the command line.
#[derive(Debug)]
pub(crate) struct Setting {
    keys: u64,
    naive: bool,
    seed: u64,
    /// Where leases and payments are; `None`: files in a temporary folder.
    url: Option<String>,
}

impl Setting {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let seed = leasehold_testkit::random::seed();
        let mut setting = Self { keys: 5_000, naive: false, seed, url: None };
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            match word.as_str() {
                "--naive" => setting.naive = true,
                "--keys" => {
                    setting.keys = number()
                        .filter(|keys| (1..=MOST).contains(keys))
                        .ok_or_else(|| format!("--keys takes a number from 1 to {MOST}"))?;
                }
                "--seed" => setting.seed = number().ok_or("--seed takes a number")?,
                url if ["postgres", "redis"].iter().any(|scheme| url.starts_with(scheme)) => {
                    setting.url = Some(word);
                }
                _ => {
                    return Err(format!(
                        "{word}: must be --naive, --keys N, --seed N, postgres://… or redis://…"
                    )
                    .into());
                }
            }
        }
        Ok(setting)
    }
}

fn main() -> Result<ExitCode, Failure> {
    // The director starts this program many times over.
    if let Ok(role) = std::env::var(client::ROLE) {
        return client::live(&role).map(|()| ExitCode::SUCCESS);
    }
    let setting = Setting::read(std::env::args().skip(1))?;
    println!("{} payments, each asked for {} times; seed {}", setting.keys, client::SENDERS, setting.seed);
    let report = weather::blow(&setting)?;
    print!("{report}");
    if report.is_as_it_should_be() {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

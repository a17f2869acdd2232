//! The contract's suite, on the engines of this crate.
//!
//! Each engine plugs in by a module of its own; servers are started by the first case that needs one.
#![allow(clippy::unwrap_used)]

mod etcd;
mod lossy;
mod memory;
mod postgres;
mod promised;
mod redis;
mod redlock;
mod spaces;
mod sqlite;

use std::process::ExitCode;

use leasehold_core::profile::{Capabilities, QueueOrder};
use leasehold_testkit::suite;

/// What an engine with everything can do.
const CAN: Capabilities = Capabilities {
    queue: QueueOrder::Fifo,
    wakes: true,
    once_per: true,
    history: true,
    ttl_step_ms: std::num::NonZeroU32::MIN,
};
const NOTHING_IS_LOST: &str = "an embedded engine has no way on which something could be lost";

fn main() -> ExitCode {
    let mut engines: Vec<Box<dyn suite::Engine>> = vec![
        Box::new(memory::Memory::new()),
        Box::new(sqlite::Sqlite::new()),
        Box::new(redis::Single::new()),
        Box::new(redis::Sentinel::new()),
        Box::new(redis::Cluster::new()),
        Box::new(redlock::Redlock::new()),
    ];
    engines.extend(etcd::EtcdEngine::all().map(|engine| Box::new(engine) as Box<dyn suite::Engine>));
    engines.extend(postgres::engines());
    promised::check(&engines).unwrap();
    suite::run(engines)
}

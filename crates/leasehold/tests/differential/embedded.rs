//! Engines within the process, on a clock that is moved by hand.

use std::sync::Arc;

use leasehold::{
    Namespace,
    clock::ManualClock,
    coordinator::{
        memory::{MemoryCoordinator, MemoryStore},
        sqlite::{Options, SqliteCoordinator},
    },
};
use leasehold_core::{slot::Now, window::Reading};
use leasehold_testkit::sim::engine::Setup;
use proptest::prelude::*;

use crate::{
    replay::scripts,
    script::Scope,
    strict::{Here, Pair, SETUP},
};

/// Expiry by BOOTTIME, dates by the wall clock.
fn local(reading: Reading) -> Now {
    Now { clock_us: reading.boot_ns / 1_000, unix_us: reading.real_ns / 1_000 }
}

#[test]
fn memory_answers_as_the_simulators_engine_does() {
    scripts(300, &prop::collection::vec(Scope::FULL.step(), 0..60), |steps| {
        let clock = Arc::new(ManualClock::from_system());
        let store = MemoryStore::with_clock(clock.clone());
        let coordinator = Arc::new(MemoryCoordinator::new(store, Namespace::default()));
        Pair { coordinator, clock: &clock, tell: &local, setup: SETUP, runtime: &Here }.difference(steps)
    });
}

#[test]
fn sqlite_answers_as_the_simulators_engine_does() {
    scripts(60, &prop::collection::vec(Scope::FULL.step(), 0..40), |steps| {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::from_system());
        let options = Options { clock: clock.clone(), ..Options::default() };
        let path = folder.path().join("leases.db");
        let coordinator = Arc::new(SqliteCoordinator::open(&path, Namespace::default(), options).unwrap());
        let setup = Setup { sets_tokens_aside: true, ..SETUP };
        Pair { coordinator, clock: &clock, tell: &local, setup, runtime: &Here }.difference(steps)
    });
}

//! The ten faults of design that the simulator knows, each made on a real server and caught there. Where it is the engine that is
//! at fault, its own text is changed inside the server; where it is the holder, the claimant or the fence, a wrong one works on
//! a real server beside the right one. Nothing counts as caught unless the same test finds nothing with the fault taken out.
//!
//! Prints fault × what caught it.
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

// The comparison with the simulator's engine, and a client that loses its answers: other tests' own.
#[path = "../conformance/lossy.rs"]
#[allow(dead_code)]
mod lossy;
#[path = "../differential/replay.rs"]
#[allow(dead_code)]
mod replay;
#[path = "../differential/script.rs"]
#[allow(dead_code)]
mod script;
#[path = "../differential/strict.rs"]
#[allow(dead_code)]
mod strict;

mod broken_sql;
mod majority;
mod resource;
mod scene;
mod silence;
mod window;

use std::{collections::BTreeMap, thread};

use leasehold_core::profile::{Capabilities, QueueOrder};
use leasehold_testkit::sim::{MUTANTS, Mutant};

/// What an engine with everything can do.
const CAN: Capabilities = Capabilities {
    queue: QueueOrder::Fifo,
    wakes: true,
    once_per: true,
    history: true,
    ttl_step_ms: std::num::NonZeroU32::MIN,
};

/// On which server, and what noticed.
#[derive(Debug)]
struct Caught {
    server: &'static str,
    by: Vec<String>,
}

impl Caught {
    fn on(server: &'static str, by: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { server, by: by.into_iter().map(Into::into).collect() }
    }
}

#[test]
fn every_fault_of_design_is_caught_on_a_real_server() {
    let matrix: BTreeMap<Mutant, Caught> = thread::scope(|scope| {
        let groups = [
            scope.spawn(broken_sql::caught),
            scope.spawn(window::caught),
            scope.spawn(resource::caught),
            scope.spawn(majority::caught),
            scope.spawn(silence::caught),
        ];
        groups.into_iter().flat_map(|group| group.join().unwrap()).collect()
    });
    for (mutant, Caught { server, by }) in &matrix {
        println!("{:20} {server:10} {}", mutant.name(), by.join(", "));
    }
    let missed: Vec<&str> = MUTANTS
        .iter()
        .filter(|mutant| matrix.get(mutant).is_none_or(|caught| caught.by.is_empty()))
        .map(|mutant| mutant.name())
        .collect();
    assert!(missed.is_empty(), "not caught on a real server: {missed:?}");
}

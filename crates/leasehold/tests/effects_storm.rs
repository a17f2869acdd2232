//! The storm of the example of that name: real processes, killed and stopped at random moments. And the control, which must lose.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::{path::PathBuf, process::Command, sync::OnceLock};

use leasehold_testkit::server::{Postgres, RedisSetup};

/// The example's program. Built here if it has not been yet: a single test must not depend on what ran before it.
fn example() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let build = ["build", "--quiet", "--package", "leasehold", "--example", "storm"];
        let built = Command::new(env!("CARGO")).args(build).output().unwrap();
        assert!(built.status.success(), "{built:?}");
        // This test is `deps/effects_storm-…`, beside `examples`.
        let own = std::env::current_exe().unwrap();
        own.ancestors().nth(2).unwrap().join("examples/storm")
    })
}

/// What the example says. It fails when the numbers are not what they should be, and when there was no storm.
fn blow(arguments: &[&str]) -> String {
    let output = Command::new(example()).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}");
    assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn equal(said: &str, keys: u64) {
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(last, format!("keys {keys} = effects {keys} = events {keys}"), "{said}");
}

fn lost(said: &str) {
    assert!(said.lines().last().unwrap_or_default().starts_with("DAMAGE: "), "{said}");
}

#[test]
fn after_a_storm_of_processes_on_sqlite_keys_effects_and_events_are_equal() {
    equal(&blow(&["--keys", "2000"]), 2000);
}

#[test]
fn the_naive_flow_loses_in_a_storm_of_processes_on_sqlite() {
    lost(&blow(&["--naive", "--keys", "2000"]));
}

#[test]
fn after_a_storm_of_processes_on_postgres_keys_effects_and_events_are_equal() {
    let server = Postgres::start().unwrap();
    equal(&blow(&["--keys", "1000", &server.url(&server.database().unwrap())]), 1000);
}

#[test]
fn the_naive_flow_loses_in_a_storm_of_processes_on_postgres() {
    let server = Postgres::start().unwrap();
    lost(&blow(&["--naive", "--keys", "1000", &server.url(&server.database().unwrap())]));
}

#[test]
fn after_a_storm_of_processes_on_redis_keys_effects_and_events_are_equal() {
    let server = RedisSetup::new().start().unwrap();
    equal(&blow(&["--keys", "3000", &server.url()]), 3000);
}

#[test]
fn the_naive_flow_loses_in_a_storm_of_processes_on_redis() {
    let server = RedisSetup::new().start().unwrap();
    lost(&blow(&["--naive", "--keys", "3000", &server.url()]));
}

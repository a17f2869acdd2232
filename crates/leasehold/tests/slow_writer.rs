//! The slow writer on every fence, with real processes that are really stopped; and each time the control without the fence, which
//! must show the damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{path::PathBuf, process::Command, sync::OnceLock};

use leasehold_testkit::server::{Postgres, Redis, RedisSetup};

/// What the example says.
fn play(arguments: &[&str]) -> String {
    let output = Command::new(example()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The example's program. Built here if it has not been yet: a single test must not depend on what ran before it.
fn example() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let build = ["build", "--quiet", "--package", "leasehold", "--example", "slow_writer"];
        let built = Command::new(env!("CARGO")).args(build).output().unwrap();
        assert!(built.status.success(), "{built:?}");
        // This test is `deps/slow_writer-…`, beside `examples`.
        let own = std::env::current_exe().unwrap();
        own.ancestors().nth(2).unwrap().join("examples/slow_writer")
    })
}

/// With the fence what alice writes bounces, and without it bob's money is gone.
fn bounces(arguments: &[&str], why: &str) {
    let said = play(arguments);
    let refused =
        said.lines().find(|line| line.contains("alice  done: REFUSED")).unwrap_or_else(|| panic!("{said}"));
    assert!(refused.contains(why), "{said}");
    assert!(said.contains("the account says 50; it was written by nobody (100), bob (50)\n"), "{said}");
    assert!(said.contains("nothing is lost"), "{said}");
    let control = play(&[arguments, &["--unfenced"]].concat());
    assert!(control.contains("alice  done: wrote 70"), "{control}");
    assert!(control.contains("the account says 70") && control.contains("DAMAGE"), "{control}");
}

#[test]
fn a_slow_writer_bounces_off_sqlite() {
    bounces(&[], "a later write was admitted");
}

#[test]
fn a_slow_writer_bounces_off_a_file() {
    bounces(&["--fence", "file"], "a later write was admitted");
}

#[test]
fn a_slow_writer_bounces_off_an_http_service() {
    bounces(&["--fence", "http"], "HTTP 412");
}

fn postgres() -> (Postgres, String) {
    let server = Postgres::start().unwrap();
    let url = server.url(&server.database().unwrap());
    prepare(&url);
    (server, url)
}

/// Nobody can hold a lease on a server that was started this moment.
fn prepare(url: &str) {
    let leases = leasehold::blocking::Leases::connect(url).unwrap();
    let fresh = leasehold::core::request::Preparation { fresh: true, max_ttl: None };
    leasehold::blocking::block_on(leases.inner().prepare(fresh)).unwrap();
}

#[test]
fn a_slow_writer_bounces_off_postgres() {
    let (_server, url) = postgres();
    bounces(&[&url], "a later write was admitted");
}

#[test]
fn a_slow_writer_bounces_off_plain_psql() {
    let (_server, url) = postgres();
    bounces(&["--fence", "psql", &url], "a later write was admitted");
}

#[test]
fn a_slow_writer_bounces_off_redis() {
    let server: Redis = RedisSetup::new().start().unwrap();
    prepare(&server.url());
    bounces(&[&server.url()], "a later write was admitted");
}

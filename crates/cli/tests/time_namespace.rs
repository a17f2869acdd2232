//! One lease file, used from two time namespaces: the boot clock shows another time in each, and no end may be read off the other's.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use leasehold_testkit::clock::Stopwatch;
use tempfile::TempDir;

const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");
/// How far the clock of the namespace is ahead: a lease of here has long ended by it, and one of there has not begun.
const AHEAD_S: &str = "1000000";
const TTL: Duration = Duration::from_secs(3);

/// A program in this namespace, or in one whose boot clock is ahead.
#[derive(Clone, Copy)]
enum Where {
    Here,
    Ahead,
}

fn leasehold(place: Where, folder: &Path, words: &[&str]) -> Output {
    let url = format!("sqlite:{}", folder.join("leases.db").display());
    let mut command = match place {
        Where::Here => Command::new(LEASEHOLD),
        Where::Ahead => {
            let mut command = Command::new("unshare");
            command.args(["--time", "--boottime", AHEAD_S, "--fork", "--", LEASEHOLD]);
            command
        }
    };
    command.args(["--url", &url]).args(words).output().unwrap()
}

/// It worked, and this is what it printed.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn held_there_and_wanted_here(holder: Where, waiter: Where) {
    let folder = TempDir::with_prefix("time-namespace-").unwrap();
    let tried = |words: &[&str]| leasehold(waiter, folder.path(), words);
    let since = Stopwatch::start();
    let first: u64 =
        printed(&leasehold(holder, folder.path(), &["acquire", "r", "--ttl", "3s"])).parse().unwrap();
    let busy = tried(&["run", "r", "--", "true"]);
    // On a machine that stood still for the whole TTL there is nothing to see yet.
    assert!(busy.status.code() == Some(75) || since.elapsed() >= TTL, "{busy:?}");
    let second = printed(&tried(&["run", "r", "--wait", "1m", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN"]));
    assert!(since.elapsed() >= TTL, "granted while the first lease stood: after {:?}", since.elapsed());
    assert!(second.parse::<u64>().unwrap() > first, "{second} after {first}");
}

#[test]
fn a_lease_of_this_namespace_ends_in_another_when_it_ends_here() {
    held_there_and_wanted_here(Where::Here, Where::Ahead);
}

#[test]
fn a_lease_of_another_namespace_ends_here_when_it_ends_there() {
    held_there_and_wanted_here(Where::Ahead, Where::Here);
}

#[test]
fn a_grant_can_be_used_from_another_namespace() {
    let folder = TempDir::with_prefix("time-namespace-").unwrap();
    let token = printed(&leasehold(Where::Here, folder.path(), &["acquire", "r", "--ttl", "1m"]));
    let ask = |verb: &str| leasehold(Where::Ahead, folder.path(), &[verb, "r", "--token", &token]);
    for verb in ["check", "renew", "release"] {
        printed(&ask(verb));
    }
    assert_eq!(ask("check").status.code(), Some(79), "it was released");
}

#[test]
fn an_examination_says_that_the_clock_is_shifted() {
    let folder = TempDir::with_prefix("time-namespace-").unwrap();
    let told = printed(&leasehold(Where::Ahead, folder.path(), &["doctor"]));
    assert!(told.contains("the boot clock of this process is shifted"), "{told}");
}

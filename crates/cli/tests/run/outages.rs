//! A coordinator that is away for a moment, and one that nobody named.

use std::{process::Command, time::Duration};

use leasehold_testkit::{clock::Stopwatch, process::wait_until};
use rusqlite::Connection;

use crate::bench::{Bench, LONG, code, stderr};

#[test]
fn a_short_outage_is_ridden_out_and_the_command_hears_nothing_of_it() {
    let mut bench = Bench::new();
    let script = "trap 'echo >$D/told' TERM; echo $LEASEHOLD_TOKEN >$D/token; \
                  until [ -e $D/finish ]; do sleep 0.05; done";
    let run = bench.start("run", &["run", "r", "--ttl", "6s", "--", "sh", "-c", script]);
    let token = bench.line("token");
    // Nobody can renew while a stranger has the file: for longer than the time between two renewals.
    let stranger = Connection::open(bench.path("leases.db")).unwrap();
    wait_until("the file", LONG, || stranger.execute_batch("BEGIN IMMEDIATE").ok()).unwrap();
    let since = Stopwatch::start();
    let over = |seconds| since.elapsed() >= Duration::from_secs(seconds);
    wait_until("three seconds", LONG, || over(3).then_some(())).unwrap();
    stranger.execute_batch("ROLLBACK").unwrap();
    // Past the TTL: it is renewed again.
    wait_until("eight seconds", LONG, || over(8).then_some(())).unwrap();
    assert_eq!(code(&bench.leasehold(&["check", "r", "--token", &token, "-q"])), 0);
    std::fs::write(bench.path("finish"), "").unwrap();
    assert!(run.wait(LONG).unwrap().success(), "{}", run.stderr().unwrap());
    assert_eq!(bench.text("told"), "");
}

/// Whoever waits for the resource must not wait for the TTL only because the coordinator was away for a moment.
#[test]
fn a_release_that_was_not_confirmed_is_tried_until_the_program_ends() {
    let mut bench = Bench::new();
    let script = "echo up >$D/up; until [ -e $D/finish ]; do sleep 0.02; done";
    let run = bench.start("run", &["run", "r", "--ttl", "10m", "--", "sh", "-c", script]);
    bench.line("up");
    let stranger = Connection::open(bench.path("leases.db")).unwrap();
    wait_until("the file", LONG, || stranger.execute_batch("BEGIN IMMEDIATE").ok()).unwrap();
    std::fs::write(bench.path("finish"), "").unwrap();
    // It has given up waiting for the answer, and says so.
    let said = || Some(run.stderr().unwrap()).filter(|said| !said.is_empty());
    let said = wait_until("a word about it", LONG, said).unwrap();
    stranger.execute_batch("ROLLBACK").unwrap();
    assert!(run.wait(LONG).unwrap().success(), "{said}");
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0, "{said}");
}

/// No URL, no file, no flags: what somebody types first.
#[test]
fn with_nothing_configured_it_works_in_the_users_own_place() {
    let bench = Bench::new();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "{leasehold} run nightly -- sh -c '{leasehold} check nightly --token $LEASEHOLD_TOKEN -q' && \
         {leasehold} ls --all | grep -q nightly && {leasehold} show nightly -v"
    );
    // The superuser's own place is the system's: it gets another one to look at.
    let mut command = if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("unshare");
        let mounted = format!("mount -t tmpfs none /var/lib && {script}");
        command.args(["--mount", "sh", "-c", &mounted]);
        command
    } else {
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    };
    command.current_dir(bench.path("")).env("HOME", bench.path("home"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| {
        name.to_string_lossy().starts_with("LEASEHOLD_") || name.to_string_lossy().starts_with("XDG_")
    }) {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

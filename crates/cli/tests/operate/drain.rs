//! How a run ends when it is asked to, and what the service manager is told.

use std::{fs, os::unix::net::UnixDatagram, os::unix::process::ExitStatusExt as _, time::Duration};

use leasehold_testkit::{
    clock::Stopwatch,
    process::{Signal, wait_until},
};

use crate::bench::{Bench, LONG, code};

/// Ignores TERM, and says so.
const STUBBORN: &str = "trap 'echo got >>$D/term' TERM; echo up >$D/up; while :; do sleep 0.05; done";

/// The command has its time, measured by the TTL; then it is ended, and the lease is released at once and not left to the TTL.
#[test]
fn a_drain_that_takes_too_long_is_ended_and_the_lease_released() {
    let mut bench = Bench::new();
    let words =
        ["run", "r", "--ttl", "10m", "--grace", "100ms", "--drain-timeout", "1s", "--", "sh", "-c", STUBBORN];
    let run = bench.start("run", &words);
    bench.line("up");
    let since = Stopwatch::start();
    run.signal(Signal::SIGTERM).unwrap();
    bench.line("term");
    // While it drains, it holds.
    assert_eq!(code(&bench.leasehold(&["run", "r", "-q", "--", "true"])), 75);
    assert_eq!(run.wait(LONG).unwrap().signal(), Some(libc_kill()), "{}", run.outcome());
    assert!(since.elapsed() >= Duration::from_secs(1));
    assert!(run.stderr().unwrap().contains("did not end in the time it had to drain"), "{}", run.outcome());
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0);
}

const fn libc_kill() -> i32 {
    9
}

#[test]
fn a_second_sigterm_ends_a_drain_that_has_no_limit() {
    let mut bench = Bench::new();
    let words = [
        "run",
        "r",
        "--ttl",
        "10m",
        "--grace",
        "100ms",
        "--drain-timeout",
        "forever",
        "--",
        "sh",
        "-c",
        STUBBORN,
    ];
    let run = bench.start("run", &words);
    bench.line("up");
    run.signal(Signal::SIGTERM).unwrap();
    bench.line("term");
    let since = Stopwatch::start();
    wait_until("a moment", LONG, || (since.elapsed() >= Duration::from_millis(700)).then_some(())).unwrap();
    assert!(run.ended().unwrap().is_none(), "one request alone waits");
    run.signal(Signal::SIGTERM).unwrap();
    assert_eq!(run.wait(LONG).unwrap().signal(), Some(libc_kill()), "{}", run.outcome());
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0);
}

#[test]
fn a_command_that_ends_well_in_its_drain_keeps_its_own_code() {
    let mut bench = Bench::new();
    let script = "trap 'sleep 0.3; exit 7' TERM; echo up >$D/up; while :; do sleep 0.05; done";
    let run = bench.start("run", &["run", "r", "--ttl", "30s", "--", "sh", "-c", script]);
    bench.line("up");
    run.signal(Signal::SIGTERM).unwrap();
    assert_eq!(run.wait(LONG).unwrap().code(), Some(7), "{}", run.outcome());
    assert_eq!(run.stderr().unwrap(), "");
}

#[test]
fn systemd_is_told_when_the_lease_is_held_and_when_the_end_begins() {
    let mut bench = Bench::new();
    let path = bench.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let heard = || {
        let mut buffer = [0; 400];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let holder = bench.start(
        "holder",
        &["run", "r", "--", "sh", "-c", "echo up >$D/held; until [ -e $D/go ]; do sleep 0.02; done"],
    );
    bench.line("held");
    let script = "echo ${NOTIFY_SOCKET:-none} >$D/seen; trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let words = ["run", "r", "--wait", "1m", "--", "sh", "-c", script];
    let run = bench.start_with("run", &words, &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    assert_eq!(heard(), "STATUS=waiting for the lease on r");
    bench.shows("r", "\"waiting\":1");
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 9]).is_err(), "not ready while another holds it");
    socket.set_nonblocking(false).unwrap();
    fs::write(bench.path("go"), "").unwrap();
    let ready = heard();
    assert!(ready.starts_with("READY=1\nSTATUS=holding r with fencing token "), "{ready}");
    assert_eq!(bench.line("seen"), "none", "the command would report for this program");
    run.signal(Signal::SIGTERM).unwrap();
    assert!(heard().starts_with("STOPPING=1\n"));
    assert!(run.wait(LONG).unwrap().success(), "{}", run.outcome());
    assert!(holder.wait(LONG).unwrap().success());

    let words = ["run", "r", "--no-sd-notify", "--", "sh", "-c", "echo $NOTIFY_SOCKET"];
    let mut command = bench.command(&words);
    let output = command.env("NOTIFY_SOCKET", &path).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), path.to_str().unwrap());
}

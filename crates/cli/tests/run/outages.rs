//! A coordinator that is away for a moment, and one that nobody named.

use std::{process::Command, time::Duration};

use leasehold_testkit::{clock::Stopwatch, process::wait_until};
use rusqlite::Connection;

use crate::bench::{Bench, LONG, code, stderr};

pub fn a_short_outage_is_ridden_out_and_the_command_hears_nothing_of_it() {
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
pub fn a_release_that_was_not_confirmed_is_tried_until_the_program_ends() {
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

/// Whether the job may run again within its period is not known then, and a caller must be able to tell.
pub fn a_success_that_nobody_confirms_is_80() {
    let mut bench = Bench::new();
    let script = "echo up >$D/up; until [ -e $D/finish ]; do sleep 0.02; done";
    let run = bench.start("run", &["run", "r", "--once-per", "1h", "--ttl", "10m", "--", "sh", "-c", script]);
    bench.line("up");
    let stranger = Connection::open(bench.path("leases.db")).unwrap();
    wait_until("the file", LONG, || stranger.execute_batch("BEGIN IMMEDIATE").ok()).unwrap();
    std::fs::write(bench.path("finish"), "").unwrap();
    assert_eq!(run.wait(LONG).unwrap().code(), Some(80), "{}", run.outcome());
    let said = run.stderr().unwrap();
    assert!(said.contains("no answer says that r has that recorded"), "{said}");
    stranger.execute_batch("ROLLBACK").unwrap();
}

/// Three seconds of waiting behind a holder: nothing turns in circles meanwhile.
pub fn a_waiter_uses_no_processor_time() {
    let mut bench = Bench::new();
    let _holder = bench.start("holder", &["run", "r", "--", "sh", "-c", "echo up >$D/up; exec sleep 1000"]);
    bench.line("up");
    let waiter = bench.start("waiter", &["run", "r", "--wait", "forever", "--", "true"]);
    bench.shows("r", "\"waiting\":1");
    let (ticks, switches) = (ticks(waiter.pid()), switches(waiter.pid()));
    let since = Stopwatch::start();
    wait_until("three seconds", LONG, || (since.elapsed() >= Duration::from_secs(3)).then_some(())).unwrap();
    let (ticks, switches) = (self::ticks(waiter.pid()) - ticks, self::switches(waiter.pid()) - switches);
    // A poll each millisecond would be 3,000 switches; a re-check each second is a handful, over all its threads.
    assert!(switches < 300 && ticks < 15, "{switches} switches and {ticks} hundredths of a second");
}

/// Hundredths of a second that a process has computed.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// How often its threads have gone to sleep.
fn switches(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    threads.filter_map(|thread| of(thread.unwrap())).sum()
}

/// No URL, no file, no flags: what somebody types first.
pub fn with_nothing_configured_it_works_in_the_users_own_place() {
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

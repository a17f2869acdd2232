//! Stopped and continued: by a terminal, by a shell, by whoever sends SIGSTOP to a whole group.

use std::{
    fs::File,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use leasehold_testkit::{clock::Stopwatch, process::wait_until};

use crate::bench::{Bench, LONG, code, is_alive};

/// A run that leads a process group of its own, as a shell with job control starts it.
pub struct Job {
    child: Child,
}

impl Job {
    pub fn start(bench: &Bench, words: &[&str]) -> Self {
        let mut command = bench.command(words);
        command.env("D", bench.path("")).stdin(Stdio::null()).process_group(0);
        command.stderr(File::create(bench.path("said")).unwrap());
        Self { child: command.spawn().unwrap() }
    }

    /// Sends a signal to the front alone.
    pub fn front(&self, signal: &str) {
        send(signal, &self.child.id().to_string());
    }

    /// Sends a signal to everything in its process group.
    pub fn group(&self, signal: &str) {
        send(signal, &format!("-{}", self.child.id()));
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub fn wait_until_stopped(&self) {
        wait_until("the stop of the front", LONG, || is_stopped(&self.pid()).then_some(())).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_until("the end of the run", LONG, || self.child.try_wait().unwrap()).unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The guard then ends the rest.
        if self.child.try_wait().unwrap().is_none() {
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        }
    }
}

pub fn send(signal: &str, to: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), "--", to]).status().unwrap();
    assert!(sent.success(), "kill -{signal} {to}");
}

pub fn is_stopped(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default().contains(") T ")
}

/// Lets time pass, for what shows only by its length.
fn pass(time: Duration) {
    let since = Stopwatch::start();
    wait_until("the time to pass", LONG, || (since.elapsed() >= time).then_some(())).unwrap();
}

/// Waits, and looks all the while that nobody else gets the resource.
fn stays_busy(bench: &Bench, time: Duration) {
    let since = Stopwatch::start();
    while since.elapsed() < time {
        assert_eq!(code(&bench.leasehold(&["run", "r", "-q", "--", "true"])), 75, "{}", bench.text("said"));
        pass(Duration::from_millis(50));
    }
}

/// Starts nothing while it waits: a shell that is stopped in the middle of that is not stopped for the kernel before what it starts
/// has begun.
const UNTIL_TOLD: &str =
    "trap 'echo told >>$D/told' TERM; mkfifo $D/go; echo $$ >$D/command; read line <$D/go; exit 5";

pub fn a_stop_of_the_whole_group_for_longer_than_the_ttl_ends_nothing() {
    let bench = Bench::new();
    let mut job = Job::start(&bench, &["run", "r", "--ttl", "7s", "--", "sh", "-c", UNTIL_TOLD]);
    bench.line("command");
    for _ in 0..2 {
        job.group("STOP");
        job.wait_until_stopped();
        stays_busy(&bench, Duration::from_secs(9));
        job.group("CONT");
        // It is renewed from here again, for longer than what the guard had reached.
        stays_busy(&bench, Duration::from_secs(8));
    }
    std::fs::write(bench.path("go"), "").unwrap();
    assert_eq!((job.wait().code(), bench.text("told").as_str()), (Some(5), ""), "{}", bench.text("said"));
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0);
}

pub fn a_lease_revoked_during_a_stop_of_the_whole_group_is_lost_and_not_free_before_the_end() {
    let bench = Bench::new();
    let script = "trap '' TERM; echo $LEASEHOLD_TOKEN >$D/token; echo $$ >$D/command; \
                  while :; do sleep 0.05; done";
    let mut job = Job::start(&bench, &["run", "r", "--ttl", "6s", "--grace", "1s", "--", "sh", "-c", script]);
    let (command, token) = (bench.line("command"), bench.line("token"));
    job.group("STOP");
    job.wait_until_stopped();
    let revoked = bench.leasehold(&["revoke", "r", "--token", &token, "--reason", "stuck"]);
    assert!(revoked.status.success(), "{revoked:?}");
    job.group("CONT");
    let look = format!("kill -0 {command} 2>/dev/null && echo alive || echo dead");
    let next = bench.leasehold(&["run", "r", "--wait", "1m", "--", "sh", "-c", &look]);
    assert_eq!(String::from_utf8_lossy(&next.stdout), "dead\n", "{next:?}");
    assert_eq!(job.wait().code(), Some(79));
    assert!(bench.text("said").contains("stuck"), "{}", bench.text("said"));
}

/// The two race: the front learns of the revocation before the stop of its command, after it, or while it hands over.
pub fn a_stop_signal_beside_a_revocation_frees_nothing_under_a_living_command() {
    for delay in [0_u64, 5, 20, 60] {
        let bench = Bench::new();
        let script = "trap '' TERM; echo $LEASEHOLD_TOKEN >$D/token; echo $$ >$D/command; \
                      while :; do sleep 0.05; done";
        let words = ["run", "r", "--ttl", "6s", "--grace", "1s", "--", "sh", "-c", script];
        let mut job = Job::start(&bench, &words);
        let (command, token) = (bench.line("command"), bench.line("token"));
        let revoked = bench.leasehold(&["revoke", "r", "--token", &token, "--reason", "stuck"]);
        assert!(revoked.status.success(), "{revoked:?}");
        pass(Duration::from_millis(delay));
        job.front("TSTP");
        let look = format!("grep -qs '^State:.[^ZX]' /proc/{command}/status && echo alive || echo dead");
        let next = bench.leasehold(&["run", "r", "--wait", "1m", "--", "sh", "-c", &look]);
        assert_eq!(String::from_utf8_lossy(&next.stdout), "dead\n", "after {delay} ms: {next:?}");
        assert_eq!(job.wait().code(), Some(79), "after {delay} ms: {}", bench.text("said"));
        assert!(bench.text("said").contains("stuck"), "after {delay} ms: {}", bench.text("said"));
    }
}

pub fn a_command_that_ends_while_suspended_frees_the_resource_and_keeps_its_code() {
    let bench = Bench::new();
    let script = "echo $$ >$D/command; exec sleep 1000";
    let mut job = Job::start(&bench, &["run", "r", "--ttl", "2s", "--", "sh", "-c", script]);
    let command = bench.line("command");
    job.front("TSTP");
    job.wait_until_stopped();
    stays_busy(&bench, Duration::from_secs(3));
    send("KILL", &command);
    assert_eq!(job.wait().signal(), Some(9), "{}", bench.text("said"));
    assert!(!is_alive(&command));
    assert_eq!((code(&bench.leasehold(&["run", "r", "--", "true"])), bench.text("said").as_str()), (0, ""));
}

/// Everything a guard needs to connect is away for a moment, just when it is to take over.
pub fn a_guard_that_cannot_connect_at_once_tries_again() {
    let bench = Bench::new();
    let words = ["run", "r", "--ttl", "6s", "--grace", "500ms", "--", "sh", "-c", UNTIL_TOLD];
    let (home, away) = (bench.path("place"), bench.path("away"));
    std::fs::create_dir(&home).unwrap();
    let url = format!("sqlite:{}", home.join("leases.db").display());
    let mut job = Job::start(&bench, &[&["--url", &url], &words[..]].concat());
    let command = bench.line("command");
    std::fs::rename(&home, &away).unwrap();
    // Where the folder would be made anew there must be something else.
    std::fs::write(&home, "").unwrap();
    job.front("TSTP");
    job.wait_until_stopped();
    pass(Duration::from_secs(1));
    std::fs::remove_file(&home).unwrap();
    std::fs::rename(&away, &home).unwrap();
    pass(Duration::from_secs(8));
    assert!(is_alive(&command), "{}", bench.text("said"));
    job.group("CONT");
    std::fs::write(bench.path("go"), "").unwrap();
    assert_eq!((job.wait().code(), bench.text("told").as_str()), (Some(5), ""), "{}", bench.text("said"));
}

pub fn a_release_that_the_guard_could_not_make_is_said_and_the_code_is_still_the_commands() {
    let bench = Bench::new();
    let (home, away) = (bench.path("place"), bench.path("away"));
    std::fs::create_dir(&home).unwrap();
    let url = format!("sqlite:{}", home.join("leases.db").display());
    let script = "echo $$ >$D/command; exec sleep 1000";
    let words = ["--url", &url, "run", "r", "--ttl", "1m", "--", "sh", "-c", script];
    let mut job = Job::start(&bench, &words);
    let command = bench.line("command");
    job.front("TSTP");
    job.wait_until_stopped();
    std::fs::rename(&home, &away).unwrap();
    std::fs::write(&home, "").unwrap();
    send("KILL", &command);
    assert_eq!(job.wait().signal(), Some(9), "{}", bench.text("said"));
    assert_ne!(bench.text("said"), "");
}

//! The process harness, with real children: this very program, started again as a worker that contends for a lock file.

#![allow(clippy::unwrap_used)] // helpers of tests, which may

use std::{
    fs::{self, OpenOptions},
    path::Path,
    time::Duration,
};

use leasehold_core::Token;
use leasehold_testkit::{
    check::{Fairness, What},
    clock::boot_ns,
    process::{Fleet, Journal, Spawn, end_with_parent, wait_until},
    random,
};

const LIMIT: Duration = Duration::from_secs(30);
/// Which kind of worker to be: `locked` excludes the others, `reckless` does not.
const ROLE: &str = "LEASEHOLD_TESTKIT_ROLE";

/// Not a test by itself: what the children run.
#[test]
fn worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let starter = std::env::var(Fleet::STARTER).unwrap().parse().unwrap();
    end_with_parent(starter).unwrap();
    let mut journal = Journal::of_this_process().unwrap();
    let folder = journal.path().parent().unwrap().to_owned();
    let rounds = if role == "endless" { u32::MAX } else { 20 };
    for _ in 0..rounds {
        let lease_id = random::lease_id();
        journal.note("r", lease_id, What::Attempt).unwrap();
        let lock = folder.join("lock");
        let free = || OpenOptions::new().write(true).create_new(true).open(&lock).ok();
        if role != "reckless" {
            wait_until("the lock", LIMIT, free).unwrap();
        }
        let token = next_token(&folder.join("token"));
        let (open_ns, close_ns) = (boot_ns(), boot_ns() + 60_000_000_000);
        journal
            .note("r", lease_id, What::Granted { token, sent_ns: None, open_ns, close_ns, ttl_ms: None })
            .unwrap();
        let until = boot_ns() + 1_000_000;
        wait_until("a millisecond", LIMIT, || (boot_ns() > until).then_some(())).unwrap();
        journal.note("r", lease_id, What::Released { token }).unwrap();
        if role != "reckless" {
            fs::remove_file(&lock).unwrap();
        }
    }
}

fn next_token(path: &Path) -> Token {
    let last: u64 = fs::read_to_string(path).unwrap_or_default().parse().unwrap_or(0);
    fs::write(path, (last + 1).to_string()).unwrap();
    Token::new(last + 1).unwrap()
}

fn as_worker(role: &str) -> Spawn {
    Spawn::new(std::env::current_exe().unwrap()).args(["--exact", "worker", "--nocapture"]).env(ROLE, role)
}

fn fleet_of(role: &str, workers: usize, folder: &Path) -> Fleet {
    let mut fleet = Fleet::new(folder);
    for worker in 0..workers {
        fleet.start(&format!("worker-{worker}"), as_worker(role)).unwrap();
    }
    fleet
}

fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn histories_of_many_processes_are_joined_and_judged() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = fleet_of("locked", 4, folder.path());
    fleet.wait_all(LIMIT).unwrap();
    for child in fleet.children() {
        assert_eq!(child.outcome(), "exit 0", "{}\n{}", child.stdout().unwrap(), child.stderr().unwrap());
    }
    let fairness = Fairness { longest_wait: Some(LIMIT), least_share: 20 };
    let report = fleet.history().unwrap().judge_with(&fairness);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.judged.grants, report.judged.handovers), (80, 79));
}

/// The control: without the lock the same workers must be caught.
#[test]
fn workers_without_a_lock_are_caught() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = fleet_of("reckless", 4, folder.path());
    fleet.wait_all(LIMIT).unwrap();
    let report = fleet.history().unwrap().judge();
    assert!(report.broken().contains(&"S1-overlap"), "{report}");
}

#[test]
fn a_child_can_be_stopped_resumed_and_killed() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = fleet_of("endless", 1, folder.path());
    let child = &fleet.children()[0];
    let written = || fleet.history().map_or(0, |history| history.events().len());
    wait_until("the first grants", LIMIT, || (written() > 5).then_some(())).unwrap();
    child.stop().unwrap();
    let before = written();
    let until = boot_ns() + 100_000_000;
    wait_until("a while", LIMIT, || (boot_ns() > until).then_some(())).unwrap();
    assert_eq!(written(), before, "a stopped process does nothing");
    child.resume().unwrap();
    wait_until("more grants", LIMIT, || (written() > before).then_some(())).unwrap();
    child.kill().unwrap();
    assert_eq!(child.outcome(), "signal 9");
    let report = fleet.history().unwrap().judge();
    assert!(report.is_clean() && report.judged.grants > 0, "{report}");
}

#[test]
fn children_end_when_the_test_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let (send, receive) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let mut fleet = fleet_of("endless", 2, &path);
        // A shell with a child of its own, and a program that is not ours.
        fleet.start("shell", Spawn::new("sh").args(["-c", "sleep 1000 & wait"])).unwrap();
        fleet.start("sleep", Spawn::new("sleep").arg("1000").bound_to_starter()).unwrap();
        send.send(fleet.children().iter().map(|child| child.pid()).collect::<Vec<_>>()).unwrap();
        panic!("as a failing test does");
    });
    assert!(panicked.join().is_err());
    let pids = receive.recv().unwrap();
    assert_eq!(pids.len(), 4);
    for pid in pids {
        wait_until(format!("the end of {pid}"), LIMIT, || (!alive(pid)).then_some(())).unwrap();
    }
}

#[test]
fn output_and_exit_codes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::new(folder.path());
    let spawn = Spawn::new("sh").args(["-c", "echo out; echo err >&2; exit 7"]).without_env("HOME");
    let child = fleet.start("shell", spawn).unwrap();
    assert_eq!(child.wait(LIMIT).unwrap().code(), Some(7));
    assert_eq!((child.stdout().unwrap().trim(), child.stderr().unwrap().trim()), ("out", "err"));
    assert_eq!(child.outcome(), "exit 7");
    child.signal(leasehold_testkit::process::Signal::SIGTERM).unwrap();
    assert!(fleet.start("shell", Spawn::new("true")).is_err(), "names are unique");
    assert!(fleet.start("nothing", Spawn::new("/no/such/program")).is_err());
    let never = wait_until("nothing", Duration::from_millis(20), || None::<()>).unwrap_err();
    assert!(never.to_string().contains("nothing did not happen within 20ms"));
}

//! Many processes on one lease file: contending, killed, forked, woken.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod sqlite_roles;

use std::{
    io::Write as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::Command,
    time::Duration,
};

use leasehold::{
    Leases, clock,
    coordinator::sqlite::{Options, SqliteCoordinator},
};
use leasehold_core::{
    Coordinator, Kind, Namespace, Resource,
    record::{Acquired, Released, Renewed, Wake},
    request::{Claim, Renewal},
};
use leasehold_testkit::clock::Stopwatch;
use sqlite_roles::{FILE, Process, ROLE, claim, open, release, take, until_granted};

/// The entrance of the child processes; nothing when the tests run.
#[test]
fn child() {
    sqlite_roles::play();
}

#[test]
fn a_dropped_coordinator_leaves_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Process::start("drop", &folder.path().join("leases.db")).hear(), "gone");
}

#[tokio::test]
async fn requests_behind_a_stopped_process_are_answered_and_have_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let coordinator = open(&file);
    let mut stopped = Process::start("gate", &file);
    assert_eq!(stopped.hear(), "in the way");
    let mut first = coordinator.acquire(claim(Duration::from_secs(60), false));
    assert!(tokio::time::timeout(Duration::from_millis(5_100), &mut first).await.is_err());
    // The next request notices, and ends the waiting of both.
    let second = coordinator.acquire(claim(Duration::from_secs(60), false)).await.unwrap_err();
    let first = first.await.unwrap_err();
    assert_eq!((first.kind(), second.kind()), (Kind::Unavailable, Kind::Unavailable));
    assert!(first.to_string().contains("stopped process"), "{first}");
    stopped.kill();
    // Until the worker has come through the gate, it is still taken for stuck.
    let until_us = clock::boot_us() + 10_000_000;
    let answer = loop {
        match coordinator.acquire(claim(Duration::from_secs(60), false)).await {
            Err(error) if error.kind() == Kind::Unavailable && clock::boot_us() < until_us => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            answer => break answer.unwrap(),
        }
    };
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
}

#[tokio::test]
async fn a_second_client_in_one_process_takes_no_locks_from_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let (first, held, grant) = take(&file).await;
    let log = file.with_file_name("leases.db-wal");
    let number = || std::fs::metadata(&log).map(|found| found.ino()).ok();
    let before = number();
    let second =
        SqliteCoordinator::open(&file, Namespace::new("other").unwrap(), Options::default()).unwrap();
    assert_eq!(Process::start("probe", &file).hear(), "locked");
    assert_eq!(Process::start("visit", &file).hear(), "1");
    assert_eq!((before.is_some(), number()), (true, before), "the log is still the one that is written to");
    let Acquired::Granted(_) = second.acquire(claim(Duration::from_secs(60), false)).await.unwrap() else {
        panic!("another namespace")
    };
    // A second look, with both clients at work.
    drop(second);
    drop(open(&file));
    assert_eq!(Process::start("probe", &file).hear(), "locked");
    assert_eq!(Process::start("visit", &file).hear(), "2");
    assert_eq!(number(), before);
    let renewal = Renewal {
        resource: held.resource.clone(),
        lease_id: held.lease_id,
        token: grant.token,
        ttl: held.ttl,
        lock_delay: held.lock_delay,
    };
    let answers = first.renew(vec![renewal]).await.unwrap();
    assert!(matches!(answers[..], [Ok(Renewed::Extended { .. })]), "{answers:?}");
    let heard = Process::start("look", &file).hear();
    assert_eq!(heard, grant.token.to_string(), "another process sees the same holder");
}

/// The log is moved after the commit: whatever hinders that takes nothing back.
#[tokio::test]
async fn a_commit_is_answered_as_kept_while_another_process_moves_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let (coordinator, ..) = take(&file).await;
    let mut mover = Process::start("checkpoint", &file);
    assert_eq!(mover.hear(), "in the way");
    // A log that is due to be moved at the next commit.
    let stranger = rusqlite::Connection::open(&file).unwrap();
    stranger
        .execute_batch("PRAGMA wal_autocheckpoint = 0; CREATE TABLE ballast (x); INSERT INTO ballast VALUES (randomblob(5000000))")
        .unwrap();
    for _ in 0..3 {
        let resource = Resource::new(&leasehold_testkit::random::lease_id().to_string()).unwrap();
        let asked = Claim { resource: resource.clone(), ..claim(Duration::from_secs(60), false) };
        let answer = coordinator.acquire(asked.clone()).await.unwrap();
        assert!(matches!(&answer, Acquired::Granted(grant) if !grant.adopted), "{answer:?}");
        let seen = coordinator.inspect(resource).await.unwrap().record.unwrap();
        assert_eq!(seen.lease_id, asked.lease_id);
    }
}

#[test]
fn a_full_disk_is_said_and_takes_nothing_away() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().display();
    // A disk of its own, seen by the child alone.
    let script = format!(
        "mount -t tmpfs -o size=400k none {disk} && exec {} child --exact --nocapture",
        std::env::current_exe().unwrap().display()
    );
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["--mount", "sh", "-c", &script])
        .env(ROLE, "fill")
        .env(FILE, folder.path().join("leases.db"));
    let output = command.output().expect("this test needs `unshare`, of util-linux");
    assert!(
        output.status.success(),
        "this test mounts a small disk: run it as root, or allow user namespaces to others: {output:?}"
    );
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("say Unavailable") && output.contains("make room"), "{output}");
    assert!(output.contains("say true"), "{output}");
}

#[test]
fn killed_and_stopped_processes_never_overlap_with_their_successors_and_tokens_rise() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let mut workers: Vec<_> = (0..6).map(|_| Process::start("work", &file)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let pause = |ms: u64| runtime.block_on(async { tokio::time::sleep(Duration::from_millis(ms)).await });
    for round in 0..18 {
        pause(200);
        let worker = &mut workers[round % 6];
        if round % 3 == 2 {
            // Wherever it is: holding, woken to inherit, or in the middle of a commit.
            worker.signal(nix::sys::signal::Signal::SIGSTOP);
            pause(400);
            worker.signal(nix::sys::signal::Signal::SIGCONT);
        } else {
            worker.kill();
            *worker = Process::start("work", &file);
        }
    }
    drop(workers);
    let log = std::fs::read_to_string(file.with_extension("log")).unwrap();
    let mut grants: std::collections::BTreeMap<u64, (u64, u64)> = std::collections::BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let grant = grants.entry(number(0)).or_default();
        match words[1] {
            "begin" => {
                assert_eq!(*grant, (0, 0), "a token is given once");
                *grant = (number(2), number(3));
            }
            _ => grant.1 = number(2),
        }
    }
    println!("{} grants", grants.len());
    assert!(grants.len() > 5, "{} grants", grants.len());
    let spans: Vec<_> = grants.values().collect();
    for pair in spans.windows(2) {
        assert!(pair[1].0 >= pair[0].1, "{:?} overlaps {:?}", pair[0], pair[1]);
    }
}

#[tokio::test]
async fn what_was_answered_survives_the_death_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let mut releaser = Process::start("release", &file);
    let released: u64 = releaser.hear().parse().unwrap();
    releaser.kill();
    let mut holder = Process::start("hold", &file);
    let held: u64 = holder.hear().parse().unwrap();
    holder.kill();
    assert!(held > released);
    let seen = open(&file).inspect(Resource::new("r").unwrap()).await.unwrap();
    assert_eq!(seen.record.unwrap().token.get(), held);
    assert_eq!(seen.last_end.unwrap().token.get(), released);
}

#[tokio::test]
async fn a_killed_waiter_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let (holder, held, grant) = take(&file).await;
    let mut first = Process::start("wait", &file);
    assert_eq!(first.hear(), "waiting");
    let second = open(&file);
    let mine = claim(Duration::from_secs(60), true);
    assert!(
        matches!(second.acquire(mine.clone()).await.unwrap(), Acquired::Busy(busy) if busy.position == Some(1))
    );
    first.kill();
    assert_eq!(holder.release(release(&held, &grant)).await.unwrap(), Released::Ended);
    assert_eq!(second.next_wake().await, Wake::Lease(mine.lease_id));
    let answer = second.acquire(mine.clone()).await.unwrap();
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
}

#[tokio::test]
async fn a_claim_that_does_not_wait_passes_dead_waiters() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let (coordinator, held, grant) = take(&file).await;
    let mut waiters: Vec<_> = (0..3).map(|_| Process::start("wait", &file)).collect();
    for waiter in &mut waiters {
        assert_eq!(waiter.hear(), "waiting");
    }
    assert_eq!(coordinator.release(release(&held, &grant)).await.unwrap(), Released::Ended);
    let try_once = claim(Duration::from_secs(60), false);
    let answer = coordinator.acquire(try_once.clone()).await.unwrap();
    assert!(matches!(answer, Acquired::Queued(_)), "live ones are not passed: {answer:?}");
    drop(waiters);
    let answer = coordinator.acquire(try_once).await.unwrap();
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
}

#[tokio::test]
async fn a_release_in_one_process_wakes_the_waiter_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let coordinator = open(&file);
    let mut held = claim(Duration::from_secs(60), true);
    let (mut grant, _) = until_granted(&coordinator, &held).await;
    let mut other = Process::start("turns", &file);
    assert_eq!(other.hear(), "ready");
    let mut times = Vec::new();
    for _ in 0..100 {
        while coordinator.inspect(held.resource.clone()).await.unwrap().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let begun_us = clock::boot_us();
        assert_eq!(coordinator.release(release(&held, &grant)).await.unwrap(), Released::Ended);
        let granted_us: u64 = other.hear().parse().unwrap();
        times.push(granted_us - begun_us);
        held = claim(Duration::from_secs(60), true);
        (grant, _) = until_granted(&coordinator, &held).await;
        other.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }
    times.sort_unstable();
    println!("hand-over between processes: p50 {} us, p99 {} us", times[50], times[98]);
    // Far below the second after which a waiter would ask without having been woken.
    assert!(times[50] < 300_000, "{times:?}");
}

/// A wake that reaches nobody costs a second, not the lease: the first in line looks again by the clock.
#[tokio::test]
async fn a_waiter_whose_wake_is_lost_is_admitted_by_its_own_look() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("leases.db").display());
    let connected = async || Leases::connect(&url).await.unwrap();
    let (holder, waiter) = (connected().await, connected().await);
    let held = holder.lease("r").ttl(2 * PATIENCE).acquire().await.unwrap();
    let first = held.token();
    let request = waiter.lease("r").ttl(2 * PATIENCE).wait(PATIENCE);
    let waiting = tokio::spawn(async move { request.acquire().await.unwrap().token() });
    // Where it is woken becomes a name in another network, which nobody is proved dead by.
    let stranger = rusqlite::Connection::open(folder.path().join("leases.db")).unwrap();
    stranger.busy_timeout(PATIENCE).unwrap();
    let since = Stopwatch::start();
    while stranger.execute("UPDATE queue SET wake = randomblob(24)", []).unwrap() == 0 {
        assert!(since.elapsed() < PATIENCE, "nobody waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _ended = held.release().await.unwrap();
    // Half of the holder's TTL: nothing but its own look lets it in.
    let next = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(next > first);
}

#[test]
fn processes_that_start_together_on_a_new_file_do_not_take_one_another_for_survivors_of_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut all: Vec<_> = (0..20).map(|_| Process::start("newcomer", folder.path())).collect();
    for process in &mut all {
        assert_eq!(process.hear(), "ready");
    }
    for round in 0..10 {
        for process in &mut all {
            process.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        }
        for process in &mut all {
            assert_eq!(process.hear(), "granted", "round {round}");
        }
    }
}

#[test]
fn no_process_starves() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let roles = ["many-pairs", "pairs", "pairs", "pairs", "pairs", "pairs", "pairs", "pairs"];
    let mut all: Vec<_> = roles.iter().map(|role| Process::start(role, &file)).collect();
    for process in &mut all {
        assert_eq!(process.hear(), "ready");
    }
    for process in &mut all {
        process.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }
    let counts: Vec<u64> = all.iter_mut().map(|process| process.hear().parse().unwrap()).collect();
    println!("pairs in 2 s: {counts:?}");
    // A sixteenth of the share leaves room for a noisy machine; without the gate the unlucky get next to nothing.
    let share = counts[1..].iter().sum::<u64>() / 7;
    assert!(counts[1..].iter().all(|&count| count >= share / 16), "{counts:?}");
}

#[test]
fn another_user_is_denied_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    drop(open(&file));
    if !nix::unistd::geteuid().is_root() {
        // Who cannot become another user takes from himself what another would not have.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    let heard = Process::start("nobody", &file).hear();
    assert!(heard.starts_with(&format!("{:?}", Kind::Denied)) && heard.contains("able to write"), "{heard}");
}

#[test]
fn a_forked_child_is_told_to_open_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(&folder.path().join("leases.db"));
    // SAFETY: the child makes one call that returns before it touches a thread, and exits without unwinding.
    #[allow(unsafe_code)]
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let mut call = coordinator.acquire(claim(Duration::from_secs(60), false));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let told = match call.as_mut().poll(&mut context) {
                std::task::Poll::Ready(Err(error)) => {
                    error.kind() == Kind::Unsupported && error.to_string().contains("open its own")
                }
                _ => false,
            };
            // SAFETY: as above; nothing of the parent's is to be run down here.
            unsafe { nix::libc::_exit(i32::from(!told)) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            let status = nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
        }
    }
}

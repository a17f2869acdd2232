//! Many processes on one lease file: contending, killed, forked, woken.
//!
//! The test binary starts itself again as a child: the test `child` does nothing unless it is told what to do.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::{
    fs::OpenOptions,
    io::{BufRead as _, BufReader, Lines, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use leasehold::{
    clock,
    coordinator::sqlite::{Options, SqliteCoordinator},
};
use leasehold_core::{
    Coordinator, HolderId, Kind, Label, LeaseId, Namespace, Resource, Ttl,
    record::{Acquired, Grant, Released, Wake},
    request::{Claim, Release},
    window::Margin,
};

const ROLE: &str = "LEASEHOLD_TEST_ROLE";
const FILE: &str = "LEASEHOLD_TEST_FILE";
const TERM: Duration = Duration::from_millis(300);

/// A child in a role, killed when it is dropped.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(role: &str, file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next word that the role says; the harness talks on the same pipe.
    fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            if let Some((_, word)) = line.split_once("say ") {
                return word.to_owned();
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(word: impl std::fmt::Display) {
    println!("say {word}");
    std::io::stdout().flush().unwrap();
}

fn until_killed() {
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = PathBuf::from(std::env::var_os(FILE).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "hold" => hold(&file).await,
            "release" => {
                let (coordinator, claim, grant) = take(&file).await;
                assert_eq!(coordinator.release(release(&claim, &grant)).await.unwrap(), Released::Ended);
                say(grant.token);
                until_killed();
            }
            "wait" => wait(&file).await,
            "work" => work(&file).await,
            "turns" => turns(&file).await,
            "pairs" => pairs(&file, 1).await,
            "many-pairs" => pairs(&file, 16).await,
            "nobody" => nobody(&file),
            "gate" => gate(&file),
            "fill" => fill(&file).await,
            "drop" => open_and_drop(&file).await,
            other => panic!("{other}"),
        }
    });
}

fn open(file: &Path) -> SqliteCoordinator {
    SqliteCoordinator::open(file, Namespace::default(), Options::default()).unwrap()
}

fn random_id() -> LeaseId {
    leasehold_testkit::random::lease_id()
}

fn claim(ttl: Duration, queue: bool) -> Claim {
    Claim {
        resource: Resource::new("r").unwrap(),
        lease_id: random_id(),
        holder_id: HolderId::from_bytes([1; 16]),
        label: Label::new("test").unwrap(),
        ttl: Ttl::new(ttl).unwrap(),
        lock_delay: Duration::ZERO,
        floor: None,
        queue,
        once_per: None,
    }
}

fn release(claim: &Claim, grant: &Grant) -> Release {
    Release {
        resource: claim.resource.clone(),
        lease_id: claim.lease_id,
        token: Some(grant.token),
        succeeded: false,
    }
}

/// Waits for the grant as a driver would: a wake, or the re-check that the answer names. When the granted request left.
async fn until_granted(coordinator: &SqliteCoordinator, claim: &Claim) -> (Grant, u64) {
    loop {
        let sent_us = clock::boot_us();
        let recheck = match coordinator.acquire(claim.clone()).await.unwrap() {
            Acquired::Granted(grant) => return (grant, sent_us),
            Acquired::Busy(busy) => busy.recheck,
            Acquired::Queued(queued) => queued.recheck,
            other => panic!("{other:?}"),
        };
        let _ = tokio::time::timeout(recheck, async {
            while coordinator.next_wake().await != Wake::Lease(claim.lease_id) {}
        })
        .await;
    }
}

async fn take(file: &Path) -> (SqliteCoordinator, Claim, Grant) {
    let coordinator = open(file);
    let claim = claim(Duration::from_secs(60), false);
    let Acquired::Granted(grant) = coordinator.acquire(claim.clone()).await.unwrap() else { panic!("busy") };
    (coordinator, claim, grant)
}

async fn hold(file: &Path) {
    let (_coordinator, _, grant) = take(file).await;
    say(grant.token);
    until_killed();
}

async fn wait(file: &Path) {
    let coordinator = open(file);
    let answer = coordinator.acquire(claim(Duration::from_secs(60), true)).await.unwrap();
    assert!(matches!(answer, Acquired::Busy(_)), "{answer:?}");
    say("waiting");
    until_killed();
}

/// Takes and releases for ever, noting when it believed to hold.
async fn work(file: &Path) {
    let coordinator = open(file);
    let mut log = OpenOptions::new().append(true).create(true).open(file.with_extension("log")).unwrap();
    loop {
        let claim = claim(TERM, true);
        let (grant, sent_us) = until_granted(&coordinator, &claim).await;
        let closes_us = sent_us + u64::try_from(Margin::DEFAULT.window_of(claim.ttl).as_micros()).unwrap();
        // One write per note: whole lines, whoever is killed.
        let begun_us = clock::boot_us();
        log.write_all(format!("{} begin {begun_us} {closes_us}\n", grant.token).as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        let end_us = clock::boot_us().min(closes_us);
        log.write_all(format!("{} end {end_us} 0\n", grant.token).as_bytes()).unwrap();
        let _ = coordinator.release(release(&claim, &grant)).await.unwrap();
    }
}

async fn turns(file: &Path) {
    let coordinator = open(file);
    say("ready");
    loop {
        let claim = claim(Duration::from_secs(60), true);
        let (grant, _) = until_granted(&coordinator, &claim).await;
        say(clock::boot_us());
        let _ = coordinator.release(release(&claim, &grant)).await.unwrap();
        // The next turn begins when the parent says so.
        if std::io::stdin().read(&mut [0]).unwrap() == 0 {
            return;
        }
    }
}

async fn pairs(file: &Path, tasks: usize) {
    let coordinator = &open(file);
    say("ready");
    let _ = std::io::stdin().read(&mut [0]).unwrap();
    let until_us = clock::boot_us() + 2_000_000;
    let one = async |_: usize| {
        let mut count = 0u64;
        while clock::boot_us() < until_us {
            let claim = Claim {
                resource: Resource::new(&random_id().to_string()[..4]).unwrap(),
                ..claim(Duration::from_secs(60), true)
            };
            if let Acquired::Granted(grant) = coordinator.acquire(claim.clone()).await.unwrap() {
                let _ = coordinator.release(release(&claim, &grant)).await.unwrap();
                count += 1;
            }
        }
        count
    };
    let counts = side_by_side(tasks, one).await;
    say(counts);
}

/// Runs `tasks` futures side by side and adds what they return.
async fn side_by_side<F: AsyncFn(usize) -> u64>(tasks: usize, one: F) -> u64 {
    let mut futures: Vec<_> = (0..tasks).map(|n| Box::pin(one(n))).collect();
    let mut total = 0;
    std::future::poll_fn(move |context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(count) => {
                total += count;
                false
            }
            std::task::Poll::Pending => true,
        });
        if futures.is_empty() { std::task::Poll::Ready(total) } else { std::task::Poll::Pending }
    })
    .await
}

fn nobody(file: &Path) {
    let id = nix::unistd::Uid::from_raw(65_534);
    nix::unistd::setuid(id).unwrap();
    let error = SqliteCoordinator::open(file, Namespace::default(), Options::default()).unwrap_err();
    say(format!("{:?} {error}", error.kind()));
}

/// Stands in the gate, as a process does that is stopped in the middle of a commit.
fn gate(file: &Path) {
    let lock = file.with_file_name(".leases.db-lock");
    let lock = OpenOptions::new().read(true).write(true).open(lock).unwrap();
    let record = nix::libc::flock {
        l_type: nix::libc::F_WRLCK.try_into().unwrap(),
        l_whence: 0,
        l_start: 4_097,
        l_len: 1,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&lock, nix::fcntl::FcntlArg::F_SETLK(&record)).unwrap();
    say("in the way");
    until_killed();
}

/// Takes one resource after the other until the disk is full.
async fn fill(file: &Path) {
    let coordinator = open(file);
    let first = claim(Duration::from_secs(60), false);
    let Acquired::Granted(grant) = coordinator.acquire(first.clone()).await.unwrap() else { panic!("busy") };
    let error = loop {
        let resource = Resource::new(&format!("{}-{}", random_id(), "x".repeat(200))).unwrap();
        if let Err(error) =
            coordinator.acquire(Claim { resource, ..claim(Duration::from_secs(60), false) }).await
        {
            break error;
        }
    };
    say(format!("{:?} {error}", error.kind()));
    let seen = coordinator.inspect(first.resource).await.unwrap();
    say(seen.record.is_some_and(|record| record.token == grant.token));
}

fn own_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("leasehold-")).count()
}

async fn open_and_drop(file: &Path) {
    let all: Vec<_> = (0..20).map(|_| open(file)).collect();
    let _ = all[7].acquire(claim(Duration::from_secs(60), false)).await.unwrap();
    assert_eq!(own_threads(), 40);
    drop(all);
    while own_threads() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    say("gone");
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
    let answer = coordinator.acquire(claim(Duration::from_secs(60), false)).await.unwrap();
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
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
    command
        .args(["--mount", "sh", "-c", &script])
        .env(ROLE, "fill")
        .env(FILE, folder.path().join("leases.db"));
    let output = match command.output() {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        other => {
            // Mounting needs privileges; everything else that fails is a failure.
            assert!(!nix::unistd::geteuid().is_root(), "{other:?}");
            println!("not run: only root can mount a small disk");
            return;
        }
    };
    assert!(output.contains("say Unavailable") && output.contains("make room"), "{output}");
    assert!(output.contains("say true"), "{output}");
}

#[test]
fn killed_processes_never_overlap_with_their_successors_and_tokens_rise() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let mut workers: Vec<_> = (0..6).map(|_| Process::start("work", &file)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for round in 0..12 {
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(250)).await });
        workers[round % 6].kill();
        workers[round % 6] = Process::start("work", &file);
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
    if !nix::unistd::geteuid().is_root() {
        println!("not run: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    drop(open(&file));
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

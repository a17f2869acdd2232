//! What child processes do in the tests of the SQLite engine. A test binary starts itself again as a child in one of these
//! roles; its test `child` plays it.
#![allow(unreachable_pub)]

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
    Coordinator, HolderId, Label, LeaseId, Namespace, Resource, Ttl,
    record::{Acquired, Grant, Released, Wake},
    request::{Claim, Release},
    window::Margin,
};

pub const ROLE: &str = "LEASEHOLD_TEST_ROLE";
pub const FILE: &str = "LEASEHOLD_TEST_FILE";
const TERM: Duration = Duration::from_millis(300);

/// A child in a role, killed when it is dropped.
pub struct Process {
    pub child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(role: &str, file: &Path) -> Self {
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
    pub fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            if let Some((_, word)) = line.split_once("say ") {
                return word.to_owned();
            }
        }
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let id = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(id, signal).unwrap();
    }

    pub fn kill(&mut self) {
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

/// Plays the role that the environment names, if it names one.
pub fn play() {
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
            "checkpoint" => checkpoint(&file),
            "fill" => fill(&file).await,
            "look" => {
                let seen = open(&file).inspect(Resource::new("r").unwrap()).await.unwrap();
                say(seen.record.map_or_else(|| "nobody".to_owned(), |record| record.token.to_string()));
            }
            "probe" => probe(&file),
            "visit" => visit(&file),
            "newcomer" => newcomer(&file).await,
            "drop" => open_and_drop(&file).await,
            other => panic!("{other}"),
        }
    });
}

pub fn open(file: &Path) -> SqliteCoordinator {
    SqliteCoordinator::open(file, Namespace::default(), Options::default()).unwrap()
}

fn random_id() -> LeaseId {
    leasehold_testkit::random::lease_id()
}

pub fn claim(ttl: Duration, queue: bool) -> Claim {
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

pub fn release(claim: &Claim, grant: &Grant) -> Release {
    Release {
        resource: claim.resource.clone(),
        lease_id: claim.lease_id,
        token: Some(grant.token),
        succeeded: false,
    }
}

/// Waits for the grant as a driver would: a wake, or the re-check that the answer names. When the granted request left.
pub async fn until_granted(coordinator: &SqliteCoordinator, claim: &Claim) -> (Grant, u64) {
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

pub async fn take(file: &Path) -> (SqliteCoordinator, Claim, Grant) {
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

/// Opens one new file after the other, each when it is told to, and claims something in it.
async fn newcomer(folder: &Path) {
    say("ready");
    for round in 0.. {
        if std::io::stdin().read(&mut [0]).unwrap() == 0 {
            return;
        }
        let coordinator = open(&folder.join(format!("{round}.db")));
        let resource = Resource::new(&random_id().to_string()).unwrap();
        let asked = Claim { resource, ..claim(Duration::from_secs(60), false) };
        say(match coordinator.acquire(asked).await.unwrap() {
            Acquired::Granted(_) => "granted".to_owned(),
            other => format!("{other:?}"),
        });
    }
}

fn nobody(file: &Path) {
    if nix::unistd::geteuid().is_root() {
        nix::unistd::setuid(nix::unistd::Uid::from_raw(65_534)).unwrap();
    }
    let error = SqliteCoordinator::open(file, Namespace::default(), Options::default()).unwrap_err();
    say(format!("{:?} {error}", error.kind()));
}

/// Stands in the gate, as a process does that is stopped in the middle of a commit.
fn gate(file: &Path) {
    keep_byte(&file.with_file_name(".leases.db-lock"), 4_097);
}

/// Reads the file and closes it, as a shell does. The last one to close a file deletes its log.
fn visit(file: &Path) {
    let connection = rusqlite::Connection::open(file).unwrap();
    let count: i64 = connection.query_row("SELECT count(*) FROM slot", [], |row| row.get(0)).unwrap();
    connection.close().unwrap();
    say(count);
}

/// Says whether somebody has the shared lock of a database, which keeps others from taking themselves for the last user: the
/// 510 bytes from 2^30 + 2 (the locks of SQLite's Unix files). A closing program of an older SQLite looks at nothing else.
fn probe(file: &Path) {
    let database = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut record = record(0x4000_0002, 510);
    nix::fcntl::fcntl(&database, nix::fcntl::FcntlArg::F_GETLK(&mut record)).unwrap();
    let free = nix::libc::c_int::from(record.l_type) == nix::libc::F_UNLCK;
    say(if free { "free" } else { "locked" });
}

/// Moves the log for ever: byte 121 of the `-shm` is the lock of whoever does (the WAL-index format of SQLite).
fn checkpoint(file: &Path) {
    keep_byte(&file.with_file_name("leases.db-shm"), 121);
}

fn keep_byte(path: &Path, byte: nix::libc::off_t) {
    let lock = OpenOptions::new().read(true).write(true).open(path).unwrap();
    nix::fcntl::fcntl(&lock, nix::fcntl::FcntlArg::F_SETLK(&record(byte, 1))).unwrap();
    say("in the way");
    until_killed();
}

fn record(start: nix::libc::off_t, length: nix::libc::off_t) -> nix::libc::flock {
    nix::libc::flock {
        l_type: nix::libc::F_WRLCK.try_into().unwrap(),
        l_whence: 0,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
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

/// A thread names itself, a moment after it was started.
async fn until_own_threads_are(count: usize) {
    let right = async {
        while own_threads() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), right).await;
    assert!(waited.is_ok(), "{} threads, and not {count}", own_threads());
}

async fn open_and_drop(file: &Path) {
    let all: Vec<_> = (0..20).map(|_| open(file)).collect();
    // One that listens for wakes each.
    until_own_threads_are(20).await;
    for coordinator in &all {
        // The first is granted, the others are told that it is busy.
        let _ = coordinator.acquire(claim(Duration::from_secs(60), false)).await.unwrap();
    }
    // And one that serves, once there was something to serve.
    until_own_threads_are(40).await;
    drop(all);
    until_own_threads_are(0).await;
    say("gone");
}

//! Real servers for tests: private ones, on free loopback ports, in folders of their own.
//!
//! A [`Server`] is one process with its way to start it again; the helpers for single engines stand on it. Nothing here
//! touches a server that it has not started itself: each is ended by its process id, when its owner is dropped and also when
//! the test process is killed.
//!
//! ```text
//!   test ── Proxy (delay, stall, loss, cuts; each direction apart) ── Server (kill -9, stop, start again)
//! ```

mod certificates;
mod clock;
mod etcd;
mod keeper;
mod postgres;
mod program;
mod redis;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

pub use certificates::Certificates;
pub use clock::ServerClock;
pub use etcd::{Cut, Etcd, Setup};
pub use postgres::{PgBouncer, Postgres};
pub use program::find_program;
pub use redis::{Redis, RedisCluster, RedisSentinels, RedisSetup, Reply, ask as ask_redis, redis_pair};

pub use crate::proxy::{Direction, Passage, Proxy, free_port};
use crate::{
    lock,
    process::{Child, Signal, Spawn, wait_until},
};

/// How long a server may take to start or to stop: far beyond a healthy one's worst day on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How much of a server's output is quoted when it failed.
const QUOTED: usize = 4_000;

/// One server process, and how to start it again in the same folder.
#[derive(Debug)]
pub struct Server {
    name: String,
    folder: PathBuf,
    spawn: Spawn,
    running: Mutex<Option<Arc<Child>>>,
    starts: AtomicU32,
}

impl Server {
    /// A server that `spawn` starts, with its output in files of `folder`. Nothing runs yet.
    pub fn new(name: &str, folder: &Path, spawn: Spawn) -> Self {
        Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            spawn: spawn.bound_to_starter(),
            running: Mutex::default(),
            starts: AtomicU32::new(0),
        }
    }

    /// Starts it and waits until `is_ready` says so.
    ///
    /// # Errors
    /// When it runs already, cannot be started, ends early, or is not ready in [`PATIENCE`]. Quotes what it wrote last.
    pub fn start(&self, mut is_ready: impl FnMut() -> bool) -> io::Result<()> {
        let mut running = lock(&self.running);
        if running.as_ref().is_some_and(|child| matches!(child.ended(), Ok(None))) {
            return Err(io::Error::other(format!("{} runs already", self.name)));
        }
        let run = self.starts.fetch_add(1, Ordering::Relaxed);
        let (spawn, name, folder) = (self.spawn.clone(), format!("{}-{run}", self.name), self.folder.clone());
        // Bound to a thread that lives as long as this process: the one that runs a single test may end before the server.
        let child = Arc::new(keeper::on_keeper(move || spawn.start(&name, &folder))??);
        *running = Some(Arc::clone(&child));
        drop(running);
        let settled = wait_until(format!("the start of {}", self.name), PATIENCE, || match child.ended() {
            Ok(None) if is_ready() => Some(true),
            Ok(None) => None,
            _ => Some(false),
        });
        match settled {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failed(&child, "ended early")),
            Err(_) => Err(self.failed(&child, "was not ready in time")),
        }
    }

    fn failed(&self, child: &Child, how: &str) -> io::Error {
        let text = format!("{}\n{}", child.stdout().unwrap_or_default(), child.stderr().unwrap_or_default());
        let from = text.len().saturating_sub(QUOTED);
        let from = (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or_default();
        io::Error::other(format!("{} {how} ({}); it said: {}", self.name, child.outcome(), &text[from..]))
    }

    /// True while its process runs (a stopped one too).
    pub fn is_running(&self) -> bool {
        lock(&self.running).as_ref().is_some_and(|child| matches!(child.ended(), Ok(None)))
    }

    /// Its process id, while one runs.
    pub fn pid(&self) -> Option<u32> {
        lock(&self.running).as_ref().map(|child| child.pid())
    }

    /// `kill -9`, and waits for the end. Nothing happens when it does not run.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&self) -> io::Result<()> {
        match lock(&self.running).take() {
            Some(child) => child.kill().map(drop),
            None => Ok(()),
        }
    }

    /// Asks it to end by `signal`, and waits for that.
    ///
    /// # Errors
    /// When the system refuses or it has not ended in [`PATIENCE`].
    pub fn end(&self, signal: Signal) -> io::Result<()> {
        let Some(child) = lock(&self.running).take() else { return Ok(()) };
        child.signal(signal)?;
        child.wait(PATIENCE).map(drop).map_err(io::Error::other)
    }

    /// SIGSTOP: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// When it does not run or the system refuses.
    pub fn pause(&self) -> io::Result<()> {
        self.child()?.stop()
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When it does not run or the system refuses.
    pub fn resume(&self) -> io::Result<()> {
        self.child()?.resume()
    }

    fn child(&self) -> io::Result<Arc<Child>> {
        lock(&self.running).clone().ok_or_else(|| io::Error::other(format!("{} does not run", self.name)))
    }
}

/// A private folder for a server, removed when dropped.
///
/// # Errors
/// When the system has no room for it.
pub fn folder(name: &str) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(&format!("leasehold-{name}-")).tempdir()
}

/// Where files are kept in memory.
const MEMORY: &str = "/dev/shm";
/// So much must be free there, in bytes: a container gives 64 MiB by default, and one etcd member lays out as much at once.
const ROOM: u64 = 4 << 30;

/// A private folder in memory, where there is room, for a server that waits for the disk at every change: what survives `kill -9` is
/// the same, and the disk of a busy machine is not what is tested.
///
/// # Errors
/// As [`folder`].
pub fn folder_in_memory(name: &str) -> io::Result<tempfile::TempDir> {
    let room = nix::sys::statvfs::statvfs(MEMORY).map(|stat| stat.blocks_available() * stat.fragment_size());
    if room.is_ok_and(|room| room.min(memory_available()) > ROOM) {
        return tempfile::Builder::new().prefix(&format!("leasehold-{name}-")).tempdir_in(MEMORY);
    }
    folder(name)
}

/// What the system can give without swapping, in bytes: what lies in memory may be allowed more than there is.
fn memory_available() -> u64 {
    let known = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = known.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default().saturating_mul(1 << 10)
}

/// A server's folder: in memory, unless whoever measures wants the disk.
fn place(name: &str, on_disk: bool) -> io::Result<tempfile::TempDir> {
    if on_disk { folder(name) } else { folder_in_memory(name) }
}

/// Writes a server's file, readable by its user alone.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, content: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_started_killed_and_started_again() {
        let folder = folder("test").unwrap();
        let server = Server::new("sleeper", folder.path(), Spawn::new("sleep").arg("600"));
        assert!(!server.is_running());
        for _ in 0..2 {
            server.start(|| true).unwrap();
            assert!(server.is_running());
            server.start(|| true).unwrap_err();
            server.kill().unwrap();
            assert!(!server.is_running());
        }
    }

    #[test]
    fn a_server_outlives_the_thread_that_asked_for_it() {
        let folder = folder("test").unwrap();
        let server = Arc::new(Server::new("sleeper", folder.path(), Spawn::new("sleep").arg("600")));
        let other = Arc::clone(&server);
        std::thread::spawn(move || other.start(|| true).unwrap()).join().unwrap();
        let gone = wait_until("its end", Duration::from_millis(300), || (!server.is_running()).then_some(()));
        gone.unwrap_err();
    }

    #[test]
    fn a_server_that_ends_early_is_quoted() {
        let folder = folder("test").unwrap();
        let server =
            Server::new("failing", folder.path(), Spawn::new("sh").args(["-c", "echo no port >&2; exit 3"]));
        let error = server.start(|| false).unwrap_err().to_string();
        assert!(error.contains("exit 3") && error.contains("no port"), "{error}");
    }
}

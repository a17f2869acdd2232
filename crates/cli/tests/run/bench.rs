//! One test's folder, its coordinator, and the programs that run on it.

use std::{
    cell::RefCell,
    fs,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use leasehold_testkit::process::{Child, Fleet, Spawn, wait_until};
use tempfile::TempDir;

use crate::engines::{Engine, Sqlite};

/// Far beyond anything a healthy run needs, even on a machine that builds something else at the same time.
pub const LONG: Duration = Duration::from_secs(60);

thread_local! {
    /// The coordinator of the case that runs on this thread.
    static ENGINE: RefCell<Option<Arc<dyn Engine>>> = const { RefCell::new(None) };
}

/// Cases of this thread run on `engine` from now on.
pub fn on(engine: Arc<dyn Engine>) {
    ENGINE.set(Some(engine));
}

pub struct Bench {
    folder: TempDir,
    url: String,
    fleet: Fleet,
}

impl Bench {
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("run-").unwrap();
        let fleet = Fleet::new(folder.path());
        // Tests that are about the program alone say nothing: a lease file will do.
        let engine = ENGINE.with_borrow(Clone::clone).unwrap_or_else(|| Arc::new(Sqlite));
        let bench = Self { url: engine.url(folder.path()), folder, fleet };
        // Elsewhere a new namespace grants only after a while, unless somebody vouches for it.
        if engine.name() != "sqlite" {
            let made = bench.leasehold(&["init", "--fresh", "--max-ttl", "24h"]);
            assert_eq!(code(&made), 0, "{}", stderr(&made));
        }
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// What a child wrote into the folder; empty while there is nothing.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until the file has a whole line.
    pub fn line(&self, name: &str) -> String {
        wait_until(name, LONG, || {
            self.text(name).lines().next().filter(|_| self.text(name).ends_with('\n')).map(str::to_owned)
        })
        .unwrap()
    }

    /// A `leasehold` command line that has not been started.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(words).current_dir(self.folder.path()).env("LEASEHOLD_URL", self.url());
        for name in [
            "LEASEHOLD_RESOURCE",
            "LEASEHOLD_LEASE_ID",
            "LEASEHOLD_TOKEN",
            "LEASEHOLD_NAMESPACE",
            "LEASEHOLD_CONFIG",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Runs `leasehold` to its end.
    pub fn leasehold(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Starts `leasehold` in the background.
    pub fn start(&mut self, name: &str, words: &[&str]) -> Arc<Child> {
        self.start_with(name, words, &[])
    }

    /// The same with more environment variables.
    pub fn start_with(&mut self, name: &str, words: &[&str], more: &[(&str, &str)]) -> Arc<Child> {
        let spawn = Spawn::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(words)
            .env("LEASEHOLD_URL", self.url())
            .env("D", self.folder.path())
            .without_env("LEASEHOLD_RESOURCE")
            .without_env("LEASEHOLD_LEASE_ID");
        let spawn = more.iter().fold(spawn, |spawn, (name, value)| spawn.env(name, value));
        self.fleet.start(name, spawn).unwrap()
    }

    /// Waits until `leasehold show` says something.
    pub fn shows(&self, resource: &str, text: &str) {
        let shown = || {
            let output = self.leasehold(&["show", resource, "--json"]);
            String::from_utf8_lossy(&output.stdout).contains(text).then_some(())
        };
        wait_until(format!("{resource} shows {text}"), LONG, shown).unwrap();
    }
}

/// The exit code, as a shell would give it.
pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap())
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Is this process there, and not just waiting to be reaped?
pub fn is_alive(pid: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

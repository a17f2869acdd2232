//! One test's folder and processes: starting a front, waiting for a condition, cleaning up by pid.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use leasehold_cli::supervise::boottime_ns;
use nix::poll::{PollTimeout, poll};
use tempfile::TempDir;

/// Far beyond anything a healthy run needs, even on a machine that builds something else at the same time.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Is this process there, and not just waiting to be reaped?
pub(crate) fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// The time between two looks at a condition.
pub(crate) fn nap() {
    poll(&mut [], PollTimeout::from(2_u8)).unwrap();
}

/// Waits until the condition gives something.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = boottime_ns() + u64::try_from(LONG.as_nanos()).unwrap();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(boottime_ns() < end, "waited too long for: {what}");
        nap();
    }
}

pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: kill takes numbers only.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "kill -{signal} {pid}");
}

/// The folder in which a front and its command leave their traces.
pub(crate) struct World {
    dir: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::with_prefix("supervise-").unwrap() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// A front, not yet spawned: `options` are ours, `command` is what it runs.
    pub(crate) fn front<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Command {
        let mut front = Command::new(std::env::current_exe().unwrap());
        front.arg("front").arg(self.dir()).args(options).arg("--").args(command);
        front.env("D", self.dir()).env("SECRET", "x").env("CHANGED", "old");
        // A group of its own, as a shell with job control gives to each command.
        front.stdin(Stdio::null()).process_group(0);
        front
    }

    /// Runs a shell script under a front.
    pub(crate) fn sh(&self, options: &[&str], script: &str) -> Running<'_> {
        self.run(&mut self.front(options, &["sh", "-c", script]))
    }

    pub(crate) fn run(&self, command: &mut Command) -> Running<'_> {
        Running { world: self, child: command.spawn().unwrap() }
    }

    /// The number after a word at the start of a line of the log.
    pub(crate) fn logged(&self, word: &str) -> u64 {
        wait_for(word, || {
            let log = self.text("log");
            let line =
                log.lines().find_map(|line| line.split_once(' ')?.1.strip_prefix(word)?.strip_prefix(' '));
            line?.split(' ').next()?.parse().ok()
        })
    }

    pub(crate) fn guard(&self) -> i32 {
        i32::try_from(self.logged("guard")).unwrap()
    }

    pub(crate) fn wait_for_file(&self, name: &str) -> String {
        wait_for(name, || Some(self.text(name)).filter(|text| !text.is_empty()))
    }

    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_for(&format!("{text} in the log:\n{}", self.text("log")), || {
            self.text("log").contains(text).then_some(())
        });
    }

    /// The pids that the command's processes wrote down, once there are `count`.
    pub(crate) fn pids(&self, count: usize) -> Vec<i32> {
        wait_for("the pids", || {
            let text = self.text("pids");
            let whole = text.ends_with('\n').then_some(text)?;
            let pids: Vec<i32> = whole.lines().map(|line| line.parse().unwrap()).collect();
            (pids.len() == count).then_some(pids)
        })
    }

    pub(crate) fn alive(&self) -> Vec<i32> {
        self.text("pids").lines().filter_map(|line| line.parse().ok()).filter(|pid| is_alive(*pid)).collect()
    }

    pub(crate) fn wait_all_dead(&self) {
        wait_for("the death of all", || self.alive().is_empty().then_some(()));
    }

    /// Looks at the very instant of the deadline.
    pub(crate) fn assert_dead_at_the_deadline(&self) {
        let deadline = self.logged("deadline");
        while boottime_ns() < deadline {
            assert!(deadline - boottime_ns() < 60_000_000_000);
            std::hint::spin_loop();
            nap();
        }
        assert_eq!(self.alive(), Vec::<i32>::new(), "alive at the deadline; log:\n{}", self.text("log"));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Whatever a failed test left behind and still carries the name of its folder.
        let mark = format!("D={}", self.dir().display());
        for pid in self.text("pids").lines().filter_map(|line| line.parse::<i32>().ok()) {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()) {
                // SAFETY: kill takes numbers only.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}

/// A front that runs.
pub(crate) struct Running<'a> {
    world: &'a World,
    pub(crate) child: Child,
}

impl Running<'_> {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn kill(&self, signal: i32) {
        kill(self.pid(), signal);
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let what = "the end of the front";
        let world = self.world;
        let child = &mut self.child;
        let end = boottime_ns() + u64::try_from(LONG.as_nanos()).unwrap();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(boottime_ns() < end, "waited too long for: {what}; log:\n{}", world.text("log"));
            nap();
        }
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        self.wait().code()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // The guard then ends the rest.
        if self.child.try_wait().unwrap().is_none() {
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        }
    }
}

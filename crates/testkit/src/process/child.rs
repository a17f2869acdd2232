//! One child process, and its end.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::Mutex,
    time::Duration,
};

use nix::{
    sys::signal::{kill, killpg},
    unistd::Pid,
};

use super::{TimedOut, wait_until};
use crate::lock;

pub use nix::sys::signal::Signal;

/// How to start a child.
#[derive(Clone, Debug)]
pub struct Spawn {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    bound: bool,
}

impl Spawn {
    /// Starts `program`, found as a shell would find it.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self { program: program.as_ref().to_owned(), args: Vec::new(), env: Vec::new(), bound: false }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Unsets an environment variable.
    #[must_use]
    pub fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), None));
        self
    }

    /// Makes the kernel kill the child when the *thread* that starts it ends, however it ends: through `setpriv` of
    /// util-linux, which sets the parent-death signal and then becomes the program. For programs that are not ours.
    #[must_use]
    pub fn bound_to_starter(mut self) -> Self {
        self.bound = true;
        self
    }

    /// Starts it, with its output in files of `folder`, in a process group of its own.
    ///
    /// # Errors
    /// When the program cannot be started or the files not be made.
    pub fn start(self, name: &str, folder: &Path) -> io::Result<Child> {
        let mut command = if self.bound {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        let (stdout, stderr) = (folder.join(format!("{name}.stdout")), folder.join(format!("{name}.stderr")));
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(fs::File::create(&stdout)?)
            .stderr(fs::File::create(&stderr)?)
            .process_group(0);
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let process = command.spawn()?;
        let pid = Pid::from_raw(i32::try_from(process.id()).map_err(io::Error::other)?);
        let state = Mutex::new(State { process, ended: None });
        Ok(Child { name: name.to_owned(), pid, state, stdout, stderr })
    }
}

/// A running child. Dropping it kills it and its process group.
#[derive(Debug)]
pub struct Child {
    name: String,
    pid: Pid,
    state: Mutex<State>,
    stdout: PathBuf,
    stderr: PathBuf,
}

#[derive(Debug)]
struct State {
    process: std::process::Child,
    ended: Option<ExitStatus>,
}

impl Child {
    /// What the fleet calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        let mut state = lock(&self.state);
        if state.ended.is_none() {
            state.ended = state.process.try_wait()?;
        }
        Ok(state.ended)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// [`TimedOut`], with the end of what it said on stderr.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus, TimedOut> {
        let what = format!("the end of {} (pid {})", self.name, self.pid);
        wait_until(&what, limit, || self.ended().ok().flatten())
    }

    /// Sends a signal to the process alone. Nothing happens when it has ended: its number is never used again before it
    /// has been collected, and never signalled after.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // Held all the while: nobody else collects it in between.
        let mut state = lock(&self.state);
        if state.ended.is_none() {
            state.ended = state.process.try_wait()?;
        }
        if state.ended.is_some() {
            return Ok(());
        }
        Ok(kill(self.pid, signal)?)
    }

    /// `kill -9` of the process alone, and waits for its end.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&self) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGKILL)?;
        self.wait(Duration::from_secs(10)).map_err(io::Error::other)
    }

    /// Stops it, as a long pause would: SIGSTOP, and waits until it stands still.
    ///
    /// # Errors
    /// When the system refuses, or it has ended.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let stopped = || self.run_state().filter(|state| *state == 'T');
        wait_until(format!("the stop of {}", self.name), Duration::from_secs(10), stopped)
            .map_err(io::Error::other)?;
        Ok(())
    }

    /// Lets it go on: SIGCONT.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// The letter that `/proc` gives its state: `R`, `S`, `T`, `Z` …
    fn run_state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        // The name in parentheses may contain anything, parentheses too.
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// What it has written to stdout so far.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stdout(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.stdout)?).into_owned())
    }

    /// What it has written to stderr so far.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stderr(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.stderr)?).into_owned())
    }

    /// How it ended, for people: `exit 3` or `signal 9`.
    pub fn outcome(&self) -> String {
        match self.ended() {
            Ok(Some(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => status.to_string(),
            },
            Ok(None) => "running".to_owned(),
            Err(error) => format!("unknown ({error})"),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            // Its number, and its group's, may belong to others by now.
            return;
        }
        // The group first: once the leader has been collected the number is free. Nobody to tell when it fails.
        let _ = killpg(self.pid, Signal::SIGKILL);
        let _ = state.process.kill();
        let _ = state.process.wait();
    }
}

/// Asks the kernel to kill this process when the thread that started it ends, and ends at once when that has happened
/// already. `parent` is the process id of the starter, as it told its child.
///
/// # Errors
/// When the kernel refuses, or the parent is gone.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn end_with_parent(parent: u32) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have gone before the line above; then no signal ever comes.
    if std::os::unix::process::parent_id() == parent {
        return Ok(());
    }
    Err(io::Error::other("the process that started this one is gone"))
}

/// Not on this system.
///
/// # Errors
/// Always.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn end_with_parent(_parent: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

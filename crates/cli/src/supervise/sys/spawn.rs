//! Starting the command.
//!
//! `std::process::Command` copies the whole address space as soon as a hook before exec is needed, and one is
//! needed here: the command must die with its guard, and must get back the mask and the dispositions that the
//! user's shell gave us. So the command is started almost as `posix_spawn` does it: the new process borrows our
//! memory until it executes the command, and everything it needs is laid out beforehand, because it may not allocate.
//! Meanwhile we do not stand still: it is born, we do what must be done before the command begins, and let it go.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr::null;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::{pipe2, read};

use super::check;
use super::signal::{SignalSet, SignalSource};
use crate::supervise::signals::bit;

/// Room for the few calls between clone and exec; nothing in there uses large frames.
const STACK: usize = 32 * 1024;

/// More than `/proc/PID/status` is long up to the pending signals, even for a member of hundreds of groups.
const STATUS: usize = 8192;

/// Where programs are looked for when there is no PATH at all, as in execvp.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// What the command inherits besides environment and arguments.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    /// The mask that our own parent gave us.
    pub(crate) mask: SignalSet,
    /// Our own parent ignored SIGCHLD (we cannot: we must wait for the command).
    pub(crate) ignores_chld: bool,
}

/// A command whose strings are ready for exec.
pub(crate) struct Program {
    candidates: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    /// Looks nothing up yet: the candidates are tried by exec itself, in the order of PATH.
    pub(crate) fn new(argv: &[OsString], environment: Vec<(OsString, OsString)>) -> io::Result<Self> {
        let name = argv.first().map_or(&b""[..], |name| name.as_bytes());
        let path = environment.iter().find(|(key, _)| key == "PATH").map(|(_, value)| value.as_os_str());
        let candidates = candidates(name, path)?;
        let arguments =
            argv.iter().map(|text| c_string(text.as_bytes().to_vec())).collect::<Result<_, _>>()?;
        let environment = environment
            .into_iter()
            .map(|(key, value)| {
                let mut pair = key.into_vec();
                pair.push(b'=');
                pair.extend_from_slice(value.as_bytes());
                c_string(pair)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { candidates, arguments, environment })
    }

    /// Starts the command as a child of the calling thread and dies with that thread. `prepare` is called when the process is
    /// there, in the session and the group that we are in, and before the command begins; if it fails, nothing begins.
    ///
    /// All signals must be blocked by the caller, so that none of them meets the borrowed memory, and `signals` must
    /// be all of them.
    pub(crate) fn spawn(
        &self,
        inherited: Inherited,
        signals: &SignalSource,
        prepare: impl FnOnce(i32) -> io::Result<()>,
    ) -> io::Result<Spawned> {
        let arguments = pointers(&self.arguments);
        let environment = pointers(&self.environment);
        // What the kernel refuses as "not a program" is given to the shell, as execvp does.
        let mut script = vec![c"/bin/sh".as_ptr(), null()];
        script.extend(arguments.iter().skip(1));
        let status_path = c_string(format!("/proc/{}/status", std::process::id()).into_bytes())?;
        let mut status = [0; STATUS];
        let go = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?;
        let (left, leaves) = pipe2(OFlag::O_CLOEXEC)?;
        let mut launch = Launch {
            candidates: &self.candidates,
            arguments: &arguments,
            environment: &environment,
            script: &mut script,
            inherited,
            // SAFETY: getpid takes nothing and cannot fail.
            guard: unsafe { libc::getpid() },
            errno: 0,
            go: go.as_raw_fd(),
            status_path: &status_path,
            status: &mut status,
            pending: SignalSet::empty(),
        };
        let mut stack = vec![0_u128; STACK / size_of::<u128>()];
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        // Emptied at the last moment: what is pending here already, the kernel does not give to a new process.
        let before = signals.take_all()?.iter().fold(0, |bits, signal| bits | bit(signal.signo));
        // SAFETY: the new process runs `enter` on its own stack in our memory. `Newborn` is not gone before that process has
        // left the memory by exec or exit, so `launch` and `stack` outlive it; until then we touch neither. `enter` neither
        // allocates nor unwinds. The pointer past the end is the top of a stack that grows down, aligned to 16
        // bytes as the ABI wants it.
        let pid = check(unsafe {
            let top = stack.as_mut_ptr().add(stack.len());
            libc::clone(enter, top.cast(), flags, (&raw mut launch).cast())
        })?;
        let mut newborn = Newborn { pid, left, may_go: false };
        drop(leaves);
        let outcome = prepare(pid).and_then(|()| Ok(go.write(1).map(drop)?));
        newborn.may_go = outcome.is_ok();
        drop(newborn);
        // SAFETY: `launch` is alive; the other process, which wrote this behind the compiler's back, is done with it.
        let errno = unsafe { (&raw const launch.errno).read_volatile() };
        if outcome.is_ok() && errno == 0 {
            let at_birth = pending_in(launch.status) & !launch.pending.bits();
            return Ok(Spawned { pid, missed: before | at_birth });
        }
        // SAFETY: it has ended and is our child; a null status is allowed.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        outcome.and(Err(io::Error::from_raw_os_error(errno)))
    }
}

/// A process that still uses our memory. Is dropped only when it no longer does.
struct Newborn {
    pid: i32,
    /// Ends when the process leaves: it has the only other end, which exec closes, and its death.
    left: OwnedFd,
    may_go: bool,
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if !self.may_go {
            // SAFETY: kill takes any number; this one is our child's, which has not been waited for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
        while read(&self.left, &mut [0]) == Err(Errno::EINTR) {}
    }
}

/// A command that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    /// Signals (bit n−1 for n) that our group got but the command did not, because it was not there yet.
    ///
    /// The kernel gives a signal to a group that comes during a fork to the new process too (since Linux 4.19). What
    /// is left is the instant before the fork, which a busy machine can stretch to milliseconds. So the new process,
    /// still with every signal blocked, compares what is pending in us with what is pending in itself.
    pub(crate) missed: u64,
}

/// What the new process reads, and the few words that it writes.
struct Launch<'a> {
    candidates: &'a [CString],
    arguments: &'a [*const libc::c_char],
    environment: &'a [*const libc::c_char],
    script: &'a mut [*const libc::c_char],
    inherited: Inherited,
    guard: libc::pid_t,
    errno: i32,
    /// Readable when the command may begin.
    go: RawFd,
    status_path: &'a CStr,
    status: &'a mut [u8; STATUS],
    pending: SignalSet,
}

/// The new process between clone and exec. Its memory is ours, and so is its `errno`: no allocation, no lock, no panic, and until it
/// may go no call that fails.
extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes a valid Launch and keeps it until this process has left the memory. Every
    // call is async-signal-safe; all pointers end with a null as exec wants.
    unsafe {
        let launch = &mut *argument.cast::<Launch<'_>>();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != launch.guard {
            libc::_exit(127); // The guard died before its death could be announced to us.
        }
        let status = libc::open(launch.status_path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        libc::read(status, launch.status.as_mut_ptr().cast(), STATUS);
        libc::close(status);
        libc::sigpending(launch.pending.raw_mut());
        let mut count = 0_u64;
        if libc::read(launch.go, (&raw mut count).cast(), size_of::<u64>()) <= 0 {
            libc::_exit(127);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if launch.inherited.ignores_chld {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        libc::sigprocmask(libc::SIG_SETMASK, launch.inherited.mask.raw(), std::ptr::null_mut());
        launch.errno = exec(launch);
        libc::_exit(127)
    }
}

/// Tries every candidate; returns the errno that execvp would give.
unsafe fn exec(launch: &mut Launch<'_>) -> i32 {
    let mut denied = false;
    for candidate in launch.candidates {
        // SAFETY: called by `enter` only, see there.
        let errno = unsafe {
            libc::execve(candidate.as_ptr(), launch.arguments.as_ptr(), launch.environment.as_ptr());
            let mut errno = *libc::__errno_location();
            if errno == libc::ENOEXEC
                && let Some(slot) = launch.script.get_mut(1)
            {
                *slot = candidate.as_ptr();
                libc::execve(c"/bin/sh".as_ptr(), launch.script.as_ptr(), launch.environment.as_ptr());
                errno = *libc::__errno_location();
            }
            errno
        };
        match errno {
            libc::EACCES => denied = true,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            other => return other,
        }
    }
    if denied { libc::EACCES } else { libc::ENOENT }
}

/// The paths that may be the program, in order.
fn candidates(name: &[u8], path: Option<&OsStr>) -> io::Result<Vec<CString>> {
    if name.is_empty() {
        return Ok(Vec::new());
    }
    if name.contains(&b'/') {
        return Ok(vec![c_string(name.to_vec())?]);
    }
    path.map_or(DEFAULT_PATH, OsStrExt::as_bytes)
        .split(|byte| *byte == b':')
        .map(|folder| {
            let mut full = folder.to_vec();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(name);
            c_string(full)
        })
        .collect()
}

/// The signals pending for a process, from its `/proc/PID/status`; none if that could not be read.
fn pending_in(status: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(status);
    let word = text.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    word.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| CStr::as_ptr(text)).chain([null()]).collect()
}

fn c_string(bytes: Vec<u8>) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
        time::Duration,
    };

    use leasehold_testkit::process::wait_until;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Whether a process waits in a call of the kernel, and in which program.
    fn waits(pid: i32) -> Option<PathBuf> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.contains(") S ").then(|| fs::read_link(format!("/proc/{pid}/exe")).ok())?
    }

    fn spawn(command: &str, prepare: impl FnOnce(i32) -> io::Result<()>) -> io::Result<Spawned> {
        let argv: Vec<OsString> = ["sh", "-c", command].map(OsString::from).into();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = Program::new(&argv, vec![("PATH".into(), path)]).unwrap();
        // No signal of this process is touched: it has the threads of other tests.
        let signals = SignalSource::new(&SignalSet::empty()).unwrap();
        program.spawn(Inherited { mask: SignalSet::empty(), ignores_chld: false }, &signals, prepare)
    }

    fn ended(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: waits for our own child, into a place of ours.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    #[test]
    fn nothing_begins_before_it_may() {
        let mut seen = None;
        let started = spawn("exit 7", |pid| {
            let here = fs::read_link("/proc/self/exe")?;
            let ours = || (waits(pid)? == here).then_some(pid);
            seen = Some(wait_until("our program, waiting", LONG, ours).map_err(io::Error::other)?);
            Ok(())
        });
        let Spawned { pid, .. } = started.unwrap();
        assert_eq!((seen, libc::WEXITSTATUS(ended(pid))), (Some(pid), 7));
    }

    #[test]
    fn what_may_not_begin_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        let mut born = 0;
        let refused = spawn(&format!("touch {}", made.display()), |pid| {
            born = pid;
            Err(io::Error::from_raw_os_error(libc::ETIME))
        });
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ETIME));
        assert!(born > 0 && !Path::new(&format!("/proc/{born}")).exists() && !made.exists());
    }
}

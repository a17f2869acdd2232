//! Processes by number: fork, wait, and handles that a recycled number cannot fool.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::abort;

use super::check;
use crate::supervise::event::Status;

/// Runs `body` in a copy of this process and returns the copy's pid; the copy ends with `body`.
///
/// Must be called while the process has a single thread: the copy has only the calling thread, and a lock that
/// another one held (the allocator's, say) would stay locked in it for ever.
pub(crate) fn fork(body: impl FnOnce()) -> io::Result<i32> {
    /// Leaves the copy whatever happens, so that it never returns into the caller's code.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            // SAFETY: _exit runs no handler and no destructor; the copy owns nothing that needs one.
            unsafe { libc::_exit(0) }
        }
    }
    // SAFETY: the caller is single-threaded (see above), so the copy is a complete program.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        let leave = Leave;
        body();
        drop(leave);
        abort();
    }
    Ok(pid)
}

/// A change of state that `wait` reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Ended(Status),
    Stopped(i32),
    Continued,
}

/// What `wait` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A child changed.
    Changed(i32, Change),
    /// There are children, and none has anything new to say.
    Nothing,
    /// There is no child left. For a subreaper: nothing of its tree exists any more.
    NoChild,
}

/// Takes one change of any child, without waiting.
pub(crate) fn wait() -> io::Result<Waited> {
    let mut raw = 0;
    let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    loop {
        // SAFETY: the status pointer is valid for the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut raw, flags) };
        if pid == 0 {
            return Ok(Waited::Nothing);
        }
        if pid > 0 {
            let change = if libc::WIFEXITED(raw) {
                Change::Ended(Status::Code(libc::WEXITSTATUS(raw)))
            } else if libc::WIFSIGNALED(raw) {
                Change::Ended(Status::Signal(libc::WTERMSIG(raw)))
            } else if libc::WIFSTOPPED(raw) {
                Change::Stopped(libc::WSTOPSIG(raw))
            } else {
                Change::Continued
            };
            return Ok(Waited::Changed(pid, change));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(Waited::NoChild),
            _ => return Err(error),
        }
    }
}

/// A process that stays the same process even if its number is given to another one.
#[derive(Debug)]
pub(crate) struct Handle(OwnedFd);

impl Handle {
    /// `Ok(None)`: this kernel has no such handles.
    pub(crate) fn open(pid: i32) -> io::Result<Option<Self>> {
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match i32::try_from(fd) {
            // SAFETY: the new descriptor (close-on-exec by definition) has no other owner.
            Ok(fd) if fd >= 0 => Ok(Some(Self(unsafe { OwnedFd::from_raw_fd(fd) }))),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENOSYS) => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Sends a signal to this very process.
    pub(crate) fn send(&self, signo: i32) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo asks for the same information as kill(2).
        let outcome =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signo, none, 0) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Readable once the process has ended.
impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

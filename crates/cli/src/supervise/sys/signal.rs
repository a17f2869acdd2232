//! Signals by number: sets, masks, dispositions, sending, and reading who sent one.
//!
//! nix names the classic signals only; a wrapper must also pass on real-time ones with the value they carry,
//! and must tell a Ctrl-C typed at the terminal from a `kill -INT` aimed at it. Hence plain numbers.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

/// A set of signals.
#[derive(Clone, Copy)]
pub(crate) struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// No signal.
    pub(crate) fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the whole set and cannot fail for a valid pointer.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// Every signal that libc does not keep for itself.
    pub(crate) fn full() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the whole set and cannot fail for a valid pointer.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// Adds a signal; a number that is no signal is ignored.
    pub(crate) fn add(&mut self, signo: i32) {
        // SAFETY: the set is initialised; a bad number is answered with EINVAL and changes nothing.
        unsafe { libc::sigaddset(&raw mut self.0, signo) };
    }

    /// Is this signal in the set?
    pub(crate) fn contains(&self, signo: i32) -> bool {
        // SAFETY: the set is initialised; a bad number is answered with -1.
        unsafe { libc::sigismember(&raw const self.0, signo) == 1 }
    }

    /// The signals from 1 to 64 as bits, the first in the lowest.
    pub(crate) fn bits(&self) -> u64 {
        (1..=64).filter(|signo| self.contains(*signo)).fold(0, |bits, signo| bits | 1 << (signo - 1))
    }

    pub(super) fn raw(&self) -> &libc::sigset_t {
        &self.0
    }

    pub(super) fn raw_mut(&mut self) -> *mut libc::sigset_t {
        &raw mut self.0
    }
}

/// Replaces the calling thread's mask and returns the old one.
pub(crate) fn set_mask(mask: &SignalSet) -> io::Result<SignalSet> {
    let mut old = SignalSet::empty();
    // SAFETY: both pointers refer to initialised sets that live across the call.
    let errno = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask.raw(), &raw mut old.0) };
    if errno == 0 { Ok(old) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Is this signal ignored by the process (as `nohup` leaves SIGHUP)?
pub(crate) fn is_ignored(signo: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action only queries; the old action is written before it is read.
    unsafe {
        libc::sigaction(signo, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Gives a signal its default effect again.
pub(crate) fn set_default(signo: i32) {
    // SAFETY: SIG_DFL installs no code of ours; a bad number is answered with EINVAL.
    unsafe { libc::signal(signo, libc::SIG_DFL) };
}

/// Sends a signal to one process.
pub(crate) fn send(pid: i32, signo: i32) -> io::Result<()> {
    // SAFETY: kill takes numbers only.
    check(unsafe { libc::kill(pid, signo) }).map(drop)
}

/// Sends a signal together with the value that its sender gave it.
pub(crate) fn send_with_value(pid: i32, signo: i32, value: u64) -> io::Result<()> {
    /// `siginfo_t` as the kernel reads it for a queued signal. `libc` keeps these fields private.
    #[repr(C)]
    struct Payload {
        pid: libc::pid_t,
        uid: libc::uid_t,
        value: usize,
    }
    #[repr(C)]
    struct Queued {
        signo: libc::c_int,
        errno: libc::c_int,
        code: libc::c_int,
        payload: Payload,
        rest: [u8; 128],
    }
    let info = Queued {
        signo,
        errno: 0,
        code: libc::SI_QUEUE,
        payload: Payload {
            // SAFETY: these two calls take nothing and cannot fail.
            pid: unsafe { libc::getpid() },
            // SAFETY: as above.
            uid: unsafe { libc::getuid() },
            value: usize::try_from(value).unwrap_or(0),
        },
        rest: [0; 128],
    };
    // SAFETY: the kernel reads 128 bytes from the pointer, and the struct is longer than that.
    let outcome = unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signo, &raw const info) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this process the default effect of a signal, now, even if the signal is blocked or ignored.
///
/// Returns if that effect is none (a stop signal in an orphaned group, any default in the init of a
/// container) or once a stopped process is continued.
pub(crate) fn take_default_effect(signo: i32) -> io::Result<()> {
    set_default(signo);
    let mut only = SignalSet::empty();
    only.add(signo);
    let mut old = SignalSet::empty();
    // SAFETY: raise takes a number; the mask pointers refer to initialised sets that live across the calls.
    // The signal is pending for this thread before it is unblocked, so it acts inside the second call.
    unsafe {
        check(libc::raise(signo))?;
        libc::pthread_sigmask(libc::SIG_UNBLOCK, only.raw(), &raw mut old.0);
        libc::pthread_sigmask(libc::SIG_SETMASK, old.raw(), std::ptr::null_mut());
    }
    Ok(())
}

/// A signal as it was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Its number.
    pub(crate) signo: i32,
    /// How it was made: `SI_USER`, `SI_QUEUE`, `SI_KERNEL`, …
    pub(crate) code: i32,
    /// The process that sent it, 0 if the kernel did or if the sender is not visible from here.
    pub(crate) sender: i32,
    /// The value given to `sigqueue`.
    pub(crate) value: u64,
}

/// Blocked signals as a readable descriptor.
#[derive(Debug)]
pub(crate) struct SignalSource(OwnedFd);

impl SignalSource {
    /// The signals must be blocked by the caller.
    pub(crate) fn new(set: &SignalSet) -> io::Result<Self> {
        // SAFETY: the set is initialised; the new descriptor has no other owner.
        unsafe {
            let fd = check(libc::signalfd(-1, set.raw(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Takes the next pending signal, `None` if there is none.
    pub(crate) fn take(&self) -> io::Result<Option<Received>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        loop {
            // SAFETY: the buffer is as long as the count; every bit pattern is a valid signalfd_siginfo.
            let (got, info) = unsafe {
                let got = libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size);
                (got, info.assume_init())
            };
            if usize::try_from(got) == Ok(size) {
                return Ok(Some(Received {
                    signo: info.ssi_signo.cast_signed(),
                    code: info.ssi_code,
                    sender: info.ssi_pid.cast_signed(),
                    value: info.ssi_ptr,
                }));
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return Ok(None),
                _ => return Err(error),
            }
        }
    }

    /// Takes every pending signal.
    pub(crate) fn take_all(&self) -> io::Result<Vec<Received>> {
        let mut all = Vec::new();
        while let Some(signal) = self.take()? {
            all.push(signal);
        }
        Ok(all)
    }
}

impl AsFd for SignalSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

//! The system calls that the safe wrappers do not offer, each behind a safe function.
//!
//! Everything `unsafe` about supervising processes is in this folder, so that it can be read in one sitting:
//! `signal` (real-time signals, the sender of a signal, dispositions), `process` (fork, wait, pidfds) and
//! `spawn` (starting the command with no copy of our memory). The rest of the module has no unsafe code.
#![allow(unsafe_code)]

pub(super) mod process;
pub(super) mod signal;
pub(super) mod spawn;

use std::io;

/// Turns the `-1` convention of libc into a result.
fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

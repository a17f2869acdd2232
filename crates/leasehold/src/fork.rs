//! Knows whether this process is a forked child of the one that made a lease.
//!
//! A child made by `fork` has a copy of every guard and none of the threads that keep the lease: it must not act on the
//! copy. Asking the kernel for the process id at every check costs about as much as the check itself, so a counter is
//! raised in the child by the C library instead.
#![allow(unsafe_code, reason = "one call of the C library, explained where it stands")]

use std::sync::{
    Once,
    atomic::{AtomicU32, Ordering},
};

static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

extern "C" fn in_the_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How often this line of processes has forked since the first call of this function. Two equal answers: the same process.
pub(crate) fn generation() -> u32 {
    WATCH.call_once(|| {
        // SAFETY: the handler is a plain function that lives as long as the program and does one atomic addition, which is
        // safe in a forked child. If registration fails (no memory), forks go unnoticed, which is the state without it.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

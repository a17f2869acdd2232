//! Signals that end a wait. A claim that waits has a place in a queue; a program that is told to end gives it up first.
//!
//! The signals are blocked before any other thread starts, so that every thread inherits that, and one thread takes them.

use std::{
    future::poll_fn,
    io,
    pin::pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use leasehold::{blocking::block_on, clock};
use nix::sys::signal::{SigSet, Signal, raise};

/// What a terminal, a shell or a service manager sends to end a program.
const SIGNALS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals within this time of the first one are one request (ours: no hand is faster twice on purpose).
const REPEATED_US: u64 = 500_000;

/// Tells when this program was asked to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    signal: Option<Signal>,
    waker: Option<Waker>,
}

impl Interrupts {
    /// Begins to watch. To be called before anything else starts a thread.
    pub(crate) fn watch() -> io::Result<Self> {
        Self::watch_and(None)
    }

    /// The same for a program that stays: with `reload`, SIGHUP calls it, any number of times, and ends nothing.
    pub(crate) fn watch_and(reload: Option<Box<dyn Fn() + Send>>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let watched = watched();
        if watched.iter().next().is_none() {
            return Ok(Self(shared));
        }
        watched.thread_block()?;
        let told = Arc::clone(&shared);
        thread::Builder::new().name("leasehold-signals".to_owned()).spawn(move || {
            let next = || loop {
                match (watched.wait(), &reload) {
                    (Ok(Signal::SIGHUP), Some(reload)) => reload(),
                    (signal, _) => return signal,
                }
            };
            let Ok(first) = next() else { return };
            let told_us = clock::boot_us();
            told.tell(first);
            // One request to end often comes as two signals (`timeout` sends one to the program and one to its group). A later
            // one means that giving up takes too long for whoever waits.
            while let Ok(signal) = next() {
                if clock::boot_us().saturating_sub(told_us) >= REPEATED_US {
                    die_by(signal);
                }
            }
        })?;
        Ok(Self(shared))
    }

    /// Waits this long, or until a signal arrives.
    pub(crate) fn pause(&self, limit: Duration) -> Option<Signal> {
        let state = self.0.lock();
        let waited = self.0.arrived.wait_timeout_while(state, limit, |state| state.signal.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.signal
    }

    /// Runs a future of the library on this thread; drops it when a signal arrives.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> Result<T, Signal> {
        block_on(self.watching(future))
    }

    /// The future, or the signal that came before it was ready.
    pub(crate) async fn watching<T>(&self, future: impl Future<Output = T>) -> Result<T, Signal> {
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            let mut state = self.0.lock();
            if let Some(signal) = state.signal {
                return Poll::Ready(Err(signal));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Runs a future on this thread for at most `limit`; `None` when that was not enough, and the future is dropped. For what
/// has no timers of its own yet: everything before the library is connected.
pub(crate) fn run_for<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let started_us = clock::boot_us();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let gone = Duration::from_micros(clock::boot_us().saturating_sub(started_us));
        match limit.checked_sub(gone) {
            Some(left) if !left.is_zero() => thread::park_timeout(left),
            _ => return None,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, signal: Signal) {
        let mut state = self.lock();
        state.signal = Some(signal);
        let waker = state.waker.take();
        drop(state);
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Those signals that whoever started us did not tell us to ignore: a job in the background of a script ignores Ctrl-C.
fn watched() -> SigSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    SIGNALS.into_iter().filter(|signal| ignored >> (*signal as i32 - 1) & 1 == 0).collect()
}

/// The mask of ignored signals, as Linux tells it: bit n−1 stands for signal n.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Ends this process by the signal, so that a shell sees what happened. Returns if the signal is not deadly.
pub(crate) fn die_by(signal: Signal) {
    let alone: SigSet = [signal].into_iter().collect();
    let _ = alone.thread_unblock();
    let _ = raise(signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status =
            "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001002\nSigCgt:\t0000000000000440\n";
        assert_eq!(ignored(status), 0x1002);
        assert_eq!((ignored(""), ignored("SigIgn:\tx\n")), (0, 0));
    }

    #[test]
    fn a_limit_ends_a_future_that_is_never_ready() {
        assert_eq!(run_for(Duration::from_secs(60), async { 5 }), Some(5));
        assert_eq!(run_for(Duration::from_millis(5), std::future::pending::<()>()), None);
    }

    #[test]
    fn a_signal_ends_a_pause_and_a_future() {
        let interrupts = Interrupts(Arc::new(Shared::default()));
        assert_eq!(interrupts.pause(Duration::from_millis(1)), None);
        assert_eq!(interrupts.run(async { 5 }), Ok(5));
        let shared = Arc::clone(&interrupts.0);
        let teller = thread::spawn(move || shared.tell(Signal::SIGTERM));
        assert_eq!(interrupts.run(std::future::pending::<()>()), Err(Signal::SIGTERM));
        assert_eq!(interrupts.pause(Duration::from_secs(60)), Some(Signal::SIGTERM));
        teller.join().unwrap();
    }
}

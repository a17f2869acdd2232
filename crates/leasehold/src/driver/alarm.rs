//! An alarm on BOOTTIME: after a suspend it rings at once for what came due meanwhile, where a timer on the monotonic
//! clock would still wait for the time that it did not see pass.

use std::{io, os::fd::AsFd as _, time::Duration};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::net::unix::pipe::Receiver;

use crate::clock;

/// One alarm, set to a moment.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: TimerFd,
    /// The same timer, watched by the runtime.
    watched: Receiver,
    at_ns: u64,
}

impl Alarm {
    /// An alarm that is not set. Needs a runtime with I/O.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
        // To the runtime a timer is a descriptor that becomes readable, as the end of a pipe does.
        let watched = Receiver::from_owned_fd_unchecked(timer.as_fd().try_clone_to_owned()?)?;
        Ok(Self { timer, watched, at_ns: u64::MAX })
    }

    /// Sets it to `at_ns` on BOOTTIME; `u64::MAX` for never.
    pub(super) fn set(&mut self, at_ns: u64) {
        if at_ns == self.at_ns {
            return;
        }
        self.at_ns = at_ns;
        // An absolute time of zero would disarm the timer: one nanosecond is as long past.
        let at = TimeSpec::from_duration(Duration::from_nanos(at_ns.max(1)));
        let set = if at_ns == u64::MAX {
            self.timer.unset()
        } else {
            self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
        };
        debug_assert!(set.is_ok(), "a timer of ours takes every time: {set:?}");
    }

    /// Ready when the moment has come. How late that is: whatever kept this thread from running.
    pub(super) async fn rings(&mut self) -> Duration {
        let at_ns = self.at_ns;
        if self.watched.readable().await.is_ok() {
            // What is read is how often it rang; the state of the leases says what is due.
            let _ = self.watched.try_read(&mut [0; 8]);
            self.at_ns = u64::MAX;
        }
        Duration::from_nanos((clock::boot_us() * 1_000).saturating_sub(at_ns))
    }
}

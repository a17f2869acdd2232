//! Renewing while the front is suspended, on a thread of its own.
//!
//! A renewal may hang as long as the network likes; the deadline may not. So the watching thread only says "now"
//! and hears the outcome when there is one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::supervise::caretaker::{Caretaker, Renewal};

/// The watching thread's end. Dropping it ends the renewals; one under way is not waited for.
#[derive(Debug)]
pub(super) struct Keep {
    now: Sender<()>,
    outcomes: Receiver<Renewal>,
    bell: Arc<EventFd>,
    /// When to renew next; `None` while a renewal is under way.
    pub(super) next_ns: Option<u64>,
}

impl Keep {
    /// Starts with a renewal at once: the last one of the front may have been a while ago.
    pub(super) fn start(caretaker: Arc<dyn Caretaker>, handoff: Vec<u8>) -> io::Result<Self> {
        let (now, orders) = channel();
        let (results, outcomes) = channel();
        let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let ring = Arc::clone(&bell);
        thread::Builder::new().name("keeper".into()).spawn(move || {
            let mut keeper = caretaker.keep_alive(&handoff);
            while orders.recv().is_ok() {
                if results.send(keeper.renew()).is_err() {
                    return;
                }
                // The counter cannot be full: nobody renews that often.
                let _full = ring.write(1);
            }
        })?;
        let mut keep = Self { now, outcomes, bell, next_ns: None };
        keep.renew();
        Ok(keep)
    }

    /// Orders a renewal.
    pub(super) fn renew(&mut self) {
        self.next_ns = None;
        // If the thread is gone (its callback panicked), the lease ends at its deadline as it must.
        let _gone = self.now.send(());
    }

    /// The outcomes since the last call.
    pub(super) fn outcomes(&mut self) -> io::Result<Vec<Renewal>> {
        match self.bell.read() {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(other) => return Err(other.into()),
        }
        Ok(self.outcomes.try_iter().collect())
    }
}

impl AsFd for Keep {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

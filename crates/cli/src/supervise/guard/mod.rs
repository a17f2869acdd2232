//! The guard: the process between the front and the command.
//!
//! The front can be killed, stopped, or hang in a call to a dead coordinator; the promise that the command is
//! dead before the lease can pass to another must not depend on it. So a copy of the front, made before there
//! were threads, does nothing but watch: the clock, the front, the tree. It has one thread (renewing during a
//! Ctrl-Z, which may block, gets a second one), allocates little, and touches no network.
//!
//! ```text
//! waiting ──start──► watching ──command ends──────────────────────────► ended
//!    │                  │  └─deadline, front gone, asked─► stopping ──► ended
//!    └─front gone─► (silence)                                └─kill at the end of the grace
//! ```

mod keep;
mod link;
mod terms;
mod watch;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_name};
use nix::unistd::setsid;

use super::caretaker::Caretaker;
use super::channel::{Channel, Packet};
use super::clock::{boottime_ns, nanos};
use super::event::Start;
use super::stdio::leave_stdio;
use super::sys::signal::{SignalSet, SignalSource, set_default};
use super::sys::spawn::{Inherited, Program, Spawned};
use super::wire::{Ask, Tell};
use link::Link;
use watch::Watch;

/// What the guard is born with.
pub(super) struct Birth {
    pub(super) channel: Channel,
    pub(super) argv: Vec<OsString>,
    pub(super) inherited: Inherited,
    pub(super) caretaker: Arc<dyn Caretaker>,
    pub(super) front: i32,
}

impl Birth {
    /// The whole life of the guard. All signals are blocked.
    ///
    /// An error ends the guard, and with it the command (it dies with its parent); the front then takes care of
    /// the rest of the tree. There is nobody to tell but the front, and the end of the channel tells it.
    pub(super) fn live(self) {
        let _told_by_the_end_of_the_channel = self.try_live();
    }

    fn try_live(self) -> io::Result<()> {
        set_name(c"leasehold-guard")?;
        set_default(libc::SIGCHLD);
        let signals = SignalSource::new(&SignalSet::full())?;
        set_child_subreaper(true)?;
        let Some(start) = wait_for_start(&self.channel)? else { return Ok(()) };
        let Some(Spawned { pid, missed }) = self.spawn(&start, &signals)? else { return Ok(()) };
        self.channel.send(&Tell::Started { pid, missed }.encode())?;
        // Not worth dying for: it only delays the end of a pipe.
        let _kept_open = leave_stdio();
        let link = Link::new(self.channel, self.front);
        Watch::new(link, self.caretaker, signals, pid, start)?.run()
    }

    /// Starts the command; tells the front if that fails.
    fn spawn(&self, start: &Start, signals: &SignalSource) -> io::Result<Option<Spawned>> {
        let before_it_begins = |_| {
            // Not earlier: the command had to be born in the session and the group of the front. Not later: who stops or kills
            // that group must not stop or kill us beside a command that runs.
            setsid()?;
            // And if we were stopped until now, the lease may be over.
            let too_late = start.deadline_ns.saturating_sub(nanos(start.kill_margin)) <= boottime_ns();
            if too_late { Err(io::Error::from_raw_os_error(libc::ETIME)) } else { Ok(()) }
        };
        let outcome = Program::new(&self.argv, environment(start))
            .and_then(|program| program.spawn(self.inherited, signals, before_it_begins));
        match outcome {
            Ok(started) => Ok(Some(started)),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                self.channel.send(&Tell::SpawnFailed { errno }.encode())?;
                Ok(None)
            }
        }
    }
}

/// `None`: the front ended before it had anything to start.
fn wait_for_start(channel: &Channel) -> io::Result<Option<Start>> {
    loop {
        let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(other) => return Err(other.into()),
        }
        match channel.receive()? {
            Packet::End => return Ok(None),
            Packet::Nothing => {}
            Packet::Bytes(packet) => {
                if let Some(Ask::Start(start)) = Ask::decode(&packet) {
                    return Ok(Some(start));
                }
            }
        }
    }
}

/// Our own environment with the changes that came with the grant.
fn environment(start: &Start) -> Vec<(OsString, OsString)> {
    let replaced =
        |key: &OsString| start.remove_env.contains(key) || start.set_env.iter().any(|(new, _)| new == key);
    let mut all: Vec<_> = std::env::vars_os().filter(|(key, _)| !replaced(key)).collect();
    all.extend(start.set_env.iter().cloned());
    all
}

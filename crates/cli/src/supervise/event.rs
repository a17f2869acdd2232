//! What the front learns: how the command fares, which signals came, that a thread wants attention.

use std::ffi::OsString;
use std::time::Duration;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A process, named for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number; 0 for one that is there and cannot be seen.
    pub pid: i32,
    /// Its short name (`comm`), empty if it could not be read.
    pub name: String,
}

/// Why the guard stopped the command and its whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The front asked for it ([`Remote::stop`](super::Remote::stop)).
    Asked,
    /// The deadline came near and no renewal had moved it.
    Deadline,
    /// The guard renewed while the front was suspended, and learnt that the lease is lost.
    LeaseLost,
    /// The front ended without waiting for the command.
    FrontGone,
    /// The command ended by itself and its surviving descendants were to be stopped too.
    Leftovers,
}

/// The last word of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How the command ended; `None` if it could not even be killed.
    pub status: Option<Status>,
    /// When the guard saw the command end, in nanoseconds of BOOTTIME; 0 without a status. Compare it
    /// with the deadline to learn whether the lease was still held then.
    pub at_ns: u64,
    /// The deadline in force then (BOOTTIME), as the guard's own renewals may have moved it.
    pub deadline_ns: u64,
    /// Why the tree was stopped; `None` if the command ended by itself.
    pub stopped: Option<StopReason>,
    /// At least one process had to be killed because asking it to end was not enough.
    pub killed: bool,
    /// Descendants that are still alive (256 at most are named). Without a stop: daemons left alone on purpose. After
    /// a stop: what could not be killed, under which the lease must not be released.
    pub left: Vec<Process>,
    /// The guard has released the lease already, because the front was suspended when the command ended. False: it did not
    /// have to, or it tried in vain, and the front must.
    pub released: bool,
}

/// News from the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardEvent {
    /// The command runs.
    Started {
        /// Its process.
        pid: i32,
    },
    /// The command could not be started; the guard has ended.
    SpawnFailed {
        /// Why. `ETIME`: the deadline was too near to start anything.
        errno: i32,
    },
    /// The command was stopped by this signal (Ctrl-Z, or a read from the terminal in the background).
    ChildStopped {
        /// The stop signal.
        signal: i32,
    },
    /// The command runs again after a stop.
    ChildContinued,
    /// The tree was asked to end, and will be killed when its grace is over.
    Stopping {
        /// Why.
        reason: StopReason,
    },
    /// The command has ended, and after a stop its tree with it. The guard has ended too.
    Ended(Ended),
    /// The guard died (killed with -9, say). The command died with it, and the front has killed the rest.
    Died {
        /// What could not be killed.
        left: Vec<Process>,
    },
}

/// Where a signal came from, which decides whether the command already has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Typed at the terminal, which gave it to the whole process group.
    Terminal,
    /// Sent by the command or a descendant of it, in practice with `kill 0`.
    Tree,
    /// Sent by the guard, to wake a suspended front.
    Guard,
    /// About this process itself: its own limits, its own broken pipe.
    Own,
    /// Sent by anybody else to the front.
    Outside,
}

/// A signal that reached the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalEvent {
    /// Its number.
    pub signo: i32,
    /// Where it came from.
    pub origin: Origin,
    /// It was passed on to the command just now. Signals from the terminal are not: the command has them.
    pub forwarded: bool,
}

/// What [`Front::next_event`](super::Front::next_event) waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The guard has news.
    Guard(GuardEvent),
    /// A signal came.
    Signal(SignalEvent),
    /// [`Waker::wake`](super::Waker::wake) was called at least once since the last event of this kind.
    Woken,
    /// Nothing happened in the given time.
    Timeout,
}

/// What the guard must know once the lease is granted.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Environment variables to set for the command.
    pub set_env: Vec<(OsString, OsString)>,
    /// Environment variables to hide from it.
    pub remove_env: Vec<OsString>,
    /// When everything must be dead, in nanoseconds of BOOTTIME.
    pub deadline_ns: u64,
    /// How long before the deadline the tree is asked to end.
    pub grace: Duration,
    /// How long before the deadline it is killed; see [`kill_margin`](super::kill_margin).
    pub kill_margin: Duration,
    /// Given to the [`Caretaker`](super::Caretaker) as it is.
    pub handoff: Vec<u8>,
    /// Descendants that survive the command are stopped too, instead of left alone.
    pub kill_leftovers: bool,
}

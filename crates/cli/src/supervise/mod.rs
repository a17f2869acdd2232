//! Running a command so that it, and everything it starts, is dead before a deadline.
//!
//! Three processes take part:
//!
//! ```text
//! shell ── front ── guard ── command ── its children …
//! ```
//!
//! * The **front** ([`Front`]) is the process that the shell started. It has the terminal, the threads that renew the
//!   lease, and the signals.
//! * The **guard** is a copy of the front, forked before there are threads. It starts the command when it is told to, and
//!   from then on ends it at the deadline, whatever becomes of the front. It is in a session of its own, so that nothing
//!   typed at the terminal reaches it, and it adopts every descendant of the command that loses its parent, so that none
//!   escapes by daemonising.
//! * The **command** is in the session and the process group of the front: for the terminal, for job control and for
//!   pipelines it is as if the shell had started it alone.
//!
//! Whoever dies, the others notice without a message: the end of a socket tells guard and front of each other, and the
//! kernel kills the command with the guard. Only if front *and* guard are killed with -9 at the same time does a grandchild
//! survive.
//!
//! This module knows processes, signals and deadlines. What a lease is, the [`Caretaker`] knows.
//!
//! ```no_run
//! use leasehold_cli::supervise::{self, Caretaker, Event, Front, GuardEvent, Keeper, Process, Renewal, Start, Status};
//!
//! struct Nobody;
//! impl Keeper for Nobody {
//!     fn renew(&mut self) -> Renewal { Renewal::Lost }
//! }
//! impl Caretaker for Nobody {
//!     fn release(&self, _: &[u8]) -> bool { false }
//!     fn keep_alive(&self, _: &[u8]) -> Box<dyn Keeper> { Box::new(Nobody) }
//!     fn unkillable(&self, _: &[u8], _: &[Process]) {}
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let mut front = Front::fork(vec!["true".into()], Nobody)?; // before any thread
//! // … acquire the lease on library threads …
//! let deadline_ns = supervise::boottime_ns() + 30_000_000_000;
//! front.start(Start { deadline_ns, ..Start::default() })?;
//! loop {
//!     match front.next_event(None)? {
//!         Event::Guard(GuardEvent::Ended(ended)) => supervise::die_like(ended.status.unwrap_or(Status::Code(79))),
//!         _ => {}
//!     }
//! }
//! # }
//! ```

mod caretaker;
mod channel;
mod clock;
mod ending;
mod event;
mod front;
mod guard;
mod signals;
mod stdio;
mod sys;
mod terminal;
mod tree;
mod wire;

use std::time::Duration;

pub use caretaker::{Caretaker, Keeper, Renewal};
pub use clock::boottime_ns;
pub use ending::{die_like, stop_self};
pub use event::{Ended, Event, GuardEvent, Origin, Process, SignalEvent, Start, Status, StopReason};
pub use front::{Front, Remote, Resumed, Waker};
pub use stdio::leave_stdio;

/// True when `/proc` shows the processes of this process's own namespace: without it descendants cannot be found.
pub fn sees_processes() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|own| own.to_str() == Some(&std::process::id().to_string()))
}

/// How long before the deadline the tree is killed: 250 ms, or a twentieth of the TTL if that is less.
///
/// Killing and reaping a tree of a hundred processes takes about ten milliseconds; the rest is for a machine that
/// is too busy to let the guard run at once.
pub fn kill_margin(ttl: Duration) -> Duration {
    Duration::from_millis(250).min(ttl / 20)
}

/// The exit code for a command that could not be started, as shells, `env` and `nohup` give it.
pub fn spawn_failure_code(errno: i32) -> i32 {
    if errno == libc::ENOENT { 127 } else { 126 }
}

//! `run`: a command under a lease.
//!
//! Joins two rooms that do not know each other: [`crate::supervise`] knows processes and deadlines, the library knows
//! leases. The main thread is the front; it waits for signals, for the guard and for the lease in one place, and nothing
//! here prints: what happened is a [`Verdict`], what is worth a line beside it a [`Note`].
//!
//! ```text
//!   fork the guard ─▶ connect ─▶ acquire (wait) ─▶ start the command ─▶ keep ─▶ release ─▶ verdict
//!                                                                        │ ▲
//!                                              each good renewal moves the guard's deadline on
//! ```

mod acquire;
mod caretaker;
mod handoff;
mod keep;
mod poll;
pub(crate) mod say;

use std::{ffi::OsString, io, time::Duration};

use leasehold::{
    ConnectBuilder, Done, Error, Invalid, Kind, Loss, Namespace, Refusal, Resource, Ttl, Wait,
    blocking::Leases, core::policy::Policy,
};

use crate::supervise::{Front, Process, Status};

/// Everything `run` needs to know, checked.
#[derive(Debug)]
pub(crate) struct Plan {
    /// How to reach the coordinator.
    pub(crate) connect: ConnectBuilder,
    pub(crate) namespace: Namespace,
    pub(crate) resource: Resource,
    /// The command and its arguments; never empty.
    pub(crate) command: Vec<OsString>,
    pub(crate) ttl: Ttl,
    pub(crate) wait: Wait,
    /// Between asking the tree to end and killing it.
    pub(crate) grace: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) once_per: Option<Duration>,
    pub(crate) kill_leftovers: bool,
}

impl Plan {
    /// 5 s: what most service managers' users expect of a polite end.
    const DEFAULT_GRACE: Duration = Duration::from_secs(5);

    /// The grace to use: as asked, or 5 s; never more than a third of the TTL, so that a holder which cannot renew still
    /// has time to try.
    pub(crate) fn grace(asked: Option<Duration>, ttl: Ttl) -> Result<Duration, Invalid> {
        let third = ttl.as_duration() / 3;
        match asked {
            Some(grace) if grace > third => {
                let problem =
                    format!("is {grace:?}; it must be at most a third of the TTL, {third:?}: raise --ttl");
                Err(Invalid::with("--grace", problem))
            }
            Some(grace) => Ok(grace),
            None => Ok(Self::DEFAULT_GRACE.min(third)),
        }
    }

    fn policy(&self) -> Result<Policy, Invalid> {
        Policy::builder(self.ttl).max_hold(self.max_hold).build()
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The command ended under its lease: its status is ours.
    Command(Status),
    /// The command could not be started.
    NotStarted {
        /// The operating system's reason.
        errno: i32,
    },
    /// Nothing needed doing.
    AlreadyDone(Done),
    /// Not granted within the wait.
    Refused(Refusal),
    /// The resource is held by the very run that this one is part of.
    Nested,
    /// The coordinator could not be asked, or nobody knows.
    Failed(Error),
    /// A signal ended the wait for the lease.
    Interrupted(i32),
    /// The lease was lost while the command ran.
    Lost(Loss),
    /// The command succeeded, and nobody knows whether that was recorded.
    SuccessUnrecorded(String),
}

/// Something worth a line beside the verdict.
#[derive(Debug)]
pub(crate) enum Note {
    /// Descendants of the command live on, without the lease.
    Leftovers(Vec<Process>),
    /// These could not be killed; the lease was not released.
    Unkillable(Vec<Process>),
    /// The release was not confirmed.
    NotReleased(Error),
    /// The guard was killed.
    GuardDied,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) notes: Vec<Note>,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, notes: Vec::new() }
    }
}

/// Runs the command under a lease. Must be called while the process has one thread.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let policy = match plan.policy() {
        Ok(policy) => policy,
        Err(invalid) => return Verdict::Failed(invalid.into()).into(),
    };
    let caretaker = caretaker::LeaseCaretaker { connect: plan.connect.clone(), policy };
    let mut front = match Front::fork(plan.command.clone(), caretaker) {
        Ok(front) => front,
        Err(reason) => {
            return Verdict::Failed(system("the guard process could not be started", &reason)).into();
        }
    };
    let leases = match Leases::connect_with(plan.connect.clone()) {
        Ok(leases) => leases,
        Err(error) => return Verdict::Failed(error).into(),
    };
    match acquire::acquire(plan, &mut front, leases.inner()) {
        Ok(lease) => keep::keep(plan, front, leases.inner(), lease),
        Err(verdict) => {
            // What was taken back in the background must be gone before this process is.
            drop(front);
            leases.close(Duration::from_secs(2));
            verdict.into()
        }
    }
}

/// An error of the operating system in something that needs no coordinator.
fn system(what: &str, reason: &io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("{what}: {reason}"))
        .advise("free processes, memory or file descriptors")
}

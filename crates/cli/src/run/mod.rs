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
mod again;
mod begin;
mod caretaker;
mod drain;
mod handoff;
mod keep;
mod notify;
mod poll;
mod preempted;
pub(crate) mod retune;
pub(crate) mod say;
mod tell;
mod terms;

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use leasehold::{
    ConnectBuilder, Done, Error, Invalid, Kind, Lease, Leases, Loss, Namespace, Refusal, Resource, Url,
    core::{holder::Identity, policy::Policy},
    settings::{Follower, Tuning},
};

pub(crate) use again::Origin;
pub(crate) use notify::Notify;
pub(crate) use preempted::OnPreempt;
pub(crate) use terms::Asked;
use terms::Terms;

use crate::{
    supervise::{Front, Process, Status, sees_processes},
    telemetry::{self, Telemetry},
};

/// Everything `run` needs to know, checked.
#[derive(Debug)]
pub(crate) struct Plan {
    /// How to reach the coordinator.
    pub(crate) connect: ConnectBuilder,
    /// The coordinator as the user named it, with its settings.
    pub(crate) url: Url,
    pub(crate) namespace: Namespace,
    pub(crate) resource: Resource,
    /// The command and its arguments; never empty.
    pub(crate) command: Vec<OsString>,
    /// What the options say of the lease.
    pub(crate) asked: Asked,
    /// What the configuration file says of it.
    pub(crate) own: Tuning,
    /// What the coordinator says of it, once it was asked.
    pub(crate) common: Tuning,
    /// What counts.
    pub(crate) terms: Terms,
    pub(crate) once_per: Option<Duration>,
    pub(crate) kill_leftovers: bool,
    pub(crate) restart: Restart,
    pub(crate) on_preempt: OnPreempt,
    /// The configuration file whose TTL counts, also when it changes.
    pub(crate) file: Option<PathBuf>,
    /// Before anything is asked for.
    pub(crate) pause: Duration,
    pub(crate) notify: Notify,
    pub(crate) telemetry: telemetry::Plan,
}

/// What comes after a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Restart {
    /// This program ends, as the command or the lease did.
    #[default]
    Never,
    /// A lease that was lost is waited for again.
    OnLoss,
    /// As that; and a command that ended by itself is started again.
    Always,
}

impl Plan {
    fn policy(&self) -> Result<Policy, Invalid> {
        Policy::builder(self.terms.ttl).max_hold(self.terms.max_hold).build()
    }

    /// Lets those settings of the coordinator's count that nobody nearer has an opinion on. Where they do not go with the
    /// rest of the run, none of them does.
    fn learn(&mut self, leases: &Leases, follower: &Follower) {
        let place = &leases.profile().place;
        let stays = "none of its settings counts";
        if let Some(problem) = follower.problem() {
            return retune::say(place, &problem, stays);
        }
        let common = leases.common_rules().of(&self.resource);
        match self.asked.under(self.own.over(common)) {
            Ok(terms) => (self.common, self.terms) = (common, terms),
            Err(failure) => retune::say(place, failure.what(), stays),
        }
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
    Refused(Box<Refusal>),
    /// The resource is held by the very run that this one is part of.
    Nested,
    /// The coordinator could not be asked, or nobody knows.
    Failed(Error),
    /// A signal ended the wait for the lease.
    Interrupted(i32),
    /// The lease was lost while the command ran.
    Lost(Loss),
    /// The command succeeded, and nobody knows whether that was recorded.
    SuccessUnrecorded,
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
    /// Somebody asked for the lease, and the command was told to end.
    Preempted {
        /// Who.
        by: String,
        /// Why.
        reason: String,
    },
    /// The guard was killed.
    GuardDied,
    /// The command did not end in the time it had after SIGTERM, and was made to.
    DrainedByForce,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) notes: Vec<Note>,
    /// The grant, when there was one.
    pub(crate) lease: Option<Identity>,
    /// The client, when it connected. To be closed: a claim may still have to be taken back.
    pub(crate) leases: Option<Leases>,
    /// To be dropped last of all: it then tells monitoring for the last time.
    pub(crate) telemetry: Telemetry,
    /// Somebody asked this program to end; nothing is started again.
    pub(crate) asked_to_end: bool,
}

/// Runs the command under a lease. Must be called while the process has one thread. `granted` is told of the lease before
/// the command starts.
pub(crate) fn run(plan: &mut Plan, granted: impl FnOnce(&Lease, &Leases)) -> Outcome {
    let mut outcome = Outcome {
        verdict: Verdict::NotStarted { errno: 0 },
        notes: Vec::new(),
        lease: None,
        leases: None,
        telemetry: Telemetry::default(),
        asked_to_end: false,
    };
    outcome.verdict = match attempt(plan, granted, &mut outcome) {
        Ok(verdict) | Err(verdict) => verdict,
    };
    outcome
}

/// Both arms end the run: `Err` before the command was started.
fn attempt(
    plan: &mut Plan,
    granted: impl FnOnce(&Lease, &Leases),
    outcome: &mut Outcome,
) -> Result<Verdict, Verdict> {
    let policy = plan.policy().map_err(|invalid| Verdict::Failed(invalid.into()))?;
    if !sees_processes() {
        let what = "/proc does not show the processes of this namespace, so the command's descendants could not be ended";
        return Err(Verdict::Failed(
            Error::new(Kind::Unsupported, what).advise("mount /proc (unshare: --mount-proc)"),
        ));
    }
    let caretaker = caretaker::LeaseCaretaker { connect: plan.connect.clone(), policy };
    let forked = Front::fork(plan.command.clone(), caretaker);
    let mut front = forked
        .map_err(|reason| Verdict::Failed(system("the guard process could not be started", &reason)))?;
    outcome.telemetry = plan
        .telemetry
        .start()
        .map_err(|failure| Verdict::Failed(Error::new(Kind::Invalid, failure.what())))?;
    plan.notify.waiting(plan.resource.as_str());
    acquire::rest_for(&mut front, plan.pause)?;
    let waiting = acquire::Waiting::begin(plan);
    let leases = &*outcome.leases.insert(waiting.connect(plan, &mut front)?);
    let follower = acquire::follow(&mut front, leases)?;
    if let Some(follower) = &follower {
        plan.learn(leases, follower);
    }
    let waiting = waiting.under(plan);
    let plan = &*plan;
    let lease = waiting.acquire(plan, &mut front, leases)?;
    outcome.lease = Some(lease.belief().identity);
    granted(&lease, leases);
    Ok(keep::keep(plan, front, leases, lease, follower, &mut outcome.notes, &mut outcome.asked_to_end))
}

/// An error of the operating system in something that needs no coordinator.
fn system(what: &str, reason: &io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("{what}: {reason}"))
        .advise("free processes, memory or file descriptors")
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

//! Waiting for the lease, while signals are still ours alone: there is no command yet to pass them to.

use std::{pin::pin, time::Duration};

use leasehold::{Lease, LeaseId, LeaseRequest, Leases, Outcome, clock, settings::Follower};

use super::{Plan, Verdict, poll::poll_once, retune, system};
use crate::{
    patience::{Patience, silent},
    supervise::{Event, Front, stop_self},
};

/// How long a run may wait to hear which settings the coordinator keeps (ours: many times a healthy engine's answer).
const ASK_LIMIT: Duration = Duration::from_secs(1);

/// The wait of one run, from connecting to the grant.
pub(super) struct Waiting(Patience);

impl Waiting {
    pub(super) fn begin(plan: &Plan) -> Self {
        Self(Patience::begin(plan.terms.wait))
    }

    /// Connects, asking again for as long as the wait allows: an engine that restarts is waited for like a busy resource.
    pub(super) fn connect(&self, plan: &Plan, front: &mut Front) -> Result<Leases, Verdict> {
        loop {
            let attempt = plan.connect.clone().connect();
            let answer = match drive(front, attempt, instant(self.0.limit()))? {
                Some(answer) => answer,
                None => Err(silent()),
            };
            match answer {
                Ok(leases) => return Ok(leases),
                Err(error) => match self.0.pause(&error) {
                    Some(pause) => rest(front, instant(pause))?,
                    // Connecting asks for nothing: whatever became of it, no lease was touched.
                    None => return Err(Verdict::Failed(error.without_effect())),
                },
            }
        }
    }

    /// With the wait that counts now, from the beginning of this one.
    pub(super) fn under(self, plan: &Plan) -> Self {
        Self(self.0.instead(plan.terms.wait))
    }

    /// Acquires, or says how the run ends without a command.
    pub(super) fn acquire(&self, plan: &Plan, front: &mut Front, leases: &Leases) -> Result<Lease, Verdict> {
        if holds_already(plan, leases) {
            return Err(Verdict::Nested);
        }
        let attempt = request(plan, leases).waiting(self.0.left()).attempt();
        let Some(answer) = drive(front, attempt, u64::MAX)? else { return Err(Verdict::Failed(silent())) };
        match answer {
            Ok(Outcome::Held(lease)) => Ok(lease),
            Ok(Outcome::AlreadyDone(done)) => Err(Verdict::AlreadyDone(done)),
            Ok(Outcome::Refused(refusal)) => Err(Verdict::Refused(Box::new(refusal))),
            Err(error) => Err(Verdict::Failed(error)),
        }
    }
}

/// Follows the settings that the coordinator keeps. `None`: it has not said in time what they are, and the run goes on without.
pub(super) fn follow(front: &mut Front, leases: &Leases) -> Result<Option<Follower>, Verdict> {
    let asked = leases.follow_coordinator(retune::EVERY);
    Ok(drive(front, asked, instant(ASK_LIMIT))?.and_then(Result::ok))
}

/// When this much time from now is over, on BOOTTIME.
fn instant(time: Duration) -> u64 {
    clock::boot_us().saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Runs a future of the library beside the front's events; `None` when it was not ready by `until_us`. A signal that would
/// have ended a program without handlers ends the wait: what the future had begun is taken back when it is dropped.
fn drive<T>(front: &mut Front, future: impl Future<Output = T>, until_us: u64) -> Result<Option<T>, Verdict> {
    let waker = front.waker();
    let mut future = pin!(future);
    loop {
        if let Some(output) = poll_once(future.as_mut(), &waker) {
            return Ok(Some(output));
        }
        let left = Duration::from_micros(until_us.saturating_sub(clock::boot_us()));
        if left.is_zero() {
            return Ok(None);
        }
        listen(front, (until_us != u64::MAX).then_some(left))?;
    }
}

/// Lets time pass, listening to signals.
pub(super) fn rest_for(front: &mut Front, pause: Duration) -> Result<(), Verdict> {
    rest(front, instant(pause))
}

/// Lets time pass until `until_us` on BOOTTIME, listening to signals.
fn rest(front: &mut Front, until_us: u64) -> Result<(), Verdict> {
    loop {
        let left = Duration::from_micros(until_us.saturating_sub(clock::boot_us()));
        if left.is_zero() {
            return Ok(());
        }
        listen(front, Some(left))?;
    }
}

/// Waits for one event while there is no command to pass it to.
fn listen(front: &mut Front, limit: Option<Duration>) -> Result<(), Verdict> {
    match front.next_event(limit) {
        Ok(Event::Signal(signal)) => match signal.signo {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                Err(Verdict::Interrupted(signal.signo))
            }
            // A waiter that is stopped is passed by those behind it, and asks again when it goes on.
            libc::SIGTSTP => {
                let _ = stop_self(libc::SIGTSTP);
                Ok(())
            }
            _ => Ok(()),
        },
        Ok(_) => Ok(()),
        Err(reason) => Err(Verdict::Failed(system("waiting failed", &reason))),
    }
}

/// The request of a plan: the same for the first claim and for going on after a suspension.
pub(super) fn request(plan: &Plan, leases: &Leases) -> LeaseRequest {
    let terms = &plan.terms;
    let request = leases.lease(plan.resource.as_str()).ttl(terms.ttl.as_duration()).waiting(terms.wait);
    let request = terms.max_hold.map_or(request.clone(), |limit| request.max_hold(limit));
    plan.once_per.map_or(request.clone(), |period: Duration| request.once_per(period))
}

/// True when this very process runs inside a run of the same resource, which would wait for itself.
fn holds_already(plan: &Plan, leases: &Leases) -> bool {
    let variable = |name| std::env::var(name).ok();
    let same = variable("LEASEHOLD_RESOURCE").as_deref() == Some(plan.resource.as_str())
        && variable("LEASEHOLD_NAMESPACE").as_deref() == Some(plan.namespace.as_str());
    let outer = variable("LEASEHOLD_LEASE_ID").and_then(|id| id.parse::<LeaseId>().ok());
    let Some(outer) = outer.filter(|_| same) else { return false };
    let inspection = leasehold::blocking::block_on(leases.inspect(&plan.resource));
    inspection.is_ok_and(|inspection| inspection.record.is_some_and(|record| record.lease_id == outer))
}

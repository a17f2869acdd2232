//! Waiting for the lease, while signals are still ours alone: there is no command yet to pass them to.

use std::{pin::pin, time::Duration};

use leasehold::{Lease, LeaseId, LeaseRequest, Leases, Outcome};

use super::{Plan, Verdict, poll::poll_once, system};
use crate::supervise::{Event, Front, stop_self};

/// Acquires, or says how the run ends without a command.
pub(super) fn acquire(plan: &Plan, front: &mut Front, leases: &Leases) -> Result<Lease, Verdict> {
    if holds_already(plan, leases) {
        return Err(Verdict::Nested);
    }
    let waker = front.waker();
    let mut attempt = pin!(request(plan, leases).attempt());
    loop {
        if let Some(outcome) = poll_once(attempt.as_mut(), &waker) {
            return match outcome {
                Ok(Outcome::Held(lease)) => Ok(lease),
                Ok(Outcome::AlreadyDone(done)) => Err(Verdict::AlreadyDone(done)),
                Ok(Outcome::Refused(refusal)) => Err(Verdict::Refused(refusal)),
                Err(error) => Err(Verdict::Failed(error)),
            };
        }
        match front.next_event(None) {
            Ok(Event::Signal(signal)) => match signal.signo {
                // Dropping the attempt takes the claim back.
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                    return Err(Verdict::Interrupted(signal.signo));
                }
                // A waiter that is stopped is passed by those behind it, and asks again when it goes on.
                libc::SIGTSTP => drop(stop_self(libc::SIGTSTP)),
                _ => {}
            },
            Ok(_) => {}
            Err(reason) => return Err(Verdict::Failed(system("waiting failed", &reason))),
        }
    }
}

/// The request of a plan: the same for the first claim and for going on after a suspension.
pub(super) fn request(plan: &Plan, leases: &Leases) -> LeaseRequest {
    let request = leases.lease(plan.resource.as_str()).ttl(plan.ttl.as_duration()).waiting(plan.wait);
    let request = plan.max_hold.map_or(request.clone(), |limit| request.max_hold(limit));
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

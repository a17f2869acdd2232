//! `acquire`: a grant that outlives this process. Nobody renews it.
//!
//! The token is worth nothing until its reader has it: when it cannot be written, the lease is given back. A signal that
//! comes while the claim waits takes the claim back too.

use std::time::Duration;

use leasehold::{
    Lease, LeaseRequest, Leases, Outcome,
    blocking::block_on,
    clock,
    core::{holder::Belief, request::Release},
};

use crate::{
    args::Acquire,
    client::{self, Connected},
    duration,
    exit::Exit,
    failure::Failure,
    interrupt::Interrupts,
    message,
    settings::{self, Settings},
    view::{self, GrantLine, LeaseFields},
};

/// How long a claim that is taken back in the background may keep this process.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Acquire, settings: &Settings) -> Result<Exit, Failure> {
    let resource = settings::resource(&args.resource)?;
    let ttl = duration::ttl("--ttl", &args.ttl)?;
    let wait = duration::wait(args.wait.as_deref())?;
    let interrupts = Interrupts::watch().map_err(|error| {
        Failure::from(leasehold::Error::new(
            leasehold::Kind::Unavailable,
            format!("cannot watch for signals: {error}"),
        ))
    })?;
    let (leases, left) = match client::connect_within(settings, client::caller, wait, &interrupts)? {
        Connected::Yes(leases, left) => (leases, left),
        Connected::Interrupted(signal) => return Err(Failure::interrupted(signal)),
    };
    let request = leases.lease(resource.as_str()).ttl(ttl.as_duration()).waiting(left);
    let outcome = claim(request, &interrupts);
    let result = match outcome {
        Ok(Outcome::Held(lease)) => return deliver(lease, &leases, settings),
        Ok(Outcome::Refused(refusal)) => Err(message::refused(&refusal, &resource, wait, settings, &leases)),
        // Only a claim with a period is answered so.
        Ok(Outcome::AlreadyDone(_)) => Ok(Exit::Done),
        Err(failure) => Err(failure),
    };
    // Whatever the claim left behind is taken back before this process ends.
    block_on(leases.close(PATIENCE));
    result
}

fn claim(request: LeaseRequest, interrupts: &Interrupts) -> Result<Outcome, Failure> {
    match interrupts.run(request.attempt()) {
        Ok(answer) => Ok(answer?),
        Err(signal) => Err(Failure::interrupted(signal)),
    }
}

/// Hands the lease to whoever reads our output.
fn deliver(lease: Lease, leases: &Leases, settings: &Settings) -> Result<Exit, Failure> {
    let granted_us = lease.granted_us();
    let belief = match lease.hand_off() {
        Ok(belief) => belief,
        Err(loss) => {
            let mut failure =
                Failure::answer(Exit::NotHeld, "not_held", format!("the lease was lost at once: {loss}"));
            failure.reason = Some(loss.word());
            return Err(failure);
        }
    };
    let line = line(&belief, granted_us, leases);
    let Err(unwritten) = settings.output.result(&line, || vec![belief.identity.token.to_string()]) else {
        return Ok(Exit::Done);
    };
    give_back(&belief, leases);
    // Nobody has the token: unlike for a list, a reader that has gone is a failure.
    settings.output.fail(&unwritten);
    Ok(Exit::Unwritten)
}

fn line(belief: &Belief, granted_us: u64, leases: &Leases) -> GrantLine {
    let rule = leases.profile().clock;
    let gone = rule.elapsed(belief.sent, clock::read(rule));
    let identity = &belief.identity;
    GrantLine {
        resource: view::name(&identity.resource),
        namespace: leases.namespace().as_str().to_owned(),
        place: leases.profile().place.clone(),
        lease: LeaseFields {
            lease_id: Some(identity.lease_id.to_string()),
            holder_id: Some(leases.holder_id().to_string()),
            label: Some(leases.label().as_str().to_owned()),
            fencing_token: Some(identity.token.get()),
            ttl_ms: Some(belief.ttl.as_millis()),
            remaining_ms: Some(view::millis(belief.ttl.as_duration().saturating_sub(gone))),
            granted_at: crate::people::exact_instant(granted_us),
            revoked: None,
        },
    }
}

fn give_back(belief: &Belief, leases: &Leases) {
    let release = Release {
        resource: belief.identity.resource.clone(),
        lease_id: belief.identity.lease_id,
        token: Some(belief.identity.token),
        succeeded: false,
    };
    // If this fails too, the grant ends with its TTL.
    let _ = block_on(leases.release_once(release));
}

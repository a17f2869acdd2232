//! `acquire`: a grant that outlives this process. Nobody renews it.
//!
//! The token is worth nothing until its reader has it: when it cannot be written, the lease is given back. A signal that
//! comes while the claim waits takes the claim back too.

use std::time::Duration;

use leasehold::{Lease, LeaseRequest, Leases, Outcome, blocking::block_on, clock, core::holder::Belief};

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
        Ok(Outcome::Held(lease)) => match deliver(lease, &leases, settings) {
            Ok(Exit::Done) => return Ok(Exit::Done),
            undelivered => undelivered,
        },
        Ok(Outcome::Refused(refusal)) => Err(message::refused(&refusal, &resource, wait, settings, &leases)),
        // Only a claim with a period is answered so.
        Ok(Outcome::AlreadyDone(_)) => Ok(Exit::Done),
        Err(failure) => Err(failure),
    };
    // Whatever the claim or the grant left behind is taken back before this process ends.
    block_on(leases.close(PATIENCE));
    result
}

fn claim(request: LeaseRequest, interrupts: &Interrupts) -> Result<Outcome, Failure> {
    match interrupts.run(request.attempt()) {
        Ok(answer) => Ok(answer?),
        Err(signal) => Err(Failure::interrupted(signal)),
    }
}

/// Hands the lease to whoever reads our output. Until they have it, it is ours, to be given back.
fn deliver(lease: Lease, leases: &Leases, settings: &Settings) -> Result<Exit, Failure> {
    if let Err(loss) = lease.check() {
        let mut failure =
            Failure::answer(Exit::NotHeld, "not_held", format!("the lease was lost at once: {loss}"));
        failure.reason = Some(loss.word());
        return Err(failure);
    }
    let belief = lease.belief();
    let line = line(&belief, lease.granted_us(), leases);
    let Err(unwritten) = settings.output.result(&line, || vec![belief.identity.token.to_string()]) else {
        let _ = lease.forsake();
        return Ok(Exit::Done);
    };
    // If this fails, it is tried again in the background, for as long as the closing waits.
    let _ = block_on(lease.release());
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

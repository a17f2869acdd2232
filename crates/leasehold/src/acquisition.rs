//! One acquire call under way: the loop that claims, waits and takes.
//!
//! It runs in the caller's task, so that a grant costs no hop to the driver and back. Whatever await it is cut off at, the
//! claim is taken back in the background: [`Acquisition::owing`] knows whether anything may have been left at the
//! coordinator.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Error, Kind,
    holder::{Holder, Identity, Unusable},
    policy::Policy,
    record::Grant,
    request::{Claim, Release},
    waiter::{Next, Waiter},
    window::Reading,
};
use tokio::sync::Notify;

use crate::{
    clock,
    driver::{CALL_LIMIT, Chore},
    lease::Lease,
    leases::Client,
    observe,
    outcome::{Done, Outcome},
    random,
    shared::Shared,
};

/// One acquire call under way.
pub(crate) struct Acquisition {
    client: Arc<Client>,
    claim: Claim,
    policy: Policy,
    waiter: Waiter,
    bell: Arc<Notify>,
    /// True while the coordinator may have something of this claim: a grant, or a place in the queue.
    owing: bool,
    /// True once an attempt under this lease id ended without anybody knowing: no later answer but a clear one makes that
    /// certain.
    unknown: bool,
}

impl Acquisition {
    pub(crate) fn new(client: Arc<Client>, claim: Claim, policy: Policy, waiter: Waiter) -> Self {
        let acquisition = Self {
            client,
            claim,
            policy,
            waiter,
            bell: Arc::new(Notify::new()),
            owing: false,
            unknown: false,
        };
        acquisition.expect_wakes();
        acquisition
    }

    pub(crate) async fn run(mut self) -> Result<Outcome, Error> {
        let rule = self.client.coordinator().profile().clock;
        loop {
            let sent = clock::read(rule);
            let answer = self.ask().await;
            let (now, random) = (clock::read(rule), self.client.draw());
            let mut next = match answer {
                Ok(answer) => {
                    // The engine has seen this lease id now, and says what it has.
                    self.unknown = false;
                    self.waiter.answered(answer, now, random)
                }
                Err(error) => {
                    self.unknown |= error.kind() == Kind::Unknown;
                    self.waiter.failed(error, now, random)
                }
            };
            if let Next::Take(grant) = &next {
                match self.take(grant, sent, now) {
                    Ok(lease) => return Ok(Outcome::Held(lease)),
                    Err(unusable) => next = self.decline(unusable, random).await?,
                }
            }
            match next {
                Next::Sleep(limit) => self.sleep(limit).await,
                Next::StartOver(_) => self.start_over()?,
                Next::AlreadyDone { started_us, due_in } => {
                    self.owing = false;
                    return Ok(Outcome::AlreadyDone(Done { started_us, due_in }));
                }
                Next::Refuse(refusal) => {
                    self.leave_queue().await;
                    return Ok(Outcome::Refused(refusal));
                }
                Next::Fail(error) => return Err(self.give_up(error).await),
                Next::Take(_) => {}
            }
        }
    }

    async fn ask(&mut self) -> Result<leasehold_core::record::Acquired, Error> {
        self.owing = true;
        let window = self.policy.margin().window_of(self.policy.ttl());
        let limit = self.policy.call_timeout(window).max(CALL_LIMIT / 5).min(CALL_LIMIT);
        let call = self.client.coordinator().acquire(self.claim.clone());
        self.client.driver.bounded(limit, "claim", call).await
    }

    /// Turns a grant into a lease.
    fn take(&mut self, grant: &Grant, sent: Reading, now: Reading) -> Result<Lease, Unusable> {
        let client = &self.client;
        let identity = Identity {
            resource: self.claim.resource.clone(),
            lease_id: self.claim.lease_id,
            token: grant.token,
        };
        let rule = client.coordinator().profile().clock;
        let known = client.floors.get(&self.claim.resource);
        let holder = Holder::granted(identity, grant, self.policy, rule, known, sent, now, client.draw())?;
        client.floors.raise(&self.claim.resource, grant.token);
        self.owing = false;
        Ok(keep(client.clone(), holder, grant))
    }

    /// Gives an unusable grant back.
    async fn decline(&mut self, unusable: Unusable, random: u64) -> Result<Next, Error> {
        let given_back = self.take_back().await;
        match unusable {
            Unusable::TooLate => {
                if given_back.is_err() {
                    // Slow engines are slow to take back, too: the next claim must not meet this one's grant.
                    self.leave_to_the_driver();
                }
                self.start_over()?;
                let now = clock::read(self.client.coordinator().profile().clock);
                Ok(self.waiter.too_late(now, random))
            }
            Unusable::Regression { token, known } => {
                self.owing = given_back.is_err();
                let what = format!(
                    "the coordinator granted fencing token {token}, which is not above the known {known}"
                );
                Err(Error::new(Kind::Corrupt, what)
                    .on(&self.claim.resource)
                    .at(&self.client.coordinator().profile().place)
                    .advise(
                        "it has lost memory of earlier grants; the grant was given back. Find out whether its store was \
                         restored or replaced before anybody writes",
                    ))
            }
        }
    }

    /// A new lease id: the old one has been used up.
    fn start_over(&mut self) -> Result<(), Error> {
        self.forget_wakes();
        self.claim.lease_id = random::lease_id()?;
        self.owing = false;
        self.unknown = false;
        self.expect_wakes();
        Ok(())
    }

    async fn sleep(&self, limit: Duration) {
        tokio::select! {
            biased;
            () = self.bell.notified() => {}
            () = self.client.driver.sleep(limit) => {}
        }
    }

    /// A definite "no" leaves nothing but the place in the queue.
    async fn leave_queue(&mut self) {
        if self.claim.queue {
            // When this fails, dropping the acquisition leaves it to the background.
            let _ = self.take_back().await;
        } else {
            self.owing = false;
        }
    }

    /// Ends the call with an error, as certain as it can be made.
    async fn give_up(&mut self, error: Error) -> Error {
        let error = error.on(&self.claim.resource);
        if !self.unknown {
            // Certainly no grant; a place in the queue, at most, is given up in the background.
            self.owing = self.waiter.queues();
            return error;
        }
        if self.take_back().await.is_ok() {
            return error
                .without_effect()
                .advise("the claim was taken back; ask again when the coordinator answers");
        }
        error.unknown().advise(format!(
            "if it was granted, the resource stays busy for up to {}; taking the claim back is still tried in the background",
            self.claim.ttl
        ))
    }

    /// Takes back whatever this lease id has at the coordinator, and waits for the answer.
    async fn take_back(&mut self) -> Result<(), Error> {
        let call = self.client.coordinator().release(self.release());
        let answer = self.client.driver.bounded(CALL_LIMIT, "release", call).await;
        answer.map(|_| self.owing = false)
    }

    fn release(&self) -> Release {
        let Claim { resource, lease_id, .. } = &self.claim;
        Release { resource: resource.clone(), lease_id: *lease_id, token: None, succeeded: false }
    }

    /// Takes the claim back in the background.
    fn leave_to_the_driver(&self) {
        let give_up = self.claim.ttl.as_duration() + self.claim.lock_delay;
        self.client.driver.chore(Chore { release: self.release(), give_up });
    }

    fn expect_wakes(&self) {
        if self.claim.queue {
            self.client.driver.core.registry.expect_wake(self.claim.lease_id, self.bell.clone());
        }
    }

    fn forget_wakes(&self) {
        if self.claim.queue {
            self.client.driver.core.registry.forget_wake(self.claim.lease_id);
        }
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        self.forget_wakes();
        if self.owing {
            self.leave_to_the_driver();
        }
    }
}

/// Gives a lease into the driver's care.
pub(crate) fn keep(client: Arc<Client>, holder: Holder, grant: &Grant) -> Lease {
    let core = &client.driver.core;
    let ttl = holder.policy().ttl();
    let rule = client.coordinator().profile().clock;
    let shared = Arc::new(Shared::new(holder, core.holder_id, rule, core.registry.next_sequence()));
    if core.registry.register(&shared) {
        core.bell.notify_one();
    }
    observe::granted(shared.identity(), core.holder_id, ttl, grant.after_lapse);
    Lease::new(shared, client, grant)
}

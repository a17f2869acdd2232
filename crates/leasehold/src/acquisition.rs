//! One acquire call under way: the loop that claims, waits and takes.
//!
//! It runs in the caller's task, so that a grant costs no hop to the driver and back. Whatever await it is cut off at, the
//! claim is taken back in the background: [`Acquisition::owing`] knows whether anything may have been left at the
//! coordinator.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Error, Kind, Ttl,
    holder::{Holder, Identity, Unusable},
    policy::Policy,
    record::{Acquired, Grant, Released},
    request::{Claim, Release},
    waiter::{Next, Waiter},
    window::{ClockRule, Reading},
};
use tokio::sync::Notify;

use crate::{
    clock,
    driver::{CALL_LIMIT, Chore, since},
    lease::Lease,
    leases::Client,
    meter::Meter,
    observe,
    outcome::{Done, Outcome},
    random,
    request::Follow,
    shared::Shared,
};

/// One acquire call under way.
pub(crate) struct Acquisition {
    client: Arc<Client>,
    claim: Claim,
    policy: Policy,
    follow: Follow,
    waiter: Waiter,
    bell: Arc<Notify>,
    /// True while the coordinator may have something of this claim: a grant, or a place in the queue.
    owing: bool,
    /// Attempts under this lease id that ended without an answer. Each may still be on its way, and be granted when it
    /// arrives: no answer to another one makes that certain.
    unanswered: u32,
    /// When the lease was asked for.
    asked: Reading,
    /// When the last sleep was ended by a wake.
    woken: Option<Reading>,
    /// True while this claim counts as one that waits.
    waits: bool,
}

impl Acquisition {
    pub(crate) fn new(
        client: Arc<Client>,
        claim: Claim,
        policy: Policy,
        follow: Follow,
        waiter: Waiter,
    ) -> Self {
        let acquisition = Self {
            client,
            claim,
            policy,
            follow,
            waiter,
            bell: Arc::new(Notify::new()),
            owing: false,
            unanswered: 0,
            asked: clock::read(ClockRule::Boot),
            woken: None,
            waits: false,
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
                    if matches!(answer, Acquired::Quarantined { .. }) {
                        self.meter().quarantined();
                    }
                    self.waiter.answered(answer, now, random)
                }
                Err(error) => {
                    self.unanswered += u32::from(error.kind() == Kind::Unknown);
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
                    observe::already_done(&self.claim);
                    return Ok(Outcome::AlreadyDone(Done { started_us, due_in }));
                }
                Next::Refuse(refusal) => {
                    observe::refused(&self.claim, &refusal);
                    self.leave_queue().await;
                    return Ok(Outcome::Refused(refusal));
                }
                Next::Fail(error) => return Err(self.give_up(error).await),
                Next::Take(_) => {}
            }
        }
    }

    async fn ask(&mut self) -> Result<Acquired, Error> {
        self.owing = true;
        let window = self.policy.margin().window_of(self.policy.ttl());
        let limit = self.policy.call_timeout(window).max(CALL_LIMIT / 5).min(CALL_LIMIT);
        let call = self.client.coordinator().acquire(self.claim.clone());
        self.client.driver.bounded(limit, "claim", call).await
    }

    /// Turns a grant into a lease.
    fn take(&mut self, grant: &Grant, sent: Reading, now: Reading) -> Result<Lease, Unusable> {
        let client = &self.client;
        self.meter().granted(grant.after_lapse);
        let identity = Identity {
            resource: self.claim.resource.clone(),
            lease_id: self.claim.lease_id,
            token: grant.token,
        };
        let rule = client.coordinator().profile().clock;
        let known = client.floors.get(&self.claim.resource);
        let policy = self.follow.policy(self.policy, client, &self.claim.resource);
        let policy = client.share(policy);
        let holder = Holder::granted(identity, grant, policy, rule, known, sent, now, client.draw())?;
        client.floors.raise(&self.claim.resource, grant.token);
        self.owing = false;
        self.meter().acquired(since(self.asked), self.woken.map(since));
        Ok(keep(client.clone(), holder, grant, self.follow.ttl.then_some(self.claim.ttl)))
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
                self.meter().regressed();
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
        self.unanswered = 0;
        self.expect_wakes();
        Ok(())
    }

    async fn sleep(&mut self, limit: Duration) {
        if !self.waits {
            self.waits = true;
            self.meter().waiting(true);
        }
        self.woken = None;
        tokio::select! {
            biased;
            () = self.bell.notified() => self.woken = Some(clock::read(ClockRule::Boot)),
            () = self.client.driver.sleep(limit) => {}
        }
    }

    fn meter(&self) -> &Meter {
        &self.client.driver.core.meter
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
        observe::not_asked(&self.claim, &error);
        if self.unanswered == 0 {
            // Certainly no grant; a place in the queue, at most, is given up in the background.
            self.owing = self.waiter.queues();
            return error;
        }
        let (done, is_certain) = match self.take_back().await {
            Ok(answer) => ("the claim was taken back", self.is_settled_by(&answer)),
            Err(_) => ("taking the claim back is still tried in the background", false),
        };
        if is_certain {
            return error.without_effect().advise(format!("{done}; ask again when the coordinator answers"));
        }
        error.unknown().advise(format!(
            "{done}; should it be granted all the same, the resource stays busy for up to {}",
            self.claim.ttl
        ))
    }

    /// True when the answer to taking the claim back makes it certain that nothing of it stands, now or later. Within one
    /// machine requests are applied in order. On a network one that was given up may arrive after the one that takes it
    /// back: only the end of its grant shows that the one unanswered attempt has arrived.
    fn is_settled_by(&self, answer: &Released) -> bool {
        let in_order = self.client.coordinator().profile().clock == ClockRule::Boot;
        in_order || self.unanswered == 1 && matches!(answer, Released::Ended)
    }

    /// Takes back whatever this lease id has at the coordinator, and waits for the answer.
    async fn take_back(&mut self) -> Result<Released, Error> {
        let call = self.client.coordinator().release(self.release());
        let answer = self.client.driver.bounded(CALL_LIMIT, "release", call).await;
        answer.inspect(|_| self.owing = false)
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
        if self.waits {
            self.meter().waiting(false);
        }
        if self.owing {
            self.leave_to_the_driver();
        }
    }
}

/// Gives a lease into the driver's care.
///
/// `follows` is the TTL that was asked for when it is that of the settings.
pub(crate) fn keep(client: Arc<Client>, holder: Holder, grant: &Grant, follows: Option<Ttl>) -> Lease {
    let core = &client.driver.core;
    let (ttl, jitter_percent) = (holder.policy().ttl(), holder.policy().jitter_percent());
    let shared = Arc::new(Shared::new(holder, &client, follows.is_some()));
    core.meter.held();
    if core.registry.register(&shared) {
        core.bell.notify_one();
    }
    observe::granted(shared.identity(), core.holder_id, ttl, grant);
    client.tune_granted(&shared, follows, jitter_percent);
    Lease::new(shared, client, grant)
}

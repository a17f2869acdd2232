//! Asking for a lease: the settings, and the loop that claims, waits and takes.
//!
//! The loop runs in the caller's task, so that a grant costs no hop to the driver and back. Whatever await it is cut off
//! at, the claim is taken back in the background: a guard inside it knows what may have been left at the coordinator.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Error, Invalid, Kind, Resource, Ttl,
    backoff::Backoff,
    holder::{Belief, Holder, Identity, Loss, Unusable},
    policy::{Policy, PolicyBuilder},
    record::Grant,
    request::{Claim, Release},
    waiter::{Next, Wait, Waiter},
    window::{Margin, Reading},
};
use tokio::sync::Notify;

use crate::{
    clock,
    driver::{CALL_LIMIT, Chore},
    lease::Lease,
    leases::Client,
    observe,
    outcome::{Done, NotAcquired, Outcome},
    random,
    shared::Shared,
};

/// A lease to be acquired. Made by [`crate::Leases::lease`]; every setting has a default.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before acquire or attempt"]
pub struct LeaseRequest {
    client: Arc<Client>,
    resource: Result<Resource, Invalid>,
    ttl: Result<Ttl, Invalid>,
    wait: Wait,
    backoff: Backoff,
    once_per: Option<Duration>,
    settings: Settings,
}

/// What the policy is built from once the TTL is known.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    renew_every: Option<Duration>,
    margin: Option<Margin>,
    lock_delay: Option<Duration>,
    max_hold: Option<Duration>,
    progress_timeout: Option<Duration>,
}

impl Settings {
    fn policy(self, ttl: Ttl) -> Result<Policy, Invalid> {
        let set = |builder: PolicyBuilder| {
            let builder = self.renew_every.map_or(builder, |every| builder.renew_every(every));
            let builder = self.margin.map_or(builder, |margin| builder.margin(margin));
            self.lock_delay.map_or(builder, |delay| builder.lock_delay(delay))
        };
        set(Policy::builder(ttl)).max_hold(self.max_hold).progress_timeout(self.progress_timeout).build()
    }
}

impl LeaseRequest {
    pub(crate) fn new(client: Arc<Client>, resource: &str) -> Self {
        Self {
            client,
            resource: Resource::new(resource),
            ttl: Ok(Ttl::DEFAULT),
            wait: Wait::No,
            backoff: Backoff::default(),
            once_per: None,
            settings: Settings::default(),
        }
    }

    /// How long the grant lasts without renewal: 50 ms … the namespace's bound; default 30 s. After a crash of the holder,
    /// others wait this long.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Ttl::new(ttl);
        self
    }

    /// Waits up to this long, in a queue; default: try once.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Wait::For(limit);
        self
    }

    /// Waits until granted or cancelled.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Waits as told.
    pub fn waiting(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// When to ask again where the engine sends no wakes; default full jitter from 50 ms to 2 s.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Gives [`Outcome::AlreadyDone`] when the last successful run ([`Lease::complete`]) *started* less than this ago;
    /// more than zero, at most 7 days.
    pub fn once_per(mut self, period: Duration) -> Self {
        self.once_per = Some(period);
        self
    }

    /// The mean time between renewals: at most a third of the TTL, which is the default. Jittered by ±15 %.
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.settings.renew_every = Some(interval);
        self
    }

    /// What is subtracted from the TTL for clock drift and delay; default 1 % of it and 2 ms.
    pub fn margin(mut self, margin: Margin) -> Self {
        self.settings.margin = Some(margin);
        self
    }

    /// How much longer the coordinator keeps the resource after the TTL when this lease ends uncleanly; at most an hour,
    /// default zero. For resources that cannot check a token.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.settings.lock_delay = Some(delay);
        self
    }

    /// The lease is lost when it has been held for this long, renewals and all; default no limit.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.settings.max_hold = Some(limit);
        self
    }

    /// Renewals go on only while [`crate::LeaseHandle::progress`] is called at least this often; default no watchdog.
    pub fn progress_timeout(mut self, timeout: Duration) -> Self {
        self.settings.progress_timeout = Some(timeout);
        self
    }

    /// Acquires, or says why not.
    ///
    /// **Cancel safety.** Dropping the future leaves nothing that outlives the TTL: a grant that arrived is released and a
    /// place in the queue given up, in the background.
    ///
    /// # Errors
    /// [`NotAcquired`]: held by another within the wait, already done, or not to be asked.
    pub async fn acquire(self) -> Result<Lease, NotAcquired> {
        let resource = self.resource.clone();
        match self.attempt().await? {
            Outcome::Held(lease) => Ok(lease),
            Outcome::AlreadyDone(done) => Err(NotAcquired::AlreadyDone(done)),
            Outcome::Refused(refusal) => Err(NotAcquired::Refused {
                resource: resource.map_err(Error::from)?,
                refusal: Box::new(refusal),
            }),
        }
    }

    /// Like [`LeaseRequest::acquire`], with "no" as a value and not as an error.
    ///
    /// **Cancel safety.** As [`LeaseRequest::acquire`].
    ///
    /// # Errors
    /// [`Kind::Invalid`] for settings that cannot work; [`Kind::Unavailable`] when the coordinator could not be asked
    /// before the wait ended; [`Kind::Unknown`] when nobody knows what became of the claim: the resource may then stay busy
    /// for up to the TTL. [`Kind::Corrupt`] when the coordinator granted a token that is not above every known one.
    pub async fn attempt(self) -> Result<Outcome, Error> {
        let Self { client, resource, ttl, wait, backoff, once_per, settings } = self;
        let (resource, ttl) = (resource?, ttl?);
        let policy = settings.policy(ttl).map_err(|invalid| Error::from(invalid).on(&resource))?;
        let profile = client.coordinator().profile();
        let claim = Claim {
            lease_id: random::lease_id()?,
            holder_id: client.holder_id(),
            label: client.label.clone(),
            ttl,
            lock_delay: policy.lock_delay(),
            floor: client.floors.get(&resource),
            queue: wait != Wait::No,
            once_per,
            resource,
        };
        claim.check().map_err(|invalid| Error::from(invalid).on(&claim.resource))?;
        let now = clock::read(profile.clock);
        let waiter = Waiter::new(wait, backoff, profile.capabilities.wakes, profile.clock, now);
        Acquisition::new(client, claim, policy, waiter).run().await
    }

    /// Goes on with a lease that another process of this machine has handed off ([`Lease::hand_off`]). Renews at once.
    /// TTL, wait and period of this request do not count; its other settings do.
    ///
    /// # Errors
    /// [`Loss::WindowClosed`]: too late.
    pub fn resume(self, belief: Belief) -> Result<Lease, Loss> {
        let policy = self.settings.policy(belief.ttl).map_err(|_| Loss::WindowClosed)?;
        let grant = Grant {
            token: belief.identity.token,
            ttl: belief.ttl,
            granted_us: 0,
            adopted: true,
            after_lapse: false,
        };
        let rule = self.client.coordinator().profile().clock;
        let holder =
            Holder::resumed(belief, policy, rule, clock::read(rule)).map_err(|_| Loss::WindowClosed)?;
        Ok(keep(self.client, holder, &grant))
    }
}

/// One acquire call under way.
struct Acquisition {
    client: Arc<Client>,
    claim: Claim,
    policy: Policy,
    waiter: Waiter,
    bell: Arc<Notify>,
    /// True while the coordinator may have something of this claim: a grant, or a place in the queue.
    owing: bool,
}

impl Acquisition {
    fn new(client: Arc<Client>, claim: Claim, policy: Policy, waiter: Waiter) -> Self {
        let acquisition = Self { client, claim, policy, waiter, bell: Arc::new(Notify::new()), owing: false };
        acquisition.expect_wakes();
        acquisition
    }

    async fn run(mut self) -> Result<Outcome, Error> {
        let rule = self.client.coordinator().profile().clock;
        loop {
            let sent = clock::read(rule);
            let answer = self.ask().await;
            let (now, random) = (clock::read(rule), self.client.draw());
            let mut next = match answer {
                Ok(answer) => self.waiter.answered(answer, now, random),
                Err(error) => self.waiter.failed(error, now, random),
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
        match error.kind() {
            Kind::Unknown => match self.take_back().await {
                Ok(()) => error.without_effect().advise("the claim was taken back; ask again when the coordinator answers"),
                Err(_) => error.advise(format!(
                    "if it was granted, the resource stays busy for up to {}; taking the claim back is still tried in the background",
                    self.claim.ttl
                )),
            },
            _ if self.waiter.queues() => error,
            _ => {
                self.owing = false;
                error
            }
        }
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
            let give_up = self.claim.ttl.as_duration() + self.claim.lock_delay;
            self.client.driver.chore(Chore { release: self.release(), give_up });
        }
    }
}

/// Gives a lease into the driver's care.
fn keep(client: Arc<Client>, holder: Holder, grant: &Grant) -> Lease {
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

//! Asking for a lease: every setting, checked before anything is asked.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Error, Invalid, Resource, Ttl,
    backoff::Backoff,
    holder::{Belief, Holder, Loss},
    policy::{Policy, PolicyBuilder},
    record::Grant,
    request::Claim,
    waiter::{Wait, Waiter},
    window::Margin,
};

use crate::{
    acquisition::{Acquisition, keep},
    clock,
    lease::Lease,
    leases::Client,
    outcome::{NotAcquired, Outcome},
    random,
    settings::{Limit, Tuning},
};

/// A lease to be acquired. Made by [`crate::Leases::lease`]; every setting has a default.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before acquire or attempt"]
pub struct LeaseRequest {
    client: Arc<Client>,
    resource: Result<Resource, Invalid>,
    /// `None`: that of the client's settings; so is the wait.
    ttl: Option<Result<Ttl, Invalid>>,
    wait: Option<Wait>,
    backoff: Backoff,
    once_per: Option<Duration>,
    settings: Settings,
}

/// What the policy is built from once the TTL is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    renew_every: Option<Duration>,
    margin: Option<Margin>,
    lock_delay: Option<Duration>,
    max_hold: Option<Duration>,
    progress_timeout: Option<Duration>,
    jitter_percent: Option<u32>,
}

impl Settings {
    fn policy(self, ttl: Ttl) -> Result<Policy, Invalid> {
        let set = |builder: PolicyBuilder| {
            let builder = self.renew_every.map_or(builder, |every| builder.renew_every(every));
            let builder = self.margin.map_or(builder, |margin| builder.margin(margin));
            let builder = self.jitter_percent.map_or(builder, |percent| builder.jitter_percent(percent));
            self.lock_delay.map_or(builder, |delay| builder.lock_delay(delay))
        };
        set(Policy::builder(ttl)).max_hold(self.max_hold).progress_timeout(self.progress_timeout).build()
    }
}

/// What of a lease comes from the client's settings, where the request says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follow {
    pub(crate) ttl: bool,
    max_hold: bool,
    settings: Settings,
}

impl Follow {
    /// The policy of a lease that is granted now: its hold limit is the one in force now.
    pub(crate) fn policy(&self, asked: Policy, client: &Client, resource: &Resource) -> Policy {
        if !self.max_hold {
            return asked;
        }
        let settings = self.settings.tuned(client.rules.load().of(resource));
        // Settings that do not go with the request: it goes on as it was asked for.
        settings.policy(asked.ttl()).unwrap_or(asked)
    }
}

impl Settings {
    /// With the jitter of the client's settings, and with their hold limit where there is none of its own.
    fn tuned(self, tuning: Tuning) -> Self {
        let limit = match tuning.max_hold {
            Some(Limit::After(limit)) => Some(limit),
            Some(Limit::None) | None => None,
        };
        Self { max_hold: self.max_hold.or(limit), jitter_percent: Some(tuning.jitter_percent()), ..self }
    }
}

impl LeaseRequest {
    pub(crate) fn new(client: Arc<Client>, resource: &str) -> Self {
        Self {
            client,
            resource: Resource::new(resource),
            ttl: None,
            wait: None,
            backoff: Backoff::default(),
            once_per: None,
            settings: Settings::default(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// How long the grant lasts without renewal: 50 ms … the namespace's bound; default that of the
    /// [settings](crate::Leases::retune), else 30 s. After a crash of the holder, others wait this long. What is set here is the
    /// last word: leave it out where the settings shall count.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(Ttl::new(ttl));
        self
    }

    /// Waits up to this long, in a queue; default: as the [settings](crate::Leases::retune) say, else try once.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(Wait::For(limit));
        self
    }

    /// Waits until granted or cancelled.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Some(Wait::Forever);
        self
    }

    /// Waits as told.
    pub fn waiting(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
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

    /// The mean time between renewals: at most a third of the TTL, which is the default. Jittered by ±15 %, unless the
    /// [settings](crate::Leases::retune) have another jitter.
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

    /// The lease is lost when it has been held for this long, renewals and all; default that of the
    /// [settings](crate::Leases::retune) when it is granted, else no limit.
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
    /// [`leasehold_core::Kind::Invalid`] for settings that cannot work; [`leasehold_core::Kind::Unavailable`] when the coordinator could not be asked
    /// before the wait ended; [`leasehold_core::Kind::Unknown`] when nobody knows what became of the claim: the resource may then stay busy
    /// for up to the TTL. [`leasehold_core::Kind::Corrupt`] when the coordinator granted a token that is not above every known one.
    pub async fn attempt(self) -> Result<Outcome, Error> {
        let Self { client, resource, ttl, wait, backoff, once_per, settings } = self;
        let resource = resource?;
        let follow = Follow { ttl: ttl.is_none(), max_hold: settings.max_hold.is_none(), settings };
        let tuning = client.rules.load().of(&resource);
        let ttl = ttl.unwrap_or_else(|| Ok(tuning.ttl.unwrap_or_default()))?;
        let wait = wait.or(tuning.wait).unwrap_or(Wait::No);
        let policy =
            settings.tuned(tuning).policy(ttl).map_err(|invalid| Error::from(invalid).on(&resource))?;
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
        Acquisition::new(client, claim, policy, follow, waiter).run().await
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
        // Its TTL is its own: whoever handed it off has said so.
        Ok(keep(self.client, holder, &grant, None))
    }
}

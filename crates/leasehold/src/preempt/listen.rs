//! The holder's side: hears of a wish, and answers it.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Label, Resource, Token,
    backoff::Backoff,
    record::Inspection,
    request::Revocation,
    window::{ClockRule, Reading},
};

use super::{ACCEPTED, REFUSED, Text, name_of};
use crate::{
    Lease, LeaseHandle, clock,
    driver::{CALL_LIMIT, since},
    leases::Client,
    observe::{self, Heard},
};

/// Between two looks, at most and at least (ours: an operator waits for seconds; four looks a second are no load).
const EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// How often an answer is tried to be left.
const ATTEMPTS: u32 = 3;

/// Hears of wishes for one lease, for as long as it is held. Made by [`Lease::preemptions`]; asks nothing unless it is awaited.
#[derive(Debug)]
pub struct Preemptions {
    client: Arc<Client>,
    lease: LeaseHandle,
    /// Where wishes for this grant are left.
    place: Option<Resource>,
    every: Duration,
    /// The last wish that was told of.
    heard: Option<Token>,
}

/// Somebody asks for this lease. Dropping it answers nothing: whoever asks then waits in vain, and may revoke.
#[derive(Debug)]
pub struct Preemption {
    client: Arc<Client>,
    lease: LeaseHandle,
    place: Resource,
    token: Token,
    by: Label,
    reason: Label,
    heard: Reading,
    left: Duration,
}

impl Lease {
    /// Hears of those who ask for this lease ([`crate::Leases::preempt`]). While the answer is awaited the coordinator is asked
    /// once in a sixth of the TTL, every two seconds at most, and never otherwise.
    pub fn preemptions(&self) -> Preemptions {
        let every = (self.ttl() / 6).clamp(EVERY.0, EVERY.1);
        let place = name_of(self.lease_id()).ok();
        Preemptions { client: Arc::clone(self.client()), lease: self.handle(), place, every, heard: None }
    }
}

impl Preemptions {
    /// The next wish; `None` once the lease is not held any more. What the coordinator cannot be asked is asked again.
    ///
    /// **Cancel safety.** Dropping the future loses nothing: the next call looks again.
    pub async fn next(&mut self) -> Option<Preemption> {
        // Every lease id makes a name.
        let place = self.place.clone()?;
        loop {
            tokio::select! {
                biased;
                _ = self.lease.lost() => return None,
                () = self.client.driver.sleep(self.every) => {}
            }
            let call = self.client.coordinator().inspect(place.clone());
            let found = self.client.driver.bounded(CALL_LIMIT, "look at a resource", call).await;
            let Some(preemption) = found.ok().and_then(|found| self.wish(&place, found)) else { continue };
            // Lost meanwhile: there is nothing to hand over.
            if self.lease.check().is_err() {
                return None;
            }
            self.heard = Some(preemption.token);
            preemption.tell(Heard::Asked);
            return Some(preemption);
        }
    }

    /// A wish that is new and that nobody has answered.
    fn wish(&self, place: &Resource, found: Inspection) -> Option<Preemption> {
        let record = found.record.filter(|record| record.revoked.is_none())?;
        if self.heard.is_some_and(|heard| record.token <= heard) {
            return None;
        }
        let text = Text::read(&record.label)?;
        // How old it is, by the engine's clock.
        let age = record.ttl.as_duration().saturating_sub(record.remaining);
        Some(Preemption {
            client: Arc::clone(&self.client),
            lease: self.lease.clone(),
            place: place.clone(),
            token: record.token,
            by: text.by,
            reason: text.reason,
            heard: clock::read(ClockRule::Boot),
            left: text.within.saturating_sub(age),
        })
    }
}

impl Preemption {
    /// Who asks.
    pub fn by(&self) -> &Label {
        &self.by
    }

    /// Why.
    pub fn reason(&self) -> &Label {
        &self.reason
    }

    /// What is left of the time to hand over; after that the grant may be revoked.
    pub fn remaining(&self) -> Duration {
        self.left.saturating_sub(since(self.heard))
    }

    /// Agrees: the lease drains from now on, and when it is released the history says by whose wish. Whoever asked is told in
    /// the background.
    pub fn accept(self) {
        self.lease.yield_to(&self.by, &self.reason);
        self.lease.drain();
        self.tell(Heard::Accepted);
        self.answer(ACCEPTED, false);
    }

    /// Goes on, and tells whoever asked why, in the background.
    pub fn refuse(self, why: &str) {
        self.tell(Heard::Refused);
        // Ended at once, so that somebody may ask again.
        self.answer(&format!("{REFUSED}{why}"), true);
    }

    fn tell(&self, heard: Heard) {
        self.client.driver.core.meter.preempted(heard.word());
        observe::preemption(&self.lease, &self.by, &self.reason, self.remaining(), heard);
    }

    /// Leaves the answer where the wish is: it is revoked, by the holder.
    fn answer(self, reason: &str, now: bool) {
        let Self { client, place, token, .. } = self;
        let by = client.label.clone();
        let revocation = Revocation { resource: place, token, by, reason: Label::from_lossy(reason), now };
        client.driver.spawn({
            let core = Arc::clone(&client.driver.core);
            async move {
                for attempt in 0..ATTEMPTS {
                    let call = core.coordinator.revoke(revocation.clone());
                    match tokio::time::timeout(CALL_LIMIT, call).await {
                        Ok(Ok(_)) => return,
                        Ok(Err(error)) if !error.is_transient() => return,
                        _ => tokio::time::sleep(Backoff::default().delay(attempt, core.jitter.draw())).await,
                    }
                }
            }
        });
    }
}

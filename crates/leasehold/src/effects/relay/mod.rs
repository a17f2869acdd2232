//! The relay: carries events from the outbox to where they are waited for.
//!
//! One relay works at a time: it holds a lease, and what it notes is fenced. Events leave in the order in which their
//! transactions became final, and those of one resource never pass each other. Each is delivered **at least once**: a relay that
//! ends between a delivery and its note delivers again. The number of an event stays the same, so that a consumer knows it
//! ([`PostgresEffects::receive`](super::postgres::PostgresEffects::receive), [`receive`](super::sqlite::receive)).
//!
//! An event that the far end refuses is tried again, ever later, and set aside in the end; what comes behind it on the same
//! resource waits until then. A far end that takes nothing at all is waited for: no event is to blame for that.

mod envelope;
mod rest;
mod sink;
#[cfg(feature = "redis")]
mod stream;
#[cfg(feature = "webhook")]
mod webhook;

use std::{collections::HashSet, time::Duration};

use leasehold_core::{Error, Invalid, Kind, Namespace, Resource};

pub use envelope::envelope;
pub(super) use rest::Bell;
pub use sink::{Lines, NotPublished, Sink};
#[cfg(feature = "redis")]
pub use stream::RedisStream;
#[cfg(feature = "webhook")]
pub use webhook::Webhook;

use self::rest::Rest;
use super::{
    failpoint::{Hook, Point},
    ledger::{Delivery, Ledger},
    record::Event,
};
use crate::{Lease, Leases, NotAcquired, fence::NotAdmitted, metric};

/// How a relay paces itself. Every figure has a default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How often to look when there was nothing to do, or what waits cannot go yet; default 500 ms.
    pub poll: Duration,
    /// How often to look although nothing waits and the database gives word of new events, as PostgreSQL does; default 5 s.
    pub recheck: Duration,
    /// Most events between two notes: so many are delivered twice at most when a relay dies; default 100.
    pub batch: u32,
    /// An event that was refused is tried again after this long, then twice as long, and so on; default 1 s.
    pub retry: Duration,
    /// But not later than after this; default 5 min.
    pub retry_cap: Duration,
    /// An event that was refused so often is set aside; default 8.
    pub attempts: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(500),
            recheck: Duration::from_secs(5),
            batch: 100,
            retry: Duration::from_secs(1),
            retry_cap: Duration::from_secs(300),
            attempts: 8,
        }
    }
}

impl Pace {
    fn again_in(&self, attempts: u32) -> Duration {
        self.retry.saturating_mul(1 << attempts.min(20)).min(self.retry_cap)
    }
}

/// What one turn came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// Events that were published.
    pub published: u32,
    /// Events that were refused, and will be tried again.
    pub failed: u32,
    /// Events that were set aside.
    pub set_aside: u32,
    /// Why the far end takes nothing, and when it wants to be tried again.
    pub down: Option<(String, Option<Duration>)>,
    /// How many events waited when the turn began.
    pub waiting: u64,
}

impl Turn {
    fn is_idle(&self) -> bool {
        self.published == 0 && self.set_aside == 0
    }
}

/// When a relay ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Never.
    Forever,
    /// When nothing waits.
    Empty,
}

/// Carries events from an outbox to a far end.
#[derive(Debug)]
pub struct Relay {
    ledger: Ledger,
    name: String,
    source: String,
    pace: Pace,
    ttl: Option<Duration>,
    sink: Box<dyn Sink>,
    hook: Hook,
}

impl Relay {
    /// A relay with this name, which the lease on `outbox/NAME` keeps single; it is also the end of the `source` of its events.
    ///
    /// # Errors
    /// [`Invalid`] for a name that is no resource's.
    pub fn new(ledger: Ledger, name: &str, sink: Box<dyn Sink>) -> Result<Self, Invalid> {
        Resource::new(&resource(name))?;
        Ok(Self {
            ledger,
            name: name.to_owned(),
            source: format!("/leasehold/outbox/{name}"),
            pace: Pace::default(),
            ttl: None,
            sink,
            hook: Hook::default(),
        })
    }

    /// Another `source` of the events: with `id` it names an event to its consumers.
    #[must_use]
    pub fn source(mut self, source: &str) -> Self {
        source.clone_into(&mut self.source);
        self
    }

    /// Another pace.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// TTL of the relay's lease; default: what the client's rules say for its resource, or 30 s. After a relay has died, events wait for so long before another one carries them on.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Stops, or ends, the relay where a test wants it.
    #[cfg(feature = "failpoints")]
    #[must_use]
    pub fn failing(mut self, hook: Hook) -> Self {
        self.hook = hook;
        self
    }

    /// Relays until `until`: waits for its lease, loses it, takes it again.
    ///
    /// **Cancel safety.** Dropping the future ends the relay as a crash would: what was delivered and not noted is delivered
    /// again.
    ///
    /// # Errors
    /// What will not get better by itself: [`Kind::Denied`], [`Kind::Invalid`], [`Kind::Unsupported`], [`Kind::Corrupt`]; and a far
    /// end that is gone.
    pub async fn run(&mut self, leases: &Leases, until: Until) -> Result<(), Error> {
        loop {
            let mut request = leases.lease(&resource(&self.name)).wait_forever();
            if let Some(ttl) = self.ttl {
                request = request.ttl(ttl);
            }
            let trouble = match request.acquire().await {
                Ok(lease) => match self.reign(&lease, until).await {
                    Ok(()) => {
                        super::flow::release(lease).await;
                        return Ok(());
                    }
                    Err(error) => error,
                },
                Err(NotAcquired::Failed(error)) => error,
                Err(no) => Error::new(Kind::Unavailable, no.to_string()),
            };
            if !trouble.is_transient() {
                return Err(trouble);
            }
            tracing::warn!(error = %trouble, relay = self.name.as_str(), "the relay stops, and begins anew");
            leases.pause(self.pace.poll).await;
        }
    }

    /// Relays under one lease.
    async fn reign(&mut self, lease: &Lease, until: Until) -> Result<(), Error> {
        self.seal(lease).await?;
        let rest = Rest::new(self.ledger.bell()?);
        loop {
            let turn = self.turn(lease).await?;
            if until == Until::Empty && turn.waiting == 0 {
                return Ok(());
            }
            let pause = rest.after(&turn, &self.pace).await;
            tokio::select! {
                biased;
                loss = lease.lost() => return Err(Error::new(Kind::Unavailable, format!("the relay's lease is lost: {loss}"))),
                () = rest.rung() => {}
                () = lease.sleep(pause) => {}
            }
        }
    }

    /// Shuts older relays out: once for a lease, before its first turn.
    ///
    /// # Errors
    /// What the database says; [`Kind::Unavailable`] when a later relay is at work.
    pub async fn seal(&self, lease: &Lease) -> Result<(), Error> {
        self.ledger.seal(&lease.pass()).await.map_err(refused)
    }

    /// Publishes what is due, once, under a lease on `outbox/NAME`, and notes it.
    ///
    /// # Errors
    /// As [`Relay::seal`], and a far end that is gone. What was delivered and not noted is delivered again.
    pub async fn turn(&mut self, lease: &Lease) -> Result<Turn, Error> {
        let due = self.ledger.due(self.pace.batch).await?;
        metric::outbox(due.waiting, due.lag);
        let mut turn = Turn { waiting: due.waiting, ..Turn::default() };
        let mut deliveries = Vec::new();
        let mut gone = None;
        let mut held_up: HashSet<(Namespace, Resource)> = HashSet::new();
        for event in &due.events {
            let place = (event.namespace.clone(), event.resource.clone());
            if held_up.contains(&place) {
                continue;
            }
            if lease.check().is_err() {
                break;
            }
            let envelope = envelope(&self.source, event);
            match self.sink.publish(event, &envelope).await {
                Ok(()) => {
                    self.hook.reach(Point::Published).await;
                    turn.published += 1;
                    deliveries.push((event.id, Delivery::Published));
                }
                Err(NotPublished::Event(why)) => {
                    held_up.insert(place);
                    deliveries.push((event.id, self.refused(event, why, &mut turn)));
                }
                Err(NotPublished::Down { why, again_in }) => {
                    tracing::warn!(
                        why = why.as_str(),
                        relay = self.name.as_str(),
                        "the far end of the outbox takes nothing"
                    );
                    turn.down = Some((why, again_in));
                    break;
                }
                Err(NotPublished::Gone(why)) => {
                    gone = Some(why);
                    break;
                }
            }
        }
        if let Err(error) = self.sink.flush() {
            return Err(Error::new(Kind::Invalid, error.to_string()));
        }
        if !deliveries.is_empty() {
            self.ledger.mark(&lease.pass(), deliveries).await.map_err(refused)?;
            metric::outbox_turn(turn.published, turn.set_aside);
        }
        match gone {
            Some(why) => Err(Error::new(Kind::Invalid, why).advise("name a far end that is there")),
            None => Ok(turn),
        }
    }

    fn refused(&self, event: &Event, why: String, turn: &mut Turn) -> Delivery {
        if event.attempts + 1 < self.pace.attempts {
            turn.failed += 1;
            return Delivery::Failed { again_in: self.pace.again_in(event.attempts), why };
        }
        turn.set_aside += 1;
        tracing::error!(
            event = event.id,
            topic = event.topic.as_str(),
            resource = event.resource.as_str(),
            why = why.as_str(),
            "an event was refused too often and is set aside: see `leasehold outbox ls --queue set_aside`"
        );
        Delivery::SetAside { why }
    }
}

/// The resource that keeps a relay single.
fn resource(name: &str) -> String {
    format!("outbox/{name}")
}

fn refused(no: NotAdmitted) -> Error {
    match no {
        NotAdmitted::Failed(error) => error,
        // A later relay is at work: it does what is to be done.
        no if no.is_stale() => Error::new(Kind::Unavailable, no.to_string()),
        no => Error::new(Kind::Corrupt, no.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_was_refused_is_tried_again_ever_later_and_not_beyond_the_cap() {
        let pace = Pace::default();
        let seconds: Vec<u64> = (0..11).map(|attempts| pace.again_in(attempts).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(pace.again_in(u32::MAX), pace.retry_cap);
    }
}

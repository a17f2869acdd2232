//! The operator's side: leaves the wish, and looks what becomes of it.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Error, Kind, Label, Resource, Token, Ttl,
    backoff::Backoff,
    record::{Acquired, Busy, End, EndReason, Grant, Record},
    request::{Claim, Release},
    waiter::Refusal,
    window::{ClockRule, Reading},
};

use super::{ACCEPTED, MAX_WITHIN, REFUSED, Text, name_of};
use crate::{
    Leases, clock,
    driver::{CALL_LIMIT, since},
    leases::Client,
    observe, random,
};

/// How often the wish is tried to be left while its caller waits.
const ATTEMPTS: u32 = 3;

/// What an operator wishes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The held thing.
    pub resource: Resource,
    /// The grant that is meant; `None` for whichever stands.
    pub token: Option<Token>,
    /// Who asks. One line; together with the reason less than about 230 bytes.
    pub by: Label,
    /// Why.
    pub reason: Label,
    /// How long the holder has, from now: more than zero, at most [`MAX_WITHIN`].
    pub within: Duration,
}

/// What came of asking.
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Asked {
    /// The wish is there for the holder to see.
    Pending(Pending),
    /// Somebody has asked for the same grant already, and that wish stands.
    Already {
        /// Who.
        by: Label,
        /// Why.
        reason: Label,
    },
    /// The resource is held under another token; nothing was asked.
    OtherToken(Record),
    /// Nobody holds the resource; nothing was asked.
    NotHeld(Option<End>),
    /// The coordinator takes no wish now: it is in quarantine, or others come first.
    Refused(Refusal),
}

/// A wish that stands. It is seen for as long as it lasts, and no longer than the namespace's longest TTL; a holder that has
/// seen it keeps to its own time. Dropping this changes nothing.
#[derive(Debug)]
pub struct Pending {
    client: Arc<Client>,
    holder: Record,
    resource: Resource,
    claim: Claim,
    token: Token,
    within: Duration,
    asked: Reading,
}

/// Where a preemption is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Progress {
    /// The holder has said nothing yet.
    Unanswered,
    /// The holder drains.
    Accepted {
        /// The holder's label.
        by: Label,
    },
    /// The holder goes on.
    Refused {
        /// The holder's label.
        by: Label,
        /// Its reason.
        reason: String,
    },
    /// The grant that was asked for has ended. How, where the engine still knows.
    Ended(Option<End>),
}

impl Leases {
    /// Asks the holder of a resource to drain and hand over. It takes nothing away: what comes of it is seen at
    /// [`Pending::look`], and the one who has asked in vain may revoke.
    ///
    /// A holder hears of it when it listens ([`crate::Lease::preemptions`]; `leasehold run` does), within a sixth of its TTL
    /// and two seconds at most.
    ///
    /// **Cancel safety.** Dropping the future may leave a wish that ends by itself.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a wish out of bounds; what the coordinator says when it cannot be asked;
    /// [`Kind::Unknown`] when nobody knows whether the wish was left.
    pub async fn preempt(&self, wish: Wish) -> Result<Asked, Error> {
        if wish.within.is_zero() || wish.within > MAX_WITHIN {
            return Err(Error::new(
                Kind::Invalid,
                "the time to hand over must be more than zero and at most 1d",
            )
            .on(&wish.resource));
        }
        let found = self.inspect(&wish.resource).await?;
        let Some(holder) = found.record else { return Ok(Asked::NotHeld(found.last_end)) };
        if wish.token.is_some_and(|token| token != holder.token) {
            return Ok(Asked::OtherToken(holder));
        }
        let text = Text { within: wish.within, by: wish.by, reason: wish.reason };
        let client = self.client();
        let profile = client.coordinator().profile();
        let ttl = Ttl::new(wish.within.max(Ttl::MIN.as_duration()).min(profile.max_ttl.as_duration()))?;
        let claim = Claim {
            resource: name_of(holder.lease_id)?,
            lease_id: random::lease_id()?,
            holder_id: client.holder_id(),
            label: text.write().map_err(|error| error.on(&wish.resource))?,
            ttl,
            lock_delay: Duration::ZERO,
            floor: None,
            queue: false,
            once_per: None,
        };
        let asked = clock::read(ClockRule::Boot);
        Ok(match leave(client, &claim).await.map_err(|error| error.on(&wish.resource))? {
            Acquired::Granted(Grant { token, .. }) => {
                observe::preemption_asked(&wish.resource, &holder, &text.by, &text.reason, text.within);
                let (client, resource, within) = (Arc::clone(client), wish.resource, text.within);
                Asked::Pending(Pending { client, holder, resource, claim, token, within, asked })
            }
            Acquired::Busy(Busy { holder, .. }) => match Text::read(&holder.label) {
                Some(Text { by, reason, .. }) => Asked::Already { by, reason },
                None => Asked::Already { by: holder.label, reason: Label::default() },
            },
            Acquired::Quarantined { remaining, .. } => Asked::Refused(Refusal::Quarantined { remaining }),
            Acquired::Queued(queued) => Asked::Refused(Refusal::Queued(queued)),
            _ => Asked::Refused(Refusal::TooLate),
        })
    }
}

/// Leaves the wish. Asking again under the same lease id is recognised.
async fn leave(client: &Client, claim: &Claim) -> Result<Acquired, Error> {
    let mut attempt = 0;
    loop {
        let call = client.coordinator().acquire(claim.clone());
        match client.driver.bounded(CALL_LIMIT, "claim", call).await {
            Err(error) if error.is_transient() && attempt + 1 < ATTEMPTS => {
                attempt += 1;
                client.driver.sleep(Backoff::default().delay(attempt, client.draw())).await;
            }
            answer => return answer,
        }
    }
}

impl Pending {
    /// The grant that was asked for.
    pub fn holder(&self) -> &Record {
        &self.holder
    }

    /// What is left of the time that the holder was given.
    pub fn remaining(&self) -> Duration {
        self.within.saturating_sub(since(self.asked))
    }

    /// How much longer than that it takes already.
    pub fn overdue(&self) -> Duration {
        since(self.asked).saturating_sub(self.within)
    }

    /// Looks where it is. To be asked again, once or twice a second.
    ///
    /// # Errors
    /// What the coordinator says when it cannot be asked.
    pub async fn look(&self) -> Result<Progress, Error> {
        let found = self.inspect(&self.resource).await?;
        let stands = found.record.is_some_and(|record| record.lease_id == self.holder.lease_id);
        if !stands {
            let end = found.last_end.filter(|end| end.lease_id == self.holder.lease_id);
            return Ok(Progress::Ended(end));
        }
        let wish = self.inspect(&self.claim.resource).await?;
        let standing = wish.record.filter(|record| record.token == self.token);
        let answered = standing.and_then(|record| record.revoked).map(|notice| (notice.by, notice.reason));
        let ended = wish.last_end.filter(|end| end.token == self.token).and_then(|end| match end.reason {
            EndReason::Revoked(reason) => Some((end.by, reason)),
            _ => None,
        });
        Ok(match answered.or(ended) {
            None => Progress::Unanswered,
            Some((by, reason)) => match reason.as_str().strip_prefix(REFUSED) {
                Some(reason) => Progress::Refused { by, reason: reason.to_owned() },
                None if reason.as_str() == ACCEPTED => Progress::Accepted { by },
                // Somebody took the wish away: it is as if it had not been heard.
                None => Progress::Unanswered,
            },
        })
    }

    /// Takes the wish back, so that a holder which has not seen it does not see it any more. One that has accepted drains all
    /// the same.
    ///
    /// # Errors
    /// What the coordinator says; the wish then ends by itself.
    pub async fn withdraw(&self) -> Result<(), Error> {
        let release = Release {
            resource: self.claim.resource.clone(),
            lease_id: self.claim.lease_id,
            token: Some(self.token),
            succeeded: false,
        };
        let call = self.client.coordinator().release(release);
        self.client.driver.bounded(CALL_LIMIT, "release", call).await.map(|_| ())
    }

    async fn inspect(&self, resource: &Resource) -> Result<leasehold_core::record::Inspection, Error> {
        let call = self.client.coordinator().inspect(resource.clone());
        let answer = self.client.driver.bounded(CALL_LIMIT, "look at a resource", call).await;
        answer.map_err(|error| error.without_effect().on(&self.resource))
    }
}

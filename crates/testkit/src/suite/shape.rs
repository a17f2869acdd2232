//! Short ways to write requests and to say which answer was expected.

use std::time::Duration;

use leasehold_core::{
    Coordinator, Error, Kind, Label, LeaseId, Token, Ttl,
    record::{Acquired, Busy, End, Gone, Grant, Inspection, Queued, Released, Renewed, Revoked},
    request::{Claim, Release, Renewal, Revocation},
};

use super::failure::{Failure, Verdict, ensure_let};
use crate::random;

/// Variations of a claim.
pub(crate) trait Shape: Sized {
    fn queueing(self) -> Self;
    fn for_(self, ttl: Ttl) -> Self;
    fn delayed(self, lock_delay: Duration) -> Self;
    fn above(self, floor: Token) -> Self;
    fn once_per(self, period: Duration) -> Self;
    fn called(self, label: &str) -> Self;
    /// The same wish as a new claim.
    fn again(&self) -> Self;
}

impl Shape for Claim {
    fn queueing(self) -> Self {
        Self { queue: true, ..self }
    }

    fn for_(self, ttl: Ttl) -> Self {
        Self { ttl, ..self }
    }

    fn delayed(self, lock_delay: Duration) -> Self {
        Self { lock_delay, ..self }
    }

    fn above(self, floor: Token) -> Self {
        Self { floor: Some(floor), ..self }
    }

    fn once_per(self, period: Duration) -> Self {
        Self { once_per: Some(period), ..self }
    }

    fn called(self, label: &str) -> Self {
        Self { label: Label::from_lossy(label), ..self }
    }

    fn again(&self) -> Self {
        Self { lease_id: random::lease_id(), ..self.clone() }
    }
}

/// A claim with the grant that answered it.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) claim: Claim,
    pub(crate) grant: Grant,
}

impl Taken {
    pub(crate) fn token(&self) -> Token {
        self.grant.token
    }

    pub(crate) fn id(&self) -> LeaseId {
        self.claim.lease_id
    }

    pub(crate) fn renewal(&self) -> Renewal {
        Renewal {
            resource: self.claim.resource.clone(),
            lease_id: self.claim.lease_id,
            token: self.grant.token,
            ttl: self.claim.ttl,
            lock_delay: self.claim.lock_delay,
        }
    }

    pub(crate) fn release(&self) -> Release {
        Release { token: Some(self.grant.token), ..take_back(&self.claim) }
    }

    pub(crate) fn success(&self) -> Release {
        Release { succeeded: true, ..self.release() }
    }

    pub(crate) fn revocation(&self) -> Revocation {
        Revocation {
            resource: self.claim.resource.clone(),
            token: self.grant.token,
            by: Label::from_lossy("operator"),
            reason: Label::from_lossy("moving the database"),
            now: false,
        }
    }

    pub(crate) fn revocation_now(&self) -> Revocation {
        Revocation { now: true, ..self.revocation() }
    }
}

/// A release by lease id alone: what a claimant sends who never learnt the outcome.
pub(crate) fn take_back(claim: &Claim) -> Release {
    Release { resource: claim.resource.clone(), lease_id: claim.lease_id, token: None, succeeded: false }
}

/// What a coordinator is expected to answer.
pub(crate) trait Expect {
    async fn take(&self, claim: &Claim) -> Result<Taken, Failure>;
    async fn busy(&self, claim: &Claim) -> Result<Busy, Failure>;
    async fn queued(&self, claim: &Claim) -> Result<Queued, Failure>;
    async fn spent(&self, claim: &Claim) -> Result<End, Failure>;
    async fn refused(&self, claim: &Claim) -> Result<Error, Failure>;
    async fn renew_one(&self, renewal: Renewal) -> Result<Renewed, Failure>;
    async fn extended(&self, renewal: Renewal) -> Result<Ttl, Failure>;
    async fn gone(&self, renewal: Renewal) -> Result<Gone, Failure>;
    async fn end(&self, release: Release) -> Verdict;
    async fn not_held(&self, release: Release) -> Result<Gone, Failure>;
    async fn leave(&self, claim: &Claim) -> Verdict;
    async fn revoked(&self, revocation: Revocation) -> Result<(LeaseId, Duration), Failure>;
    async fn look(&self, claim: &Claim) -> Result<Inspection, Failure>;
    async fn holder(&self, claim: &Claim) -> Result<Option<(LeaseId, Token)>, Failure>;
}

impl<C: Coordinator + ?Sized> Expect for C {
    async fn take(&self, claim: &Claim) -> Result<Taken, Failure> {
        let answer = self.acquire(claim.clone()).await?;
        let grant = ensure_let!(Acquired::Granted(grant) = answer => grant, "the claim should be granted");
        Ok(Taken { claim: claim.clone(), grant })
    }

    async fn busy(&self, claim: &Claim) -> Result<Busy, Failure> {
        let answer = self.acquire(claim.clone()).await?;
        Ok(
            ensure_let!(Acquired::Busy(busy) = answer => busy, "the claim should find the resource held by another"),
        )
    }

    async fn queued(&self, claim: &Claim) -> Result<Queued, Failure> {
        let answer = self.acquire(claim.clone()).await?;
        Ok(ensure_let!(Acquired::Queued(queued) = answer => queued, "the claim should find others in front"))
    }

    async fn spent(&self, claim: &Claim) -> Result<End, Failure> {
        let answer = self.acquire(claim.clone()).await?;
        Ok(
            ensure_let!(Acquired::Spent(end) = answer => end, "the claim's grant has ended: it should be spent"),
        )
    }

    async fn refused(&self, claim: &Claim) -> Result<Error, Failure> {
        let answer = self.acquire(claim.clone()).await;
        let error = ensure_let!(Err(error) = answer => error, "the claim should be refused");
        if error.kind() != Kind::Invalid {
            return Err(Failure::new(format!("the claim should be refused as invalid: got {error:?}")));
        }
        Ok(error)
    }

    async fn renew_one(&self, renewal: Renewal) -> Result<Renewed, Failure> {
        let mut answers = self.renew(vec![renewal]).await?;
        if answers.len() != 1 {
            return Err(Failure::new(format!("one renewal has one answer: got {answers:?}")));
        }
        answers.pop().ok_or_else(|| Failure::new("no answer"))?.map_err(Failure::from)
    }

    async fn extended(&self, renewal: Renewal) -> Result<Ttl, Failure> {
        let answer = self.renew_one(renewal).await?;
        Ok(ensure_let!(Renewed::Extended { ttl } = answer => ttl, "the renewal should extend the grant"))
    }

    async fn gone(&self, renewal: Renewal) -> Result<Gone, Failure> {
        let answer = self.renew_one(renewal).await?;
        Ok(ensure_let!(Renewed::Gone(gone) = answer => gone, "the renewal should be refused"))
    }

    async fn end(&self, release: Release) -> Verdict {
        let answer = Coordinator::release(self, release).await?;
        ensure_let!(Released::Ended = answer => (), "the release should end the grant");
        Ok(())
    }

    async fn not_held(&self, release: Release) -> Result<Gone, Failure> {
        let answer = Coordinator::release(self, release).await?;
        Ok(
            ensure_let!(Released::NotHeld(gone) = answer => gone, "the release should find nothing of its own"),
        )
    }

    async fn leave(&self, claim: &Claim) -> Verdict {
        let answer = Coordinator::release(self, take_back(claim)).await?;
        ensure_let!(Released::LeftQueue = answer => (), "taking the claim back should give up its place");
        Ok(())
    }

    async fn revoked(&self, revocation: Revocation) -> Result<(LeaseId, Duration), Failure> {
        let answer = self.revoke(revocation).await?;
        let out = ensure_let!(
            Revoked::Ended { record, busy_for } = answer => (record.lease_id, busy_for), "the revocation should end the grant"
        );
        Ok(out)
    }

    async fn look(&self, claim: &Claim) -> Result<Inspection, Failure> {
        Ok(self.inspect(claim.resource.clone()).await?)
    }

    async fn holder(&self, claim: &Claim) -> Result<Option<(LeaseId, Token)>, Failure> {
        Ok(self.look(claim).await?.record.map(|record| (record.lease_id, record.token)))
    }
}

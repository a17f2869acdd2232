//! The steps of an operation, whatever the database.
//!
//! ```text
//! read the key ─ done ─▶ the stored answer, whatever its token, without a lease
//!   │ absent
//!   ▼
//! lease ─▶ seal ─▶ read the key again ─▶ one transaction: fence, key, effect, events, response ─▶ release
//! ```
//!
//! The lease only keeps operations out of each other's way. What makes an operation happen once is the key, which is unique and
//! commits together with the effect; what keeps a late one from landing behind its successor is the fence.

use std::time::Duration;

use leasehold_core::{Error, Kind, Resource, fence::Pass};

use super::{
    answer::NotDone,
    failpoint::{Hook, Point},
    key::{Key, Request},
    record::{Answer, Record, State},
    rules::Rules,
};
use crate::{Lease, Leases, NotAcquired, fence::NotAdmitted};

/// How long an answer waits for the release behind it (ours: several round trips to a healthy coordinator).
const PATIENCE: Duration = Duration::from_secs(1);

/// What every kind of database shares.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) leases: Leases,
    pub(super) rules: Rules,
    pub(super) hook: Hook,
}

/// What one transaction came to.
#[derive(Debug)]
pub(super) enum Attempt {
    /// It is committed.
    Done(Answer),
    /// The key is there already, from somebody who was quicker: rolled back.
    Twin,
}

/// An operation on a connection of a database.
pub(super) trait Session: Send {
    /// How the work of the operation fails.
    type Failure: Send;

    fn look(&mut self, key: &Key) -> impl Future<Output = Result<Option<Record>, Error>> + Send;

    fn seal(&mut self, pass: &Pass) -> impl Future<Output = Result<(), NotAdmitted>> + Send;
}

/// An operation whose effect is in that database.
pub(super) trait Local: Session {
    /// The transaction.
    fn attempt(
        &mut self,
        lease: &Lease,
        key: &Key,
        request: &Request,
    ) -> impl Future<Output = Result<Attempt, NotDone<Self::Failure>>> + Send;
}

impl Common {
    /// # Errors
    /// [`Kind::Invalid`] for rules that do not fit together.
    pub(super) fn new(leases: &Leases, rules: Rules) -> Result<Self, Error> {
        let rules = rules.check()?;
        if let Some(warning) = rules.warning() {
            tracing::warn!(warning = warning.as_str(), "the rules of effects are worth a look");
        }
        Ok(Self { leases: leases.clone(), rules, hook: Hook::default() })
    }

    pub(super) async fn acquire(&self, resource: &Resource) -> Result<Lease, NotAcquired> {
        self.rules.lease(self.leases.lease(resource.as_str())).acquire().await
    }

    /// The whole operation.
    pub(super) async fn execute<S: Local>(
        &self,
        session: &mut S,
        key: &Key,
        request: &Request,
    ) -> Result<Answer, NotDone<S::Failure>> {
        if let Some(answer) = known(session.look(key).await?, request)? {
            return Ok(answer);
        }
        self.hook.reach(Point::BeforeAcquire).await;
        let lease = match self.acquire(request.resource()).await {
            Ok(lease) => lease,
            // Whoever had the resource may have carried out this very operation.
            Err(no) => {
                return match known(session.look(key).await?, request)? {
                    Some(answer) => Ok(answer),
                    None => Err(NotDone::Busy(no)),
                };
            }
        };
        self.hook.reach(Point::Acquired).await;
        let answer = self.execute_under(session, &lease, key, request).await;
        release(lease).await;
        answer
    }

    /// The part of it that needs the lease.
    pub(super) async fn execute_under<S: Local>(
        &self,
        session: &mut S,
        lease: &Lease,
        key: &Key,
        request: &Request,
    ) -> Result<Answer, NotDone<S::Failure>> {
        if lease.resource() != request.resource() {
            return Err(Error::new(
                Kind::Invalid,
                format!("the lease is on {}, and the request on {}", lease.resource(), request.resource()),
            )
            .into());
        }
        self.seal(session, lease).await?;
        // What was committed before the seal is seen now, and nothing older comes after it.
        if let Some(answer) = known(session.look(key).await?, request)? {
            return Ok(answer);
        }
        match session.attempt(lease, key, request).await? {
            Attempt::Done(answer) => Ok(answer),
            Attempt::Twin => match known(session.look(key).await?, request)? {
                Some(answer) => Ok(answer),
                None => Err(again(request).into()),
            },
        }
    }

    /// Shuts older grants out. Where the fence has seen a higher token, the next lease of this client is above it.
    pub(super) async fn seal<S: Session>(&self, session: &mut S, lease: &Lease) -> Result<(), NotAdmitted> {
        let sealed = session.seal(&lease.pass()).await;
        if let Some(stored) = sealed.as_ref().err().and_then(|no| no.refusal()?.stored()) {
            self.leases.raise_floor(lease.resource(), stored.token);
        }
        self.hook.reach(Point::Sealed).await;
        sealed
    }
}

/// The answer under a key that is done; `None` where it is absent.
pub(super) fn known<E>(found: Option<Record>, request: &Request) -> Result<Option<Answer>, NotDone<E>> {
    let Some(record) = found else { return Ok(None) };
    if record.fingerprint != *request.fingerprint() {
        return Err(NotDone::KeyReused(Box::new(record)));
    }
    if record.state != State::Done {
        return Err(NotDone::Unsettled(Box::new(record)));
    }
    let token = record.token;
    let response = record.response.unwrap_or_default();
    Ok(Some(Answer { response, replayed: true, token }))
}

/// Another transaction was in the way, and has left nothing.
pub(super) fn again(request: &Request) -> Error {
    Error::new(Kind::Unavailable, "another transaction under the same key came first, and has left nothing")
        .on(request.resource())
        .advise("ask again with the same key")
}

/// Gives the lease back. The answer stands, whatever becomes of that, and is not kept waiting: the background goes on with it, and
/// the resource is busy for up to the TTL at worst.
pub(super) async fn release(lease: Lease) {
    let patience = lease.sleep(PATIENCE);
    tokio::select! {
        _ = lease.release() => {}
        () = patience => {}
    }
}

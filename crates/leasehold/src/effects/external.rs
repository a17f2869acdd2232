//! Effects at a far end that takes no part in our transaction: a payment provider, a machine, an email.
//!
//! Exactly once is then for the far end to give. What is done here is not to make it worse, and to know when one does not know:
//!
//! 1. `started` is committed under the key, with the fencing token, **before** the call.
//! 2. The far end is called with *the same* key as its own idempotency key.
//! 3. Its answer is committed as `done`, together with events, under the fence.
//!
//! Whoever finds `started` from an older grant takes it over, and does what the far end allows ([`Repeat`]): repeats the call
//! with the same key, asks first, or leaves it to a person as [`State::NeedsReconciliation`].
//! Never is a call repeated in silence where that could make it happen twice.

use std::pin::Pin;

use leasehold_core::{Error, Kind, fence::Pass};
use serde_json::Value;

use super::{
    answer::NotDone,
    failpoint::Point,
    flow::{Common, Session, known, release},
    key::{Key, Request},
    record::{Answer, Record, State},
};
use crate::{Lease, fence::NotAdmitted};

/// A future of the caller's.
pub type Working<'t, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 't>>;

/// What may be done when nobody knows whether an earlier call has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Repeat {
    /// Call again with the same key: the far end knows it, and answers as it did before.
    SameKey,
    /// Ask the far end for what it knows under the key, and call if that is nothing. Only as good as the far end's answer is
    /// final: where a call may arrive late, let a [`lock_delay`](super::Rules::lock_delay) outlast it.
    Query,
    /// Nothing: a person must find out.
    Never,
}

/// A far end.
pub trait Provider: Send + Sync {
    /// What it allows.
    fn repeat(&self) -> Repeat;

    /// Calls it, with this key as its idempotency key ([`Key::as_str`], or [`Key::digest`] where keys must be short). A no that is
    /// final, such as a declined card, is an answer and not an error. The future is dropped when the lease is lost or
    /// `max_exec` is over.
    ///
    /// # Errors
    /// [`Kind::Unknown`] when the call may have arrived; any other kind when it **certainly had no effect**.
    fn call<'a>(&'a self, key: &'a Key) -> Working<'a, Value, Error>;

    /// What it knows under this key, for [`Repeat::Query`].
    ///
    /// # Errors
    /// As it likes: nothing was done.
    fn query<'a>(&'a self, key: &'a Key) -> Working<'a, Option<Value>, Error> {
        let _ = key;
        Box::pin(async { Err(Error::new(Kind::Unsupported, "this provider cannot be asked")) })
    }
}

/// What became of taking a key.
#[derive(Debug)]
pub(super) enum Taken {
    /// It is new.
    Fresh,
    /// An older grant had started it.
    Over,
    /// It is not to be had.
    Theirs(Box<Record>),
}

/// How a started key is left that is not done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Far<'a> {
    /// For a person to decide.
    Park(&'a str),
    /// Certainly nothing has happened.
    Forget,
}

/// The transactions of an external effect.
pub(super) trait FarSession: Session {
    fn take(
        &mut self,
        pass: &Pass,
        key: &Key,
        request: &Request,
    ) -> impl Future<Output = Result<Taken, NotAdmitted>> + Send;

    fn finish(
        &mut self,
        lease: &Lease,
        key: &Key,
        far: Value,
    ) -> impl Future<Output = Result<Answer, NotDone<Self::Failure>>> + Send;

    fn leave(
        &mut self,
        pass: &Pass,
        key: &Key,
        how: Far<'_>,
    ) -> impl Future<Output = Result<(), NotAdmitted>> + Send;
}

impl Common {
    /// The whole of an external effect.
    pub(super) async fn call<S: FarSession, P: Provider>(
        &self,
        session: &mut S,
        provider: &P,
        key: &Key,
        request: &Request,
    ) -> Result<Answer, NotDone<S::Failure>> {
        if let Some(answer) = settled(session.look(key).await?, request)? {
            return Ok(answer);
        }
        self.hook.reach(Point::BeforeAcquire).await;
        let lease = match self.acquire(request.resource()).await {
            Ok(lease) => lease,
            Err(no) => {
                return match settled(session.look(key).await?, request)? {
                    Some(answer) => Ok(answer),
                    None => Err(NotDone::Busy(no)),
                };
            }
        };
        self.hook.reach(Point::Acquired).await;
        let answer = self.call_under(session, &lease, provider, key, request).await;
        release(lease).await;
        answer
    }

    async fn call_under<S: FarSession, P: Provider>(
        &self,
        session: &mut S,
        lease: &Lease,
        provider: &P,
        key: &Key,
        request: &Request,
    ) -> Result<Answer, NotDone<S::Failure>> {
        self.seal(session, lease).await?;
        let over = match session.take(&lease.pass(), key, request).await? {
            Taken::Fresh => false,
            Taken::Over => true,
            Taken::Theirs(record) => {
                return known(Some(*record), request)?
                    .ok_or_else(|| Error::new(Kind::Unavailable, "the key is being given back").into());
            }
        };
        self.hook.reach(Point::Started).await;
        let far = match (over, provider.repeat()) {
            (true, Repeat::Never) => {
                const NOTE: &str = "an earlier call may have arrived, and the provider can neither be asked nor called again";
                session.leave(&lease.pass(), key, Far::Park(NOTE)).await?;
                return match session.look(key).await? {
                    Some(record) => Err(NotDone::Unsettled(Box::new(record))),
                    None => {
                        Err(Error::new(Kind::Unknown, "the key was resolved meanwhile; ask again").into())
                    }
                };
            }
            (true, Repeat::Query) => self
                .bounded(lease, provider.query(key))
                .await
                .map_err(|error| NotDone::Failed(error.unknown()))?,
            _ => None,
        };
        let far = match far {
            Some(far) => far,
            None => match self.bounded(lease, provider.call(key)).await {
                Ok(far) => far,
                Err(error) if error.kind() == Kind::Unknown || over => {
                    return Err(NotDone::Failed(error.unknown().on(request.resource())));
                }
                Err(error) => {
                    session.leave(&lease.pass(), key, Far::Forget).await?;
                    return Err(NotDone::Failed(error.on(request.resource())));
                }
            },
        };
        self.hook.reach(Point::Called).await;
        session.finish(lease, key, far).await
    }

    /// A call to the far end, given up when the lease is lost or the time is over: nobody then knows whether it arrived.
    async fn bounded<T>(&self, lease: &Lease, call: Working<'_, T, Error>) -> Result<T, Error> {
        let unknown = |what: String| {
            Error::new(Kind::Unknown, what)
                .advise("ask again with the same key: it is taken over and settled")
        };
        let limit = self.rules.limit();
        tokio::select! {
            biased;
            loss = lease.lost() => Err(unknown(format!("the lease was lost while the far end was called: {loss}"))),
            answer = call => answer,
            () = lease.sleep(limit) => Err(unknown(format!("the far end has not answered within max_exec ({limit:?})"))),
        }
    }
}

/// As [`known`], and a key that was only started is for us to take.
fn settled<E>(found: Option<Record>, request: &Request) -> Result<Option<Answer>, NotDone<E>> {
    match found {
        Some(record) if record.state == State::Started && record.fingerprint == *request.fingerprint() => {
            Ok(None)
        }
        other => known(other, request),
    }
}

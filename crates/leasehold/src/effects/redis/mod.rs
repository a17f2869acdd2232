//! Operations whose data live in Redis: the effect is a list of commands, which one script runs together with the fence's check, the key,
//! the events and the response.
//!
//! **Weaker than a database** ([`Durability::Forgettable`]): the script is one step, so that everything in it lives or dies together, in
//! the append-only file and on replicas too. But Redis answers before a replica has it, and before the disk has it unless
//! `appendfsync` is `always`. After a failover or such a crash the server may have forgotten an operation that it has answered, with its
//! effect: a repetition is then carried out again. An event that had left by then has told of something that is no more, and another one
//! with another number follows.
//!
//! Nor does Redis roll back. A command that fails behind others leaves them done; the key is then left as
//! [`State::NeedsReconciliation`](super::State::NeedsReconciliation), and nobody repeats it in silence. What fails first leaves nothing.
//!
//! | | key |
//! | --- | --- |
//! | everything of the operations under a tag | `lheffects:{leasehold}:…`, none of which expires |
//! | the fence of `orders/42` | `lhfence:{default:orders%2F42}`, or `lhfence:{TAG}default:orders%2F42` after [`RedisEffects::within`] |

mod ledger;
mod read;
mod script;
mod session;
mod tx;

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc};

use leasehold_core::{Error, Invalid};
use redis::aio::ConnectionLike;
use serde_json::Value;

pub(super) use ledger::RedisLedger;
pub use tx::{MAX_COMMANDS, MAX_WORDS, RedisTx};

#[cfg(feature = "failpoints")]
use super::failpoint::Hook;
use super::{
    answer::NotDone,
    compensate,
    durability::Durability,
    external::{Provider, Working},
    flow::Common,
    key::{Key, Request},
    record::{Answer, Record},
    rules::Rules,
};
use crate::{
    Lease, Leases,
    fence::redis::{RedisFence, checked},
};
use session::Run;

/// The tag of operations that were given none.
pub const TAG: &str = "leasehold";

/// A connection on which operations run: [`redis::aio::MultiplexedConnection`], a connection manager, or that of a Cluster.
pub trait Connection: ConnectionLike + Clone + Send + Sync + 'static {}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for C {}

/// Operations that happen once, in the caller's Redis: see [the module](self) for what that is worth.
///
/// ```no_run
/// # async fn example(mut db: redis::aio::MultiplexedConnection) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Leases, effects::{Key, Request, Rules, redis::RedisEffects}, fence::redis::redis};
/// use serde_json::json;
///
/// let leases = Leases::connect("redis://db").await?;
/// let effects = RedisEffects::new(&leases, Rules::default())?;
///
/// let body = br#"{"account": 7, "amount": 30}"#;
/// let (key, request) = (Key::new("withdrawals", "b7c1")?, Request::new("accounts/7", body)?);
/// let answer = effects.run(&mut db, &key, &request, |tx| Box::pin(async move {
///     let mut withdraw = redis::cmd("DECRBY");
///     withdraw.arg("account:7").arg(30);
///     tx.command(&withdraw, &["account:7"])?;
///     tx.emit("account.withdrawn", &json!({"account": 7, "amount": 30}))?;
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(json!({"withdrawn": 30}))
/// })).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisEffects {
    common: Common,
    fence: RedisFence,
    tag: String,
}

impl RedisEffects {
    /// What an answer of these operations is worth.
    pub const DURABILITY: Durability = Durability::Forgettable;

    /// Operations under leases of this client, with what belongs to them under the tag [`TAG`].
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`] for rules that do not fit together; it then shows the figures.
    pub fn new(leases: &Leases, rules: Rules) -> Result<Self, Error> {
        Ok(Self { common: Common::new(leases, rules)?, fence: RedisFence::default(), tag: TAG.to_owned() })
    }

    /// With everything under this hash tag, without braces, the fences included: for a Cluster, where all of it and the data must be in
    /// one slot, as in `{shop}:account:7`. Operations under different tags know nothing of each other. The same as `?effects_tag=` in
    /// the URL of a ledger.
    ///
    /// # Errors
    /// [`Invalid`] for a tag that is not 1–255 bytes without braces and NUL.
    pub fn within(mut self, tag: &str) -> Result<Self, Invalid> {
        checked(tag)?.clone_into(&mut self.tag);
        self.fence = self.fence.within(tag)?;
        Ok(self)
    }

    /// The fence of these operations: for reads and writes of the same data outside of them.
    pub fn fence(&self) -> &RedisFence {
        &self.fence
    }

    /// Stops, or ends, operations where a test wants it.
    #[cfg(feature = "failpoints")]
    #[must_use]
    pub fn failing(mut self, hook: Hook) -> Self {
        self.common.hook = hook;
        self
    }

    /// Carries the operation out, unless it was carried out before: then gives the stored answer.
    ///
    /// `work` says which commands are to be run and which events told, and returns the response; it may read what it needs, behind the
    /// seal. Nothing of that happens before it has returned. Then one script runs it all, if the fence admits it.
    ///
    /// **Guarantee.** For one key, effects, events and the response happen together, and once, for as long as the key is
    /// [kept](super::Keep) **and the server remembers**: [`Durability::Forgettable`].
    ///
    /// **Cancel safety.** Dropping the future changes nothing, unless the script is under way: then the key knows.
    ///
    /// # Errors
    /// [`NotDone`] says what it means for the effect. [`NotDone::Unsettled`] also when a command has failed behind others. After
    /// [`leasehold_core::Kind::Unknown`] ask again with the same key.
    pub async fn run<C, F, E: Send>(
        &self,
        connection: &mut C,
        key: &Key,
        request: &Request,
        work: F,
    ) -> Result<Answer, NotDone<E>>
    where
        C: Connection,
        F: for<'t> FnOnce(&'t RedisTx<'t, C>) -> Working<'t, Value, E> + Send,
    {
        let mut session = self.session(connection, request, work);
        self.common.execute(&mut session, key, request).await
    }

    /// The same under a lease that the caller has, and keeps. Operations that are under way at once under one lease may read what
    /// another is about to change: let their commands be relative, as `INCRBY` is.
    ///
    /// # Errors
    /// As [`RedisEffects::run`]; [`leasehold_core::Kind::Invalid`] for the lease of another resource.
    pub async fn run_under<C, F, E: Send>(
        &self,
        lease: &Lease,
        connection: &mut C,
        key: &Key,
        request: &Request,
        work: F,
    ) -> Result<Answer, NotDone<E>>
    where
        C: Connection,
        F: for<'t> FnOnce(&'t RedisTx<'t, C>) -> Working<'t, Value, E> + Send,
    {
        let mut session = self.session(connection, request, work);
        self.common.execute_under(&mut session, lease, key, request).await
    }

    /// Carries out an operation whose effect is at a [`Provider`]; see [the guide](super::external).
    ///
    /// `finish` says which commands and events go with what the provider has answered. What it returns is the response.
    ///
    /// A server that has forgotten that a call was begun lets it be repeated: only [`Repeat::SameKey`](super::Repeat::SameKey) and
    /// [`Repeat::Query`](super::Repeat::Query) are then protected by the provider.
    ///
    /// # Errors
    /// As [`RedisEffects::run`], and [`NotDone::Unsettled`] where a person must find out.
    pub async fn call<C, P, F, E: Send>(
        &self,
        connection: &mut C,
        key: &Key,
        request: &Request,
        provider: &P,
        finish: F,
    ) -> Result<Answer, NotDone<E>>
    where
        C: Connection,
        P: Provider,
        F: for<'t> FnOnce(&'t RedisTx<'t, C>, Value) -> Working<'t, Value, E> + Send,
    {
        let mut session = self.session(connection, request, finish);
        self.common.call(&mut session, provider, key, request).await
    }

    /// Undoes an operation that is done, or needs reconciliation: once, however often it is called, as an operation under
    /// [`Key::undoing`], with lease and fence.
    ///
    /// # Errors
    /// As [`RedisEffects::run`]; [`leasehold_core::Kind::Invalid`] for what never happened, [`leasehold_core::Kind::Unsupported`] for a
    /// scope without compensation, [`NotDone::Unsettled`] for what is still under way.
    pub async fn compensate<C: Connection>(
        &self,
        connection: &mut C,
        compensations: &Compensations<C>,
        key: &Key,
    ) -> Result<Answer, NotDone<Error>> {
        let undo = compensations.0.get(key.scope()).ok_or_else(|| compensate::unknown(key))?;
        let (record, undoing, request) = compensate::request(self.look(connection, key).await?, key)?;
        let undo = Arc::clone(undo);
        self.run(connection, &undoing, &request, |tx| Box::pin(async move { undo(tx, &record).await })).await
    }

    /// What is remembered under a key.
    ///
    /// # Errors
    /// What the server says.
    pub async fn look<C: ConnectionLike + Send>(
        &self,
        connection: &mut C,
        key: &Key,
    ) -> Result<Option<Record>, Error> {
        session::look(connection, &self.tag, key).await
    }

    fn session<'c, C, F, E>(
        &'c self,
        connection: &'c mut C,
        request: &'c Request,
        work: F,
    ) -> Run<'c, C, F, E> {
        Run { connection, effects: self, request, work: Some(work), failure: PhantomData }
    }
}

/// What undoes an operation of a scope.
type Undo<C> = dyn for<'t> Fn(&'t RedisTx<'t, C>, &'t Record) -> Working<'t, Value, Error> + Send + Sync;

/// What undoes which operations, by their scopes.
#[derive(Clone)]
pub struct Compensations<C>(BTreeMap<String, Arc<Undo<C>>>);

impl<C> Default for Compensations<C> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<C> Compensations<C> {
    /// Operations of `scope` are undone by `undo`, which gets what is remembered of the one to undo, its response included. What
    /// it returns is the response of the undoing.
    #[must_use]
    pub fn on<F>(mut self, scope: &str, undo: F) -> Self
    where
        F: for<'t> Fn(&'t RedisTx<'t, C>, &'t Record) -> Working<'t, Value, Error> + Send + Sync + 'static,
    {
        self.0.insert(scope.to_owned(), Arc::new(undo));
        self
    }
}

impl<C> std::fmt::Debug for Compensations<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

//! Operations whose data live in a SQLite database.
//!
//! SQLite lets one transaction write at a time, so a twin of an operation waits at its beginning and then finds the key.

mod failure;
mod ledger;
mod step;
mod table;
mod tx;

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc};

use leasehold_core::{Error, Kind, fence::Pass};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::Value;

pub(super) use ledger::{SqliteLedger, no_roles};
pub use tx::SqliteTx;

use super::{
    answer::NotDone,
    compensate,
    durability::Durability,
    external::{Far, FarSession, Provider, Taken},
    failpoint::{Hook, Point},
    flow::{Attempt, Common, Local, Session},
    key::{Key, Request},
    record::{Answer, Record, State, corrupt, resolved, signed},
    rules::Rules,
};
use crate::{
    Lease, Leases, clock,
    fence::{NotAdmitted, sqlite::SqliteFence},
};

/// Operations that happen once, in the caller's SQLite database.
///
/// The calls block their thread for as long as SQLite and the work take, which is at most [`Rules::max_exec`] beyond what the
/// connection waits for; from an async program call them where blocking is allowed.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Leases, effects::{Key, Request, Rules, sqlite::SqliteEffects}, fence::sqlite::rusqlite::Connection};
/// use serde_json::json;
///
/// let leases = Leases::connect("memory:").await?;
/// let effects = SqliteEffects::new(&leases, Rules::default())?;
/// let mut db = Connection::open_in_memory()?;
/// effects.install(&db)?;
/// db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)", [])?;
/// db.execute("INSERT INTO account VALUES (7, 100)", [])?;
///
/// let body = br#"{"account": 7, "amount": 30}"#;
/// let (key, request) = (Key::new("withdrawals", "b7c1")?, Request::new("accounts/7", body)?);
/// for repetition in [false, true] {
///     let answer = effects.run(&mut db, &key, &request, |tx| {
///         tx.execute("UPDATE account SET balance = balance - 30 WHERE id = 7", [])?;
///         tx.emit("account.withdrawn", &json!({"account": 7, "amount": 30}))?;
///         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(json!({"withdrawn": 30}))
///     });
///     let answer = answer.await.map_err(|no| no.to_string())?;
///     assert_eq!((answer.response, answer.replayed), (json!({"withdrawn": 30}), repetition));
/// }
/// assert_eq!(db.query_row("SELECT balance FROM account", [], |row| row.get::<_, i64>(0))?, 70);
/// # Ok(())
/// # }
/// # leasehold::blocking::block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SqliteEffects {
    common: Common,
    fence: SqliteFence,
}

impl SqliteEffects {
    /// What an answer of these operations is worth.
    pub const DURABILITY: Durability = Durability::Committed;

    /// Operations under leases of this client.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for rules that do not fit together; it then shows the figures.
    pub fn new(leases: &Leases, rules: Rules) -> Result<Self, Error> {
        Ok(Self { common: Common::new(leases, rules)?, fence: SqliteFence::default() })
    }

    /// With a fence of another policy.
    #[must_use]
    pub fn fence(mut self, fence: SqliteFence) -> Self {
        self.fence = fence;
        self
    }

    /// Stops, or ends, operations where a test wants it.
    #[cfg(feature = "failpoints")]
    #[must_use]
    pub fn failing(mut self, hook: Hook) -> Self {
        self.common.hook = hook;
        self
    }

    /// Makes the tables of fence and effects where they are missing, in the database of the data.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn install(&self, connection: &Connection) -> Result<(), Error> {
        install(connection)
    }

    /// Carries the operation out, unless it was carried out before: then gives the stored answer.
    ///
    /// `work` runs in one transaction with the key, the events and the response it returns. It may run and be rolled back; what
    /// it does outside of the transaction is not undone.
    ///
    /// **Guarantee.** For one key, effects, events and the response are committed together, and once, for as long as the key is
    /// [kept](super::Keep); whatever processes crash, stall or lose their leases.
    ///
    /// **Cancel safety.** Dropping the future ends the operation before or after its transaction, never within.
    ///
    /// # Errors
    /// [`NotDone`] says what it means for the effect.
    pub async fn run<E: Send>(
        &self,
        connection: &mut Connection,
        key: &Key,
        request: &Request,
        work: impl FnOnce(&SqliteTx<'_>) -> Result<Value, E> + Send,
    ) -> Result<Answer, NotDone<E>> {
        let mut session = self.session(connection, work);
        self.common.execute(&mut session, key, request).await
    }

    /// The same under a lease that the caller has, and keeps.
    ///
    /// # Errors
    /// As [`SqliteEffects::run`]; [`Kind::Invalid`] for the lease of another resource.
    pub async fn run_under<E: Send>(
        &self,
        lease: &Lease,
        connection: &mut Connection,
        key: &Key,
        request: &Request,
        work: impl FnOnce(&SqliteTx<'_>) -> Result<Value, E> + Send,
    ) -> Result<Answer, NotDone<E>> {
        let mut session = self.session(connection, work);
        self.common.execute_under(&mut session, lease, key, request).await
    }

    /// Carries out an operation whose effect is at a [`Provider`]; see [the guide](super::external).
    ///
    /// `finish` runs in the transaction that stores what the provider has answered: for rows and events of one's own. What it
    /// returns is the response.
    ///
    /// # Errors
    /// As [`SqliteEffects::run`], and [`NotDone::Unsettled`] where a person must find out.
    pub async fn call<P: Provider, E: Send>(
        &self,
        connection: &mut Connection,
        key: &Key,
        request: &Request,
        provider: &P,
        finish: impl FnOnce(&SqliteTx<'_>, Value) -> Result<Value, E> + Send,
    ) -> Result<Answer, NotDone<E>> {
        let mut session = self.session(connection, finish);
        self.common.call(&mut session, provider, key, request).await
    }

    /// Undoes an operation that is done, or needs reconciliation: once, however often it is called, as an operation under
    /// [`Key::undoing`], with lease and fence.
    ///
    /// # Errors
    /// As [`SqliteEffects::run`]; [`Kind::Invalid`] for what never happened, [`Kind::Unsupported`] for a scope without compensation,
    /// [`NotDone::Unsettled`] for what is still under way.
    pub async fn compensate(
        &self,
        connection: &mut Connection,
        compensations: &Compensations,
        key: &Key,
    ) -> Result<Answer, NotDone<Error>> {
        let undo = compensations.0.get(key.scope()).ok_or_else(|| compensate::unknown(key))?;
        let (record, undoing, request) = compensate::request(table::read(connection, key)?, key)?;
        self.run(connection, &undoing, &request, |tx| undo(tx, &record)).await
    }

    /// What is remembered under a key.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn look(&self, connection: &Connection, key: &Key) -> Result<Option<Record>, Error> {
        table::read(connection, key)
    }

    /// Forgets keys that are done and whose time is over, by this machine's wall clock; how many.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn purge(&self, connection: &Connection) -> Result<u64, Error> {
        ledger::purge(connection)
    }

    fn session<'c, F, E>(&'c self, connection: &'c mut Connection, work: F) -> Run<'c, F, E> {
        Run { connection, effects: self, work: Some(work), failure: PhantomData }
    }
}

/// What undoes an operation of a scope.
type Undo = dyn Fn(&SqliteTx<'_>, &Record) -> Result<Value, Error> + Send + Sync;

/// What undoes which operations, by their scopes.
#[derive(Clone, Default)]
pub struct Compensations(BTreeMap<String, Arc<Undo>>);

impl Compensations {
    /// Operations of `scope` are undone by `undo`, which gets what is remembered of the one to undo, its response included. What
    /// it returns is the response of the undoing.
    #[must_use]
    pub fn on(
        mut self,
        scope: &str,
        undo: impl Fn(&SqliteTx<'_>, &Record) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(scope.to_owned(), Arc::new(undo));
        self
    }
}

impl std::fmt::Debug for Compensations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Does a consumer see this event for the first time? To be asked in the transaction that acts on it: `false` means that it was
/// acted on before.
///
/// # Errors
/// What SQLite says.
pub fn receive(tx: &Transaction<'_>, source: &str, event_id: u64) -> Result<bool, Error> {
    const SQL: &str = "INSERT INTO leasehold_inbox (source, event_id, received_unix) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let failed = |error| failure::of("the event could not be noted in the inbox", &error);
    let parameters = rusqlite::params![source, signed(event_id), signed(clock::unix_us())];
    Ok(tx.prepare_cached(SQL).map_err(failed)?.execute(parameters).map_err(failed)? == 1)
}

/// The statements that make the tables of fence and effects where they are missing, as one transaction.
pub(super) fn script() -> String {
    format!("BEGIN IMMEDIATE;{}{}COMMIT;\n", SqliteFence::script(), table::TABLES)
}

fn install(connection: &Connection) -> Result<(), Error> {
    SqliteFence::default().install(connection)?;
    connection
        .execute_batch(table::TABLES)
        .map_err(|error| failure::of("the tables of the effects could not be made", &error))
}

/// One operation on one connection; `work` is what its kind of operation asks for.
struct Run<'c, F, E> {
    connection: &'c mut Connection,
    effects: &'c SqliteEffects,
    work: Option<F>,
    failure: PhantomData<fn() -> E>,
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>, Error> {
    let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    begun.map_err(|error| failure::of("the transaction could not begin", &error))
}

/// Runs the work and stores its response.
fn effect<E>(
    tx: &Transaction<'_>,
    lease: &Lease,
    key: &Key,
    rules: &Rules,
    work: impl FnOnce(&SqliteTx<'_>) -> Result<Value, E>,
) -> Result<Answer, NotDone<E>> {
    let pass = lease.pass();
    let begun_us = clock::boot_us();
    let response = work(&SqliteTx::new(tx, &pass, key)).map_err(NotDone::Effect)?;
    lease.check().map_err(NotDone::Lost)?;
    if u128::from(clock::boot_us().saturating_sub(begun_us)) > rules.limit().as_micros() {
        return Err(NotDone::TooLong(rules.limit()));
    }
    if !step::complete(tx, &pass, key, &response, rules.kept_us())? {
        return Err(resolved(key).into());
    }
    Ok(Answer { response, replayed: false, token: pass.token })
}

fn commit<E>(tx: Transaction<'_>, hook: &Hook) -> Result<(), NotDone<E>> {
    hook.reach_blocking(Point::BeforeCommit);
    tx.commit().map_err(|error| failure::of_commit(&error))?;
    hook.reach_blocking(Point::Committed);
    Ok(())
}

impl<F: Send, E: Send> Session for Run<'_, F, E> {
    type Failure = E;

    async fn look(&mut self, key: &Key) -> Result<Option<Record>, Error> {
        table::read(self.connection, key)
    }

    async fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.effects.fence.seal(self.connection, pass)
    }
}

impl<F, E> Local for Run<'_, F, E>
where
    F: FnOnce(&SqliteTx<'_>) -> Result<Value, E> + Send,
    E: Send,
{
    async fn attempt(&mut self, lease: &Lease, key: &Key, request: &Request) -> Result<Attempt, NotDone<E>> {
        let SqliteEffects { common: Common { rules, hook, .. }, fence } = self.effects;
        let Some(work) = self.work.take() else { return Err(once()) };
        hook.reach(Point::BeforeCheck).await;
        let tx = begin(self.connection)?;
        fence.check(&tx, &lease.pass())?;
        if !step::insert(&tx, &lease.pass(), key, request)? {
            return Ok(Attempt::Twin);
        }
        hook.reach_blocking(Point::Inserted);
        let answer = effect(&tx, lease, key, rules, work)?;
        commit(tx, hook)?;
        Ok(Attempt::Done(answer))
    }
}

impl<F, E> FarSession for Run<'_, F, E>
where
    F: FnOnce(&SqliteTx<'_>, Value) -> Result<Value, E> + Send,
    E: Send,
{
    async fn take(&mut self, pass: &Pass, key: &Key, request: &Request) -> Result<Taken, NotAdmitted> {
        let tx = begin(self.connection)?;
        self.effects.fence.check(&tx, pass)?;
        let taken = if step::insert(&tx, pass, key, request)? {
            Taken::Fresh
        } else {
            let record = table::read(&tx, key)?.ok_or_else(|| corrupt("a key is there and is not"))?;
            let same = record.fingerprint == *request.fingerprint();
            let over = same && record.state == State::Started && step::take_over(&tx, pass, key)?;
            if over { Taken::Over } else { Taken::Theirs(Box::new(record)) }
        };
        tx.commit().map_err(|error| failure::of_commit(&error))?;
        Ok(taken)
    }

    async fn finish(&mut self, lease: &Lease, key: &Key, far: Value) -> Result<Answer, NotDone<E>> {
        let SqliteEffects { common: Common { rules, hook, .. }, fence } = self.effects;
        let Some(finish) = self.work.take() else { return Err(once()) };
        let tx = begin(self.connection)?;
        fence.check(&tx, &lease.pass())?;
        let answer = effect(&tx, lease, key, rules, |tx| finish(tx, far))?;
        commit(tx, hook)?;
        Ok(answer)
    }

    async fn leave(&mut self, pass: &Pass, key: &Key, how: Far<'_>) -> Result<(), NotAdmitted> {
        let tx = begin(self.connection)?;
        self.effects.fence.check(&tx, pass)?;
        match how {
            Far::Park(note) => step::park(&tx, pass, key, note)?,
            Far::Forget => step::forget(&tx, pass, key)?,
        };
        tx.commit().map_err(|error| failure::of_commit(&error).into())
    }
}

fn once<E>() -> NotDone<E> {
    Error::new(Kind::Invalid, "an operation is carried out once").into()
}

//! Operations whose data live in a PostgreSQL database.

mod bell;
mod failure;
mod ledger;
mod session;
mod statements;
mod tx;

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc};

use leasehold_core::{Error, Invalid, Kind};
use serde_json::Value;
use tokio_postgres::{Client, IsolationLevel, Transaction};

pub(super) use ledger::PostgresLedger;
pub use tx::PostgresTx;

#[cfg(feature = "failpoints")]
use super::failpoint::Hook;
use super::{
    answer::NotDone,
    compensate,
    durability::Durability,
    external::{Provider, Working},
    flow::Common,
    key::{Key, Request},
    record::{Answer, Record, signed},
    rules::Rules,
};
use crate::{
    Lease, Leases,
    address::Address,
    coordinator::postgres::Options,
    fence::postgres::{self as fence, PostgresFence, SCHEMA},
};
use session::Run;
use statements::Statements;

const TABLES: &str = include_str!("sql/effects.sql");

/// What a role that runs operations needs beside the fence.
const GRANT: &str = "
GRANT SELECT, INSERT, UPDATE, DELETE ON %schema%.idempotency TO %role%;
GRANT SELECT, INSERT ON %schema%.outbox, %schema%.inbox TO %role%;
";

/// The statements that make the fence and the effects in `schema`, to be run by whoever will own them, in one transaction. They
/// may be run again. `roles` are those that run operations.
///
/// # Errors
/// [`Invalid`] for a schema with a character that means something inside SQL's own quotes.
pub fn script(schema: &str, roles: &[&str]) -> Result<String, Invalid> {
    let mut script = fence::script(schema, false, roles)?;
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    script.push_str(&TABLES.replace("%schema%", &quoted(schema)));
    for role in roles {
        // Split, not replaced: a role may be called anything.
        let parts: Vec<String> =
            GRANT.split("%role%").map(|part| part.replace("%schema%", &quoted(schema))).collect();
        script.push_str(&parts.join(&quoted(role)));
    }
    Ok(script)
}

/// Whoever installs holds this, in its transaction: two at once take turns, with whoever installs the fence alone too.
const TURN: &str = "SELECT pg_advisory_xact_lock(hashtext('leasehold fence'))";

/// The same statements as one transaction, for the schema that the URL names.
pub(super) fn whole_script(address: &Address, roles: &[&str]) -> Result<String, Error> {
    let script = script(&Options::read(address)?.schema, roles)?;
    Ok(format!("BEGIN;\n{TURN};\n{script}COMMIT;\n"))
}

/// Operations that happen once, in the caller's PostgreSQL database.
///
/// ```no_run
/// # async fn example(mut db: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Leases, effects::{Key, Request, Rules, postgres::PostgresEffects}};
/// use serde_json::json;
///
/// let leases = Leases::connect("postgres://app@db/shop").await?;
/// let effects = PostgresEffects::new(&leases, Rules::default())?;
///
/// let body = br#"{"account": 7, "amount": 30}"#;
/// let (key, request) = (Key::new("withdrawals", "b7c1")?, Request::new("accounts/7", body)?);
/// let answer = effects.run(&mut db, &key, &request, |tx| Box::pin(async move {
///     tx.execute("UPDATE account SET balance = balance - 30 WHERE id = 7", &[]).await?;
///     tx.emit("account.withdrawn", &json!({"account": 7, "amount": 30})).await?;
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(json!({"withdrawn": 30}))
/// })).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresEffects {
    common: Common,
    fence: PostgresFence,
    schema: String,
    level: IsolationLevel,
    statements: Arc<Statements>,
}

impl PostgresEffects {
    /// What an answer of these operations is worth.
    pub const DURABILITY: Durability = Durability::Committed;

    /// Operations under leases of this client, with tables in the schema `leasehold`, at `READ COMMITTED`.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for rules that do not fit together; it then shows the figures.
    pub fn new(leases: &Leases, rules: Rules) -> Result<Self, Error> {
        Ok(Self {
            common: Common::new(leases, rules)?,
            fence: PostgresFence::default(),
            schema: SCHEMA.to_owned(),
            level: IsolationLevel::ReadCommitted,
            statements: Arc::new(Statements::of(SCHEMA)),
        })
    }

    /// With the tables of this schema, and a fence of its own policy there.
    #[must_use]
    pub fn schema(mut self, schema: &str, policy: crate::fence::Policy) -> Self {
        self.fence = PostgresFence::new(policy, schema);
        self.statements = Arc::new(Statements::of(schema));
        schema.clone_into(&mut self.schema);
        self
    }

    /// With transactions at this level. What the work reads is as consistent as the level says; once and in order it happens at
    /// every level. At the stricter ones expect [`Kind::Unavailable`] and ask again.
    #[must_use]
    pub fn isolation(mut self, level: IsolationLevel) -> Self {
        self.level = level;
        self
    }

    /// Stops, or ends, operations where a test wants it.
    #[cfg(feature = "failpoints")]
    #[must_use]
    pub fn failing(mut self, hook: Hook) -> Self {
        self.common.hook = hook;
        self
    }

    /// Makes the tables of fence and effects, or brings them up to date; as `leasehold effects install` does. `roles` run
    /// operations and own nothing.
    ///
    /// # Errors
    /// [`Kind::Denied`] where the role may not; what the server says.
    pub async fn install(&self, client: &mut Client, roles: &[&str]) -> Result<(), Error> {
        install(client, &script(&self.schema, roles)?).await
    }

    /// Carries the operation out, unless it was carried out before: then gives the stored answer.
    ///
    /// `work` runs in one transaction with the key, the events and the response it returns. It may run and be rolled back; what
    /// it does outside of the transaction is not undone.
    ///
    /// **Guarantee.** For one key, effects, events and the response are committed together, and once, for as long as the key is
    /// [kept](super::Keep); whatever processes crash, stall or lose their leases, and whatever the coordinator forgets.
    ///
    /// **Cancel safety.** Dropping the future rolls back, unless the commit is under way: then the key knows.
    ///
    /// # Errors
    /// [`NotDone`] says what it means for the effect. After [`Kind::Unknown`] the connection is of no more use: ask again with
    /// the same key on another one.
    pub async fn run<F, E: Send>(
        &self,
        client: &mut Client,
        key: &Key,
        request: &Request,
        work: F,
    ) -> Result<Answer, NotDone<E>>
    where
        F: for<'t> FnOnce(&'t PostgresTx<'t>) -> Working<'t, Value, E> + Send,
    {
        let mut session = Run { client, effects: self, work: Some(work), failure: PhantomData };
        self.common.execute(&mut session, key, request).await
    }

    /// The same under a lease that the caller has, and keeps.
    ///
    /// # Errors
    /// As [`PostgresEffects::run`]; [`Kind::Invalid`] for the lease of another resource.
    pub async fn run_under<F, E: Send>(
        &self,
        lease: &Lease,
        client: &mut Client,
        key: &Key,
        request: &Request,
        work: F,
    ) -> Result<Answer, NotDone<E>>
    where
        F: for<'t> FnOnce(&'t PostgresTx<'t>) -> Working<'t, Value, E> + Send,
    {
        let mut session = Run { client, effects: self, work: Some(work), failure: PhantomData };
        self.common.execute_under(&mut session, lease, key, request).await
    }

    /// Carries out an operation whose effect is at a [`Provider`]; see [the guide](super::external).
    ///
    /// `finish` runs in the transaction that stores what the provider has answered: for rows and events of one's own. What it
    /// returns is the response.
    ///
    /// # Errors
    /// As [`PostgresEffects::run`], and [`NotDone::Unsettled`] where a person must find out.
    pub async fn call<P, F, E: Send>(
        &self,
        client: &mut Client,
        key: &Key,
        request: &Request,
        provider: &P,
        finish: F,
    ) -> Result<Answer, NotDone<E>>
    where
        P: Provider,
        F: for<'t> FnOnce(&'t PostgresTx<'t>, Value) -> Working<'t, Value, E> + Send,
    {
        let mut session = Run { client, effects: self, work: Some(finish), failure: PhantomData };
        self.common.call(&mut session, provider, key, request).await
    }

    /// Undoes an operation that is done, or needs reconciliation: once, however often it is called, as an operation under
    /// [`Key::undoing`], with lease and fence.
    ///
    /// # Errors
    /// As [`PostgresEffects::run`]; [`Kind::Invalid`] for what never happened, [`Kind::Unsupported`] for a scope without compensation,
    /// [`NotDone::Unsettled`] for what is still under way.
    pub async fn compensate(
        &self,
        client: &mut Client,
        compensations: &Compensations,
        key: &Key,
    ) -> Result<Answer, NotDone<Error>> {
        let undo = compensations.0.get(key.scope()).ok_or_else(|| compensate::unknown(key))?;
        let (record, undoing, request) = compensate::request(self.read(client, key).await?, key)?;
        let undo = Arc::clone(undo);
        self.run(client, &undoing, &request, |tx| Box::pin(async move { undo(tx, &record).await })).await
    }

    /// What is remembered under a key.
    ///
    /// # Errors
    /// What the server says.
    pub async fn look(&self, client: &Client, key: &Key) -> Result<Option<Record>, Error> {
        self.read(client, key).await
    }

    /// Forgets keys that are done and whose time is over, by the server's clock; how many.
    ///
    /// # Errors
    /// What the server says.
    pub async fn purge(&self, client: &Client) -> Result<u64, Error> {
        ledger::purge(client, &self.statements.schema).await
    }

    /// Does a consumer see this event for the first time? To be asked in the transaction that acts on it: `false` means that it
    /// was acted on before.
    ///
    /// # Errors
    /// What the server says.
    pub async fn receive(&self, tx: &Transaction<'_>, source: &str, event_id: u64) -> Result<bool, Error> {
        let sql = format!(
            "INSERT INTO {}.inbox (source, event_id) VALUES ($1::text, $2::int8) ON CONFLICT DO NOTHING",
            self.statements.schema
        );
        let noted = tx.execute(&sql, &[&source, &signed(event_id)]).await;
        Ok(noted.map_err(|error| failure::of("the event could not be noted in the inbox", &error))? == 1)
    }
}

/// What undoes an operation of a scope.
type Undo = dyn for<'t> Fn(&'t PostgresTx<'t>, &'t Record) -> Working<'t, Value, Error> + Send + Sync;

/// What undoes which operations, by their scopes.
#[derive(Clone, Default)]
pub struct Compensations(BTreeMap<String, Arc<Undo>>);

impl Compensations {
    /// Operations of `scope` are undone by `undo`, which gets what is remembered of the one to undo, its response included. What
    /// it returns is the response of the undoing.
    #[must_use]
    pub fn on<F>(mut self, scope: &str, undo: F) -> Self
    where
        F: for<'t> Fn(&'t PostgresTx<'t>, &'t Record) -> Working<'t, Value, Error> + Send + Sync + 'static,
    {
        self.0.insert(scope.to_owned(), Arc::new(undo));
        self
    }
}

impl std::fmt::Debug for Compensations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

async fn install(client: &mut Client, script: &str) -> Result<(), Error> {
    let failed = |error: tokio_postgres::Error| {
        let told = failure::of("the tables of the effects could not be made", &error);
        match told.kind() {
            Kind::Denied => {
                told.advise("install with a role that may make schemas, as the owner of the fence")
            }
            _ => told,
        }
    };
    let tx = client.transaction().await.map_err(failed)?;
    tx.batch_execute(TURN).await.map_err(failed)?;
    tx.batch_execute(script).await.map_err(failed)?;
    tx.commit().await.map_err(|error| failure::of_commit(&error))
}

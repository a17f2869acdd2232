//! The fence in a SQLite database: inside the caller's own transaction, or in a file of its own.
//!
//! The transaction is what makes check and write one step. SQLite lets one transaction write at a time, so that a successor's
//! seal either comes before the check, which then refuses, or waits until the write is committed.

mod failure;
mod store;
mod table;

use leasehold_core::{
    Error, Label, Namespace, Resource, Token,
    fence::{Ask, Mark, Pass, judge, raised},
};
pub use rusqlite;
use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use store::SqliteStore;

use super::{NotAdmitted, Policy, answer::refuse};
use crate::clock;

/// What the caller's database is called in messages: only the caller knows where it is.
const PLACE: &str = "the table leasehold_fence";

/// A fence in the caller's database, in the table `leasehold_fence`, beside the data that it protects.
///
/// ```
/// use leasehold::fence::{Pass, sqlite::{SqliteFence, rusqlite::{Connection, TransactionBehavior}}};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("app.db");
/// # fn pass() -> Result<Pass, leasehold::Invalid> {
/// #     Ok(Pass::new(leasehold::Namespace::default(), leasehold::Resource::new("orders/42")?, leasehold::Token::new(7)?, "00".repeat(16).parse()?))
/// # }
/// let fence = SqliteFence::default();
/// let mut db = Connection::open(path)?;
/// fence.install(&db)?;
/// db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)", [])?;
///
/// let pass = pass()?; // `lease.pass()` in a real program
/// fence.seal(&mut db, &pass)?; // before anything is read
///
/// let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// fence.check(&tx, &pass)?; // `?` leaves, and the dropped transaction is rolled back
/// tx.execute("INSERT INTO orders VALUES (42, 'paid')", [])?;
/// tx.commit()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SqliteFence {
    policy: Policy,
}

impl SqliteFence {
    /// A fence with a policy of its own.
    pub fn new(policy: Policy) -> Self {
        Self { policy }
    }

    /// Makes the table where it is missing. It must be in the database file of the data: a transaction over several attached
    /// files is not atomic in write-ahead mode.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn install(&self, connection: &Connection) -> Result<(), Error> {
        table::create(connection)
            .map_err(|error| failure::from_sql("cannot make the table leasehold_fence", &error))
    }

    /// The statements that [`SqliteFence::install`] runs.
    #[cfg(feature = "effects")]
    pub(crate) const fn script() -> &'static str {
        table::TABLE
    }

    /// Shuts every older grant out, in a transaction of its own: before the new holder reads anything.
    ///
    /// # Errors
    /// [`NotAdmitted`]: do not read, do not write.
    pub fn seal(&self, connection: &mut Connection, pass: &Pass) -> Result<(), NotAdmitted> {
        let failed = |error| failure::from_sql("the fence cannot be sealed now", &error).on(&pass.resource);
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        self.ask(&tx, pass, Ask::Seal)?;
        tx.commit().map_err(|error| failure::from_commit(&error).on(&pass.resource).into())
    }

    /// Does a write of this transaction count? What is remembered is part of the transaction, and so is every write after
    /// this call: leave by `?` and it is rolled back.
    ///
    /// Begin the transaction as `IMMEDIATE`; a deferred one is safe too, but fails when it comes to write and another has
    /// written since.
    ///
    /// # Errors
    /// [`NotAdmitted`]: roll back.
    pub fn check(&self, tx: &Transaction<'_>, pass: &Pass) -> Result<(), NotAdmitted> {
        self.ask(tx, pass, Ask::Write)
    }

    /// As [`SqliteFence::check`], and seals a resource that the fence has never seen.
    ///
    /// # Errors
    /// [`NotAdmitted`]: roll back.
    pub fn enter(&self, tx: &Transaction<'_>, pass: &Pass) -> Result<(), NotAdmitted> {
        self.ask(tx, pass, Ask::Enter)
    }

    fn ask(&self, tx: &Transaction<'_>, pass: &Pass, ask: Ask) -> Result<(), NotAdmitted> {
        let now_us = clock::unix_us();
        let judged = self.policy.judge(pass, now_us);
        judged.map_err(|refusal| refuse(PLACE, pass, refusal))?;
        step(tx, pass, ask, now_us)?.map_err(|refusal| refuse(PLACE, pass, refusal))
    }

    /// What the fence remembers of a resource.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn look(
        &self,
        connection: &Connection,
        namespace: &Namespace,
        resource: &Resource,
    ) -> Result<Option<Mark>, Error> {
        table::read(connection, namespace, resource).map_err(|failure| failure.error().on(resource))
    }

    /// Raises the highest token by hand, never lowers it; what is remembered now.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn raise(
        &self,
        tx: &Transaction<'_>,
        namespace: &Namespace,
        resource: &Resource,
        token: Token,
        by: &Label,
    ) -> Result<Mark, Error> {
        lift(tx, namespace, resource, token, by)
    }
}

/// One judgement inside a transaction.
fn step(
    tx: &Transaction<'_>,
    pass: &Pass,
    ask: Ask,
    now_us: u64,
) -> Result<Result<(), leasehold_core::fence::Refusal>, Error> {
    let failed = |failure: failure::Failure| failure.error().on(&pass.resource);
    let stored = table::read(tx, &pass.namespace, &pass.resource).map_err(failed)?;
    let mark = match judge(stored.as_ref(), pass, ask) {
        Ok(mark) => mark,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if stored.as_ref() != Some(&mark) {
        table::write(tx, &pass.namespace, &pass.resource, &mark, now_us).map_err(failed)?;
    }
    Ok(Ok(()))
}

/// One raise inside a transaction.
fn lift(
    tx: &Transaction<'_>,
    namespace: &Namespace,
    resource: &Resource,
    token: Token,
    by: &Label,
) -> Result<Mark, Error> {
    let failed = |failure: failure::Failure| failure.error().on(resource);
    let stored = table::read(tx, namespace, resource).map_err(failed)?;
    let mark = raised(stored.as_ref(), token, by);
    if stored.as_ref() != Some(&mark) {
        table::write(tx, namespace, resource, &mark, clock::unix_us()).map_err(failed)?;
    }
    Ok(mark)
}

//! The fence inside transactions that sqlx has opened.

use leasehold_core::{
    Error, Kind,
    fence::{Ask, Pass, Verdict},
};
use sqlx::{Connection as _, Executor as _, PgConnection, Postgres, Row as _, Transaction, postgres::PgRow};

use super::{
    PostgresFence,
    answer::{Answer, Shown},
    failure,
};
use crate::fence::NotAdmitted;

/// A [`PostgresFence`] for sqlx.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, lease: leasehold::Lease) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::fence::postgres::SqlxFence;
///
/// let fence = SqlxFence::default();
/// fence.seal(&mut *pool.acquire().await?, &lease.pass()).await?; // before anything is read
///
/// let mut tx = pool.begin().await?;
/// fence.check(&mut tx, &lease.pass()).await?; // `?` leaves, and the dropped transaction is rolled back
/// sqlx::query("UPDATE orders SET state = 'paid' WHERE id = 42").execute(&mut *tx).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SqlxFence(PostgresFence);

impl From<PostgresFence> for SqlxFence {
    fn from(fence: PostgresFence) -> Self {
        Self(fence)
    }
}

impl SqlxFence {
    /// As [`PostgresFence::seal`]. The connection must not be in a transaction.
    ///
    /// # Errors
    /// As there.
    pub async fn seal(&self, connection: &mut PgConnection, pass: &Pass) -> Result<(), NotAdmitted> {
        self.0.judge(pass)?;
        let failed = |error: sqlx::Error| of_sqlx(&error).on(&pass.resource);
        let mut tx =
            connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await.map_err(failed)?;
        tx.execute("SET LOCAL synchronous_commit = 'on'").await.map_err(failed)?;
        let verdict = self.ask(&mut tx, pass, Ask::Seal).await?;
        self.0.conclude(pass, verdict)?;
        tx.commit().await.map_err(|error| of_commit(&error).on(&pass.resource).into())
    }

    /// As [`PostgresFence::check`].
    ///
    /// # Errors
    /// As there.
    pub async fn check(&self, tx: &mut Transaction<'_, Postgres>, pass: &Pass) -> Result<(), NotAdmitted> {
        self.enforce(tx, pass, Ask::Write).await
    }

    /// As [`PostgresFence::enter`].
    ///
    /// # Errors
    /// As there.
    pub async fn enter(&self, tx: &mut Transaction<'_, Postgres>, pass: &Pass) -> Result<(), NotAdmitted> {
        self.enforce(tx, pass, Ask::Enter).await
    }

    /// As [`PostgresFence::strict`].
    ///
    /// # Errors
    /// As there.
    pub async fn strict(&self, tx: &mut Transaction<'_, Postgres>, pass: &Pass) -> Result<(), NotAdmitted> {
        self.spoil(tx, self.0.judge(pass)).await?;
        let Shown { namespace, resource, token, lease_id, holder, .. } = Shown::of(pass, Ask::Write);
        let statements = std::sync::Arc::clone(&self.0.statements);
        let query = sqlx::query(&statements.strict).bind(namespace).bind(resource).bind(token);
        let row = query.bind(lease_id).bind(holder).fetch_one(&mut **tx).await;
        let row = row.map_err(|error| of_sqlx(&error).on(&pass.resource))?;
        let judged = self.0.conclude(pass, read(&row)?.verdict()?);
        self.spoil(tx, judged).await
    }

    async fn enforce(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        pass: &Pass,
        ask: Ask,
    ) -> Result<(), NotAdmitted> {
        self.spoil(tx, self.0.judge(pass)).await?;
        let verdict = self.ask(tx, pass, ask).await?;
        self.spoil(tx, self.0.conclude(pass, verdict)).await
    }

    async fn spoil(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        judged: Result<(), NotAdmitted>,
    ) -> Result<(), NotAdmitted> {
        if judged.is_err() {
            // It fails: that is its purpose.
            let _ = tx.execute(self.0.statements.refuse.as_str()).await;
        }
        judged
    }

    async fn ask(&self, tx: &mut Transaction<'_, Postgres>, pass: &Pass, ask: Ask) -> Result<Verdict, Error> {
        let Shown { ask, namespace, resource, token, lease_id, op_seq, holder } = Shown::of(pass, ask);
        let query = sqlx::query(&self.0.statements.ask).bind(ask).bind(namespace).bind(resource).bind(token);
        let row = query.bind(lease_id).bind(op_seq).bind(holder).fetch_one(&mut **tx).await;
        read(&row.map_err(|error| of_sqlx(&error).on(&pass.resource))?)?.verdict()
    }
}

fn read(row: &PgRow) -> Result<Answer, Error> {
    let read = || -> Result<Answer, sqlx::Error> {
        Ok(Answer {
            word: row.try_get(0)?,
            token: row.try_get(1)?,
            lease_id: row.try_get(2)?,
            op_seq: row.try_get(3)?,
            holder: row.try_get(4)?,
            max_token: row.try_get(5)?,
        })
    };
    read()
        .map_err(|_| Error::new(Kind::Corrupt, "the fence's answer is none").advise("install the fence anew"))
}

fn of_sqlx(error: &sqlx::Error) -> Error {
    match error.as_database_error() {
        Some(db) => failure::of_statement(db.code().as_deref(), db.message()),
        None => failure::of_statement(None, &error.to_string()),
    }
}

fn of_commit(error: &sqlx::Error) -> Error {
    match error.as_database_error() {
        Some(_) => of_sqlx(error),
        None => {
            Error::new(Kind::Unknown, format!("the connection ended before the commit was answered: {error}"))
        }
    }
}

//! The fence inside transactions that tokio-postgres has opened.

use std::sync::Arc;

use leasehold_core::{
    Error, Kind,
    fence::{Ask, Pass, Verdict},
};
use tokio_postgres::{Client, IsolationLevel, Row, Transaction, error::SqlState, types::ToSql};

use super::{
    SCHEMA,
    answer::{Answer, Shown, Statements},
    failure, script,
};
use crate::{
    clock,
    fence::{NotAdmitted, Policy, answer::refuse},
};

/// A fence in a PostgreSQL database, beside the data that it protects.
///
/// ```no_run
/// # async fn example(mut client: tokio_postgres::Client, lease: leasehold::Lease) -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::fence::postgres::PostgresFence;
///
/// let fence = PostgresFence::default();
/// fence.install(&mut client, false).await?; // once, as `leasehold fence install` does
///
/// fence.seal(&mut client, &lease.pass()).await?; // before anything is read
///
/// let tx = client.transaction().await?;
/// fence.check(&tx, &lease.pass()).await?; // `?` leaves, and the dropped transaction is rolled back
/// tx.execute("UPDATE orders SET state = 'paid' WHERE id = 42", &[]).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresFence {
    policy: Policy,
    schema: String,
    place: String,
    pub(super) statements: Arc<Statements>,
}

impl Default for PostgresFence {
    fn default() -> Self {
        Self::new(Policy::default(), SCHEMA)
    }
}

impl PostgresFence {
    /// A fence in another schema, or with a policy of its own.
    pub fn new(policy: Policy, schema: &str) -> Self {
        Self {
            policy,
            schema: schema.to_owned(),
            place: format!("the table {schema}.fence"),
            statements: Arc::new(Statements::of(schema)),
        }
    }

    /// Makes the fence, or brings it up to date. With `strict` also what looks at the lease itself.
    ///
    /// # Errors
    /// [`Kind::Denied`] where this role may not, and what the server says.
    pub async fn install(&self, client: &mut Client, strict: bool) -> Result<(), Error> {
        install(client, &script(&self.schema, strict, &[])?, strict).await
    }

    /// Shuts every older grant out, in a committed transaction of its own: before the new holder reads anything. Waits for
    /// transactions that were admitted before it.
    ///
    /// **Cancel safety.** Dropping the future leaves a seal that may or may not have been set; set it again.
    ///
    /// # Errors
    /// [`NotAdmitted`]: do not read, do not write.
    pub async fn seal(&self, client: &mut Client, pass: &Pass) -> Result<(), NotAdmitted> {
        self.judge(pass)?;
        let failed = |error: tokio_postgres::Error| failure::of_tokio(&error).on(&pass.resource);
        let begin =
            client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).read_only(false);
        let tx = begin.start().await.map_err(failed)?;
        // A seal that was answered must survive a crash, whatever the session's setting.
        tx.batch_execute("SET LOCAL synchronous_commit = 'on'").await.map_err(failed)?;
        let verdict = ask(&tx, &self.statements, pass, Ask::Seal).await?;
        self.conclude(pass, verdict)?;
        tx.commit().await.map_err(|error| failure::of_commit(&error).on(&pass.resource).into())
    }

    /// Does a write of this transaction count? Until the transaction ends, no later holder's seal is answered.
    ///
    /// When refused the transaction is spoilt as well: it cannot be committed, even by a caller who does not look.
    ///
    /// # Errors
    /// [`NotAdmitted`]: roll back. [`Kind::Unavailable`] with SQLSTATE 40001 in `REPEATABLE READ` and `SERIALIZABLE`: begin anew.
    pub async fn check(&self, tx: &Transaction<'_>, pass: &Pass) -> Result<(), NotAdmitted> {
        self.enforce(tx, pass, Ask::Write).await
    }

    /// As [`PostgresFence::check`], and seals a resource that the fence has never seen.
    ///
    /// # Errors
    /// As there.
    pub async fn enter(&self, tx: &Transaction<'_>, pass: &Pass) -> Result<(), NotAdmitted> {
        self.enforce(tx, pass, Ask::Enter).await
    }

    /// Does the lease itself stand, by the lease table in this database? Until the transaction ends the coordinator grants the
    /// resource to nobody else. Needs `leasehold fence install --strict`.
    ///
    /// # Errors
    /// [`NotAdmitted`], with [`leasehold_core::fence::Refusal::NotHeld`] for a lease that has ended or was revoked: roll back.
    pub async fn strict(&self, tx: &Transaction<'_>, pass: &Pass) -> Result<(), NotAdmitted> {
        self.spoil(tx, self.judge(pass)).await?;
        let Shown { namespace, resource, token, lease_id, holder, .. } = Shown::of(pass, Ask::Write);
        let rows =
            tx.query(&self.statements.strict, &[&namespace, &resource, &token, &lease_id, &holder]).await;
        let rows = rows.map_err(|error| failure::of_tokio(&error).on(&pass.resource))?;
        let judged = self.conclude(pass, read(&rows)?.verdict()?);
        self.spoil(tx, judged).await
    }

    async fn enforce(&self, tx: &Transaction<'_>, pass: &Pass, ask: Ask) -> Result<(), NotAdmitted> {
        self.spoil(tx, self.judge(pass)).await?;
        let verdict = self::ask(tx, &self.statements, pass, ask).await?;
        self.spoil(tx, self.conclude(pass, verdict)).await
    }

    /// Makes a transaction with a refusal in it fail.
    async fn spoil(&self, tx: &Transaction<'_>, judged: Result<(), NotAdmitted>) -> Result<(), NotAdmitted> {
        if judged.is_err() {
            // It fails: that is its purpose.
            let _ = tx.batch_execute(&self.statements.refuse).await;
        }
        judged
    }

    pub(super) fn judge(&self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.policy.judge(pass, clock::unix_us()).map_err(|refusal| refuse(&self.place, pass, refusal))
    }

    pub(super) fn conclude(&self, pass: &Pass, verdict: Verdict) -> Result<(), NotAdmitted> {
        match verdict {
            Verdict::Admitted => Ok(()),
            Verdict::Refused(refusal) => Err(refuse(&self.place, pass, refusal)),
        }
    }
}

pub(super) fn read(rows: &[Row]) -> Result<Answer, Error> {
    let read = |row: &Row| -> Result<Answer, tokio_postgres::Error> {
        Ok(Answer {
            word: row.try_get(0)?,
            token: row.try_get(1)?,
            lease_id: row.try_get(2)?,
            op_seq: row.try_get(3)?,
            holder: row.try_get(4)?,
            max_token: row.try_get(5)?,
        })
    };
    rows.first().and_then(|row| read(row).ok()).ok_or_else(|| {
        Error::new(Kind::Corrupt, "the fence's answer is none").advise("install the fence anew")
    })
}

/// Asks inside a transaction.
pub(super) async fn ask(
    tx: &Transaction<'_>,
    statements: &Statements,
    pass: &Pass,
    ask: Ask,
) -> Result<Verdict, Error> {
    let Shown { ask, namespace, resource, token, lease_id, op_seq, holder } = Shown::of(pass, ask);
    let parameters: [&(dyn ToSql + Sync); 7] =
        [&ask, &namespace, &resource, &token, &lease_id, &op_seq, &holder];
    let rows = tx.query(&statements.ask, &parameters).await;
    let rows = rows.map_err(|error| failure::of_tokio(&error).on(&pass.resource))?;
    read(&rows)?.verdict()
}

/// Runs the statements that make a fence.
pub(super) async fn install(client: &mut Client, script: &str, strict: bool) -> Result<(), Error> {
    let failed = |error: tokio_postgres::Error| {
        let missing = error.code() == Some(&SqlState::UNDEFINED_TABLE);
        match failure::of_tokio(&error) {
            told if strict && missing => told.advise(
                "strict mode looks at the lease table in the same schema: prepare it first, with `leasehold init` and this URL",
            ),
            told if told.kind() == Kind::Denied => told.advise("install with a role that may make schemas, as the owner of the fence"),
            told => told,
        }
    };
    let tx = client.transaction().await.map_err(failed)?;
    // Two who install at once take turns.
    tx.batch_execute("SELECT pg_advisory_xact_lock(hashtext('leasehold fence'))").await.map_err(failed)?;
    tx.batch_execute(script).await.map_err(failed)?;
    tx.commit().await.map_err(|error| failure::of_commit(&error))
}

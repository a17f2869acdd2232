//! Highest tokens in a PostgreSQL database, asked on their own: a transaction for each question.

use leasehold_core::{
    Call, Error, Kind, Label, Namespace, Resource, Token,
    fence::{Ask, Mark, Pass, Verdict},
};
use tokio_postgres::{Client, IsolationLevel, types::ToSql};

use super::{answer::Statements, failure, guard, identifier, script};
use crate::{
    address::Address,
    coordinator::postgres::{Asker, Dialler, Options},
    fence::{FenceStore, store::Work},
};

/// A seal waits for transactions that were admitted before it, for this long.
const LOCK_LIMIT: &str = "SET LOCAL lock_timeout = '10s'; SET LOCAL synchronous_commit = 'on'";
/// Highest tokens in the table `fence` of a schema.
#[derive(Debug)]
pub struct PostgresStore {
    asker: Asker<Table>,
}

#[derive(Debug)]
struct Table {
    statements: Statements,
    schema: String,
}

impl PostgresStore {
    /// Connects to a URL as a coordinator would be connected to; `schema=` is the fence's.
    ///
    /// # Errors
    /// As there. Whether the fence is installed shows at the first question.
    pub(crate) async fn connect(address: &Address) -> Result<Self, Error> {
        let options = Options::read(address)?;
        let dialler = Dialler::new(&options.target, identifier(&options.schema))?;
        let table = Table { statements: Statements::of(&options.schema), schema: options.schema };
        Ok(Self { asker: Asker::connect(address, dialler, table).await? })
    }

    /// Makes the fence, or brings it up to date.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn install(&self, strict: bool, roles: Vec<String>) -> Result<(), Error> {
        self.asker
            .run(move |client, table| {
                Box::pin(async move {
                    let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
                    guard::install(client, &script(&table.schema, strict, &roles)?, strict).await
                })
            })
            .await
    }
}

/// One judgement in a committed transaction of its own; `work` is done between the answer and the commit.
async fn step(
    client: &mut Client,
    statements: &Statements,
    pass: &Pass,
    ask: Ask,
    work: Option<Work>,
) -> Result<Verdict, Error> {
    let failed = |error: tokio_postgres::Error| failure::of_tokio(&error);
    let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).read_only(false);
    let tx = tx.start().await.map_err(failed)?;
    tx.batch_execute(LOCK_LIMIT).await.map_err(failed)?;
    let verdict = guard::ask(&tx, statements, pass, ask).await?;
    if let (Verdict::Admitted, Some(work)) = (&verdict, work) {
        work()?;
    }
    tx.commit().await.map_err(|error| failure::of_commit(&error))?;
    Ok(verdict)
}

impl FenceStore for PostgresStore {
    fn place(&self) -> &str {
        self.asker.place()
    }

    fn ask(&self, pass: Pass, ask: Ask) -> Call<'_, Verdict> {
        Box::pin(self.asker.run(move |client, table| {
            Box::pin(async move { step(client, &table.statements, &pass, ask, None).await })
        }))
    }

    fn look(&self, namespace: Namespace, resource: Resource) -> Call<'_, Option<Mark>> {
        Box::pin(self.asker.run(move |client, table| {
            Box::pin(async move {
                let parameters: [&(dyn ToSql + Sync); 2] = [&resource.as_str(), &namespace.as_str()];
                let row = client.query_opt(&table.statements.show, &parameters).await;
                let row = row.map_err(|error| failure::of_tokio(&error))?;
                row.map(|row| guard::read(&[row])?.mark()).transpose()
            })
        }))
    }

    fn raise(&self, namespace: Namespace, resource: Resource, token: Token, by: Label) -> Call<'_, Mark> {
        Box::pin(async move {
            let (space, name) = (namespace.clone(), resource.clone());
            self.asker
                .run(move |client, table| {
                    Box::pin(async move {
                        let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
                        let parameters: [&(dyn ToSql + Sync); 4] =
                            [&name.as_str(), &token, &space.as_str(), &by.as_str()];
                        let raised = client.query_one(&table.statements.raise, &parameters).await;
                        raised.map(drop).map_err(|error| failure::of_tokio(&error))
                    })
                })
                .await?;
            let mark = self.look(namespace, resource).await?;
            mark.ok_or_else(|| Error::new(Kind::Corrupt, "what was raised is not there"))
        })
    }

    fn refused(&self) -> Call<'_, u64> {
        Box::pin(self.asker.run(|client, table| {
            Box::pin(async move {
                let row = client.query_one(&table.statements.refused, &[]).await;
                let count: i64 =
                    row.and_then(|row| row.try_get(0)).map_err(|error| failure::of_tokio(&error))?;
                Ok(count.unsigned_abs())
            })
        }))
    }

    fn admit_and(&self, pass: Pass, work: Work) -> Call<'_, Verdict> {
        Box::pin(self.asker.run(move |client, table| {
            Box::pin(async move { step(client, &table.statements, &pass, Ask::Write, Some(work)).await })
        }))
    }
}

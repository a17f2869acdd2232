//! One connection, and the payments that are made on it: once as they should be, once as many write them first.

use std::time::Duration;

use leasehold::{
    Leases,
    effects::{
        Event, Key, NotDone, Request,
        postgres::PostgresEffects,
        sqlite::{self, SqliteEffects},
    },
    fence::sqlite::rusqlite::Connection,
};
use serde_json::json;
use tokio_postgres::Client;

use crate::{
    Failure,
    client::{PATIENCE, TTL},
    redis::Vault,
};

const CHARGE: &str = "INSERT INTO effect (key) VALUES ($1)";
const TELL: &str = "INSERT INTO told (key) VALUES ($1)";
/// A moment's work in the database: there is always something between two statements.
const WORK_FILE: &str =
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) SELECT count(*) FROM n";
const WORK_SERVER: &str = "SELECT count(*) FROM generate_series(1, 4000)";
/// What a process does by itself between two transactions.
pub(crate) const BETWEEN: Duration = Duration::from_millis(2);

/// A connection.
pub(crate) enum Teller {
    File { db: Connection, effects: SqliteEffects },
    Server { db: Client, effects: PostgresEffects },
    Redis(Vault),
}

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File { .. } => "Teller::File",
            Self::Server { .. } => "Teller::Server",
            Self::Redis(_) => "Teller::Redis",
        })
    }
}

impl Teller {
    /// A payment: charge and event in one transaction with the key. True when it had been made before.
    pub(crate) async fn pay(&mut self, number: u64) -> Result<bool, NotDone<Failure>> {
        let name = number.to_string();
        let key = Key::new("payments", &name).map_err(leasehold::Error::from)?;
        let request =
            Request::new(&account(number), format!("pay {name}")).map_err(leasehold::Error::from)?;
        let answer = match self {
            Self::File { db, effects } => {
                let work = |tx: &sqlite::SqliteTx<'_>| {
                    tx.execute(CHARGE, [&name])?;
                    tx.query_row(WORK_FILE, [], |_| Ok(()))?;
                    tx.emit("paid", &json!({"payment": name}))?;
                    Ok::<_, Failure>(json!({"paid": name}))
                };
                effects.run(db, &key, &request, work).await
            }
            Self::Server { db, effects } => {
                let name = &name;
                let ran = effects.run(db, &key, &request, |tx| {
                    let name = name.clone();
                    Box::pin(async move {
                        tx.execute(CHARGE, &[&name]).await?;
                        tx.query_one(WORK_SERVER, &[]).await?;
                        tx.emit("paid", &json!({"payment": name})).await?;
                        Ok::<_, Failure>(json!({"paid": name}))
                    })
                });
                ran.await
            }
            Self::Redis(vault) => return vault.pay(&name, &key, &request).await,
        };
        Ok(answer?.replayed)
    }

    /// The same as many write it first.
    pub(crate) async fn pay_naively(&mut self, leases: &Leases, number: u64) -> Result<bool, Failure> {
        let name = number.to_string();
        if self.has_seen(&name).await? {
            return Ok(true);
        }
        let lease = leases.lease(&account(number)).ttl(TTL).wait(PATIENCE).acquire().await?;
        if self.has_seen(&name).await? {
            let _ = lease.release().await?;
            return Ok(true);
        }
        lease.check()?;
        self.work().await?;
        self.charge(&name).await?;
        self.work().await?;
        self.see(&name).await?;
        self.work().await?;
        self.tell(&name).await?;
        let _ = lease.release().await?;
        Ok(false)
    }

    async fn has_seen(&self, name: &str) -> Result<bool, Failure> {
        match self {
            Self::Redis(vault) => vault.has_seen(name).await,
            _ => Ok(self.count("SELECT count(*) FROM seen WHERE key = $1", &[name]).await? > 0),
        }
    }

    async fn charge(&self, name: &str) -> Result<(), Failure> {
        match self {
            Self::Redis(vault) => vault.charge(name).await,
            _ => self.execute(CHARGE, name).await,
        }
    }

    async fn see(&self, name: &str) -> Result<(), Failure> {
        match self {
            Self::Redis(vault) => vault.see(name).await,
            _ => self.execute("INSERT INTO seen (key) VALUES ($1) ON CONFLICT DO NOTHING", name).await,
        }
    }

    async fn tell(&self, name: &str) -> Result<(), Failure> {
        match self {
            Self::Redis(vault) => vault.tell(name).await,
            _ => self.execute(TELL, name).await,
        }
    }

    async fn work(&self) -> Result<(), Failure> {
        match self {
            Self::File { .. } => self.count(WORK_FILE, &[]).await.map(drop)?,
            Self::Server { .. } => self.count(WORK_SERVER, &[]).await.map(drop)?,
            Self::Redis(vault) => vault.work().await?,
        }
        tokio::time::sleep(BETWEEN).await;
        Ok(())
    }

    /// What the consumer does with an event: acts on it, unless its inbox says that it has, in one transaction. False when it had.
    pub(crate) async fn receive(&mut self, source: &str, event: &Event) -> Result<bool, Failure> {
        let name = event.key.as_str().to_owned();
        match self {
            Self::File { db, .. } => {
                let tx = db.transaction_with_behavior(
                    leasehold::fence::sqlite::rusqlite::TransactionBehavior::Immediate,
                )?;
                let is_new = sqlite::receive(&tx, source, event.id)?;
                if is_new {
                    tx.execute(TELL, [&name])?;
                }
                tx.commit()?;
                Ok(is_new)
            }
            Self::Server { db, effects } => {
                let tx = db.transaction().await?;
                let is_new = effects.receive(&tx, source, event.id).await?;
                if is_new {
                    tx.execute(TELL, &[&name]).await?;
                }
                tx.commit().await?;
                Ok(is_new)
            }
            Self::Redis(vault) => vault.receive(source, event).await,
        }
    }

    /// How many keys are done; in the naive flow, were seen.
    pub(crate) async fn keys(&self, naive: bool) -> Result<i64, Failure> {
        let table = match self {
            Self::Redis(vault) => return vault.keys(naive).await,
            _ if naive => "seen",
            Self::File { .. } => "leasehold_idempotency WHERE state = 'done'",
            Self::Server { .. } => "idempotency WHERE state = 'done'",
        };
        self.count(&format!("SELECT count(*) FROM {table}"), &[]).await
    }

    /// How many rows `effect` or `told` has, and of how many payments.
    pub(crate) async fn count_of(&self, table: &str) -> Result<(i64, i64), Failure> {
        if let Self::Redis(vault) = self {
            return vault.count(table).await;
        }
        let number = async |what: &str| self.count(&format!("SELECT count({what}) FROM {table}"), &[]).await;
        Ok((number("*").await?, number("DISTINCT key").await?))
    }

    async fn execute(&self, sql: &str, name: &str) -> Result<(), Failure> {
        match self {
            Self::File { db, .. } => db.execute(sql, [name]).map(drop)?,
            Self::Server { db, .. } => db.execute(sql, &[&name]).await.map(drop)?,
            Self::Redis(_) => return Err("Redis has no SQL".into()),
        }
        Ok(())
    }

    /// The number that a query gives.
    async fn count(&self, sql: &str, names: &[&str]) -> Result<i64, Failure> {
        Ok(match self {
            Self::File { db, .. } => {
                let names = leasehold::fence::sqlite::rusqlite::params_from_iter(names);
                db.query_row(sql, names, |row| row.get(0))?
            }
            Self::Server { db, .. } => {
                let names: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
                    names.iter().map(|name| name as _).collect();
                db.query_one(sql, &names).await?.get(0)
            }
            Self::Redis(_) => return Err("Redis has no SQL".into()),
        })
    }
}

fn account(number: u64) -> String {
    format!("accounts/{number}")
}

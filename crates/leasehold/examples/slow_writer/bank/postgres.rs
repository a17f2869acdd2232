//! The account in PostgreSQL: through tokio-postgres, or with nothing but `psql`.

use std::{error::Error, process::Command};

use leasehold::fence::{
    NotAdmitted, Pass,
    postgres::{PostgresFence, install},
};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use super::{Account, Bank};

const TABLES: &str = "DROP SCHEMA IF EXISTS slow_writer CASCADE; CREATE SCHEMA slow_writer;
    CREATE TABLE slow_writer.account (balance bigint NOT NULL); INSERT INTO slow_writer.account VALUES (100);
    CREATE TABLE slow_writer.history (n serial, line text NOT NULL); INSERT INTO slow_writer.history (line) VALUES ('nobody (100)')";
const BALANCE: &str = "SELECT balance FROM slow_writer.account";
const HISTORY: &str = "SELECT line FROM slow_writer.history ORDER BY n";

pub(crate) struct Database {
    runtime: Runtime,
    client: Client,
    fence: PostgresFence,
}

pub(crate) fn set_up(url: &str) -> Result<(), Box<dyn Error>> {
    leasehold::blocking::block_on(install(url, false, Vec::new()))?;
    let database = Database::open(url)?;
    Ok(database.runtime.block_on(database.client.batch_execute(TABLES))?)
}

impl Database {
    pub(crate) fn open(url: &str) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, tokio_postgres::Error>(client)
        })?;
        Ok(Self { runtime, client, fence: PostgresFence::default() })
    }
}

impl Bank for Database {
    fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.runtime.block_on(self.fence.seal(&mut self.client, pass))
    }

    fn account(&mut self) -> Result<Account, Box<dyn Error>> {
        let balance = self.runtime.block_on(self.client.query_one(BALANCE, &[]))?.try_get(0)?;
        let rows = self.runtime.block_on(self.client.query(HISTORY, &[]))?;
        let history = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        Ok(Account { balance, history })
    }

    fn write(&mut self, pass: &Pass, fenced: bool, balance: i64) -> Result<(), Box<dyn Error>> {
        let Self { runtime, client, fence } = self;
        runtime.block_on(async {
            let tx = client.transaction().await?;
            if fenced {
                fence.check(&tx, pass).await?;
            }
            tx.execute("UPDATE slow_writer.account SET balance = $1", &[&balance]).await?;
            let line = format!("{} ({balance})", pass.holder);
            tx.execute("INSERT INTO slow_writer.history (line) VALUES ($1)", &[&line]).await?;
            Ok(tx.commit().await?)
        })
    }
}

/// What a script in any language would send.
pub(crate) struct Psql(pub(crate) String);

impl Psql {
    fn run(&self, sql: &str) -> Result<String, Box<dyn Error>> {
        let flags = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.0, "-c", sql];
        let output = Command::new("psql").args(flags).output()?;
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout)?.trim().to_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().into())
    }

    fn arguments(pass: &Pass) -> String {
        format!("'{}', {}, '{}', holder => '{}'", pass.resource, pass.token, pass.lease_id, pass.holder)
    }
}

impl Bank for Psql {
    fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        let sealed = self.run(&format!("SELECT leasehold.fence_seal({})", Self::arguments(pass)));
        sealed
            .map(drop)
            .map_err(|error| leasehold::Error::new(leasehold::Kind::Unavailable, error.to_string()).into())
    }

    fn account(&mut self) -> Result<Account, Box<dyn Error>> {
        let history = self.run(HISTORY)?.lines().map(str::to_owned).collect();
        Ok(Account { balance: self.run(BALANCE)?.parse()?, history })
    }

    fn write(&mut self, pass: &Pass, fenced: bool, balance: i64) -> Result<(), Box<dyn Error>> {
        let check = if fenced {
            format!("SELECT leasehold.fence_check({});", Self::arguments(pass))
        } else {
            String::new()
        };
        let line = format!("{} ({balance})", pass.holder);
        self.run(&format!(
            "BEGIN; {check} UPDATE slow_writer.account SET balance = {balance}; \
             INSERT INTO slow_writer.history (line) VALUES ('{line}'); COMMIT"
        ))
        .map(drop)
    }
}

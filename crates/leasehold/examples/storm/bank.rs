//! Where the money is: the tables of the payments, beside those of the effects in one database.

use std::path::PathBuf;

use leasehold::{
    Leases, Namespace,
    core::request::Preparation,
    effects::{Ledger, Rules, postgres::PostgresEffects, sqlite::SqliteEffects},
    fence::{Policy, sqlite::rusqlite::Connection},
};
use tokio_postgres::{Client, NoTls};

use crate::{Failure, redis::Vault, teller::Teller};

/// The schema on PostgreSQL, the hash tag in Redis, and the namespace of the leases.
pub(crate) const NAME: &str = "storm";
/// Beyond the longest time for which a stopped process stands in the way.
const BUSY: std::time::Duration = std::time::Duration::from_secs(60);

/// `effect` is what a payment does, `seen` and `told` what the naive flow keeps of it; `told` is also what the consumer knows.
const TABLES: &str = "CREATE TABLE effect (key text NOT NULL); CREATE TABLE told (key text NOT NULL);
    CREATE TABLE seen (key text PRIMARY KEY);";

/// A database.
#[derive(Clone, Debug)]
pub(crate) enum Bank {
    File(PathBuf),
    Server(String),
    Redis(String),
}

impl Bank {
    /// Reads what [`Bank::url`] has written.
    pub(crate) fn parse(url: &str) -> Self {
        match url.strip_prefix("sqlite:") {
            Some(path) => Self::File(path.into()),
            None if url.starts_with("redis") => Self::Redis(url.to_owned()),
            None => Self::Server(url.to_owned()),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::File(path) => format!("sqlite:{}", path.display()),
            Self::Server(url) | Self::Redis(url) => url.clone(),
        }
    }

    /// Makes the tables, and the namespace of the leases at `leases_at`.
    pub(crate) async fn prepare(&self, leases_at: &str) -> Result<(), Failure> {
        let leases = connect(leases_at).await?;
        // Nobody else has ever had a lease there, unless it was another storm, and then it is long over.
        let prepared = leases.prepare(Preparation { fresh: true, max_ttl: None }).await;
        if let Err(error) = prepared
            && error.kind() != leasehold::Kind::Invalid
        {
            return Err(error.into());
        }
        match self {
            Self::File(path) => {
                let db = Connection::open(path)?;
                db.execute_batch("PRAGMA journal_mode = WAL")?;
                db.execute_batch(TABLES)?;
                SqliteEffects::new(&leases, Rules::default())?.install(&db)?;
            }
            Self::Server(url) => {
                let mut db = dial(url).await?;
                db.batch_execute(&format!("DROP SCHEMA IF EXISTS {NAME} CASCADE")).await?;
                server(&leases, Rules::default())?.install(&mut db, &[]).await?;
                db.batch_execute(TABLES).await?;
            }
            Self::Redis(url) => Vault::open(url, &leases, Rules::default()).await?.clear().await?,
        }
        Ok(())
    }

    /// The effects' tables, for the relay.
    pub(crate) async fn ledger(&self) -> Result<Ledger, Failure> {
        let with = |url: &str, setting: &str| {
            format!("{url}{}{setting}={NAME}", if url.contains('?') { '&' } else { '?' })
        };
        let url = match self {
            Self::File(_) => self.url(),
            Self::Server(url) => with(url, "schema"),
            Self::Redis(url) => with(url, "effects_tag"),
        };
        Ok(Ledger::connect(&url).await?)
    }

    /// A connection, with what runs payments on it.
    pub(crate) async fn open(&self, leases: &Leases, rules: Rules) -> Result<Teller, Failure> {
        Ok(match self {
            Self::File(path) => {
                let db = Connection::open(path)?;
                db.busy_timeout(BUSY)?;
                // Enough for a killed process; a killed machine is not what blows here.
                db.execute_batch("PRAGMA synchronous = NORMAL")?;
                Teller::File { db, effects: SqliteEffects::new(leases, rules)? }
            }
            Self::Server(url) => Teller::Server { db: dial(url).await?, effects: server(leases, rules)? },
            Self::Redis(url) => Teller::Redis(Vault::open(url, leases, rules).await?),
        })
    }
}

/// A client of the leases.
pub(crate) async fn connect(url: &str) -> Result<Leases, Failure> {
    Ok(Leases::builder(url).namespace(Namespace::new(NAME)?).connect().await?)
}

fn server(leases: &Leases, rules: Rules) -> Result<PostgresEffects, Failure> {
    Ok(PostgresEffects::new(leases, rules)?.schema(NAME, Policy::default()))
}

async fn dial(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {NAME}")).await?;
    Ok(client)
}

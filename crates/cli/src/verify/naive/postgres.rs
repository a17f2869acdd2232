//! The usual lease table in PostgreSQL, with the clock of the client. The table is the parent's to make and to remove.

use std::time::Duration;

use leasehold::{LeaseId, address::Address, clock};
use tokio_postgres::{Client, Config, NoTls, types::ToSql};

use super::{LIMIT, Taken, first_host};

const MAKE: &str = "CREATE TABLE IF NOT EXISTS leasehold_verify_textbook
    (namespace text, name text, holder text NOT NULL, expires_at bigint NOT NULL, PRIMARY KEY (namespace, name))";
const TAKE: &str =
    "INSERT INTO leasehold_verify_textbook AS lock VALUES ($1, $2, $3, $4::bigint + $5::bigint)
    ON CONFLICT (namespace, name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
    WHERE lock.expires_at < $4::bigint";
const GIVE_BACK: &str = "DELETE FROM leasehold_verify_textbook WHERE namespace = $1 AND name = $2";

pub(in crate::verify) struct Lock {
    client: Client,
    namespace: String,
}

impl Lock {
    pub(super) async fn open(address: &Address, namespace: &str) -> Result<Self, String> {
        let client = connect(address).await?;
        Ok(Self { client, namespace: namespace.to_owned() })
    }

    pub(super) async fn take(&mut self, resource: &str, id: LeaseId, ttl: Duration) -> Taken {
        let now_ms = i64::try_from(clock::unix_us() / 1_000).unwrap_or(i64::MAX);
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let id = id.to_string();
        let values: [&(dyn ToSql + Sync); 5] = [&self.namespace, &resource, &id, &now_ms, &ttl_ms];
        match tokio::time::timeout(LIMIT, self.client.execute(TAKE, &values)).await {
            Ok(Ok(1)) => Taken::Yes,
            Ok(Ok(_)) => Taken::No,
            _ => Taken::Lost,
        }
    }

    pub(super) async fn give_back(&mut self, resource: &str) {
        let values: [&(dyn ToSql + Sync); 2] = [&self.namespace, &resource];
        // A recipe that fails here lets the row expire.
        let _ = tokio::time::timeout(LIMIT, self.client.execute(GIVE_BACK, &values)).await;
    }
}

/// Makes the table.
pub(super) async fn prepare(address: &Address) -> Result<(), String> {
    connect(address).await?.batch_execute(MAKE).await.map_err(|error| refused(&error))
}

/// Removes what this run has made, and the table when nobody else uses it.
pub(super) async fn clean(address: &Address, namespace: &str) -> Result<(), String> {
    let client = connect(address).await?;
    let rows = "DELETE FROM leasehold_verify_textbook WHERE namespace = $1";
    client.execute(rows, &[&namespace]).await.map_err(|error| refused(&error))?;
    let left = client.query_one("SELECT count(*) FROM leasehold_verify_textbook", &[]).await;
    let left: i64 = left.map_err(|error| refused(&error))?.get(0);
    match left {
        0 => client
            .batch_execute("DROP TABLE leasehold_verify_textbook")
            .await
            .map_err(|error| refused(&error)),
        _ => Ok(()),
    }
}

async fn connect(address: &Address) -> Result<Client, String> {
    let (host, port) = first_host(address, 5_432)?;
    let mut config = Config::new();
    config.host(&host).port(port).connect_timeout(LIMIT);
    if let Some(user) = &address.user {
        config.user(user);
    }
    if let Some(password) = &address.password {
        config.password(password.reveal());
    }
    if !address.path.is_empty() {
        config.dbname(&address.path);
    }
    let (client, connection) = config.connect(NoTls).await.map_err(|error| refused(&error))?;
    tokio::spawn(async move {
        // Its end shows in what the client answers.
        let _ = connection.await;
    });
    Ok(client)
}

fn refused(error: &tokio_postgres::Error) -> String {
    format!("the textbook recipe cannot use PostgreSQL: {error}")
}

//! The fence of a PostgreSQL database, on a real server.

mod doors;
mod races;
mod rights;
mod strict;
mod trigger;

use std::sync::{Arc, Mutex, Weak};

use leasehold::fence::{Pass, postgres::PostgresFence};
use leasehold_testkit::server::Postgres;
use tokio_postgres::{Client, NoTls};

/// One server for all tests of this process, gone with the last of them.
fn server() -> Arc<Postgres> {
    static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock().unwrap();
    if let Some(server) = server.upgrade() {
        return server;
    }
    let started = Arc::new(Postgres::start().unwrap());
    *server = Arc::downgrade(&started);
    started
}

/// A database of its own, with the fence and a table of values.
struct Base {
    server: Arc<Postgres>,
    name: String,
}

impl Base {
    async fn new() -> Self {
        let server = server();
        let name = server.database().unwrap();
        let base = Self { server, name };
        let mut client = base.client().await;
        PostgresFence::default().install(&mut client, false).await.unwrap();
        let sql = "CREATE TABLE data (space text, name text, value text, PRIMARY KEY (space, name));
            CREATE TABLE account (version bigint NOT NULL, balance bigint NOT NULL); INSERT INTO account VALUES (0, 100);
            CREATE TABLE log (version bigint PRIMARY KEY, token bigint NOT NULL, op_seq bigint)";
        client.batch_execute(sql).await.unwrap();
        base
    }

    fn url(&self) -> String {
        self.server.url(&self.name)
    }

    async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// What psql prints; the error's text where it fails.
    fn psql(&self, sql: &str) -> Result<String, String> {
        self.server.psql(&self.name, sql).map_err(|error| error.to_string())
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The arguments of the SQL functions: resource, token, lease id.
fn arguments(pass: &Pass) -> String {
    format!("{}, {}, '{}'", quoted(pass.resource.as_str()), pass.token, pass.lease_id)
}

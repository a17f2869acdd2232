//! The usual lease table in SQLite, in a file of the run.

use std::{path::Path, time::Duration};

use leasehold::{
    LeaseId, clock,
    fence::sqlite::rusqlite::{Connection, params},
};

use super::{LIMIT, Taken};

const TABLE: &str = "PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS lock (name TEXT PRIMARY KEY, holder TEXT NOT NULL, expires_at INTEGER NOT NULL)";
const TAKE: &str = "INSERT INTO lock VALUES (?1, ?2, ?3 + ?4)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
    WHERE lock.expires_at < ?3";

pub(in crate::verify) struct Lock {
    connection: Connection,
}

impl Lock {
    pub(super) fn open(folder: &Path) -> Result<Self, String> {
        let open = || {
            let connection = Connection::open(folder.join("textbook.db"))?;
            connection.busy_timeout(LIMIT)?;
            connection.execute_batch(TABLE)?;
            Ok(connection)
        };
        let connection =
            open().map_err(|error: leasehold::fence::sqlite::rusqlite::Error| error.to_string())?;
        Ok(Self { connection })
    }

    pub(super) fn take(&mut self, resource: &str, id: LeaseId, ttl: Duration) -> Taken {
        let now_ms = i64::try_from(clock::unix_us() / 1_000).unwrap_or(i64::MAX);
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        match self.connection.execute(TAKE, params![resource, id.to_string(), now_ms, ttl_ms]) {
            Ok(1) => Taken::Yes,
            _ => Taken::No,
        }
    }

    pub(super) fn give_back(&mut self, resource: &str) {
        // A recipe that fails here lets the row expire.
        let _ = self.connection.execute("DELETE FROM lock WHERE name = ?1", params![resource]);
    }
}

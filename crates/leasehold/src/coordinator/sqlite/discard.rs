//! The end of a throwaway namespace: all its rows.

use leasehold_core::{Error, Namespace};
use std::path::Path;

use super::{Options, Reply, Request, SqliteCoordinator, apply::Step, failure::Failure, past, space::Lookup};

/// What belongs to one row of `slot` in other tables.
const BESIDE: [&str; 2] = ["DELETE FROM queue WHERE slot = ?1", "DELETE FROM observed WHERE slot = ?1"];

/// Removes all rows of a namespace from a file. How many there were.
///
/// # Errors
/// As [`SqliteCoordinator::open`]; when the file cannot be changed now.
pub(crate) async fn discard(path: &Path, namespace: &Namespace) -> Result<u64, Error> {
    let coordinator = SqliteCoordinator::open(path, namespace.clone(), Options::default())?;
    match coordinator.ask(Request::Discard).await? {
        Reply::Discarded(removed) => Ok(removed),
        _ => Err(coordinator.gone()),
    }
}

impl Step<'_> {
    pub(super) fn discard(&mut self) -> Result<u64, Failure> {
        let Some(space) = self.space_id()? else { return Ok(0) };
        let before = self.connection.total_changes();
        let rows: Vec<i64> = self
            .connection
            .prepare_cached("SELECT id FROM slot WHERE space = ?1")?
            .query_map([space], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for row in rows {
            for sql in BESIDE {
                self.connection.prepare_cached(sql)?.execute([row])?;
            }
            past::forget(self.connection, row)?;
        }
        self.connection.execute("DELETE FROM slot WHERE space = ?1", [space])?;
        self.connection.execute("DELETE FROM space WHERE id = ?1", [space])?;
        self.space = Lookup::Pending;
        Ok(self.connection.total_changes() - before)
    }
}

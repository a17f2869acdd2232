//! What the workers write to: two registers for each resource in one SQLite file. One is behind a fence; the other takes
//! whatever comes, and is the control.
//!
//! Each write and each seal is dated inside its transaction, of which SQLite lets one run at a time: the dates of a history
//! are then in the order in which things took effect, wherever a worker was stopped.

use std::{path::Path, time::Duration};

use leasehold::fence::{
    NotAdmitted, Pass,
    sqlite::{
        SqliteFence,
        rusqlite::{self, Connection, Transaction, TransactionBehavior, params},
    },
};
use leasehold_testkit::{check::What, clock::boot_ns};

use super::plan::CONTROL;

/// A worker that is stopped inside a step keeps the file locked; the others go without their write rather than wait for it.
const BUSY: Duration = Duration::from_millis(100);
/// The resource side is not what is tested: it need not survive a power cut, only the death of a worker.
const TABLE: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS register (name TEXT PRIMARY KEY, version INTEGER NOT NULL, token INTEGER NOT NULL) STRICT";

/// Both registers of every resource.
#[derive(Debug)]
pub(super) struct Registers {
    connection: Connection,
    fence: SqliteFence,
}

/// What happened in the register, when, and under which name.
pub(super) struct Entry {
    pub(super) at_ns: u64,
    pub(super) resource: String,
    pub(super) what: What,
}

impl Registers {
    /// Opens the file of a run, and makes it where it is missing.
    pub(super) fn open(folder: &Path) -> Result<Self, String> {
        let open = || {
            let connection = Connection::open(folder.join("register.db"))?;
            connection.busy_timeout(Duration::from_secs(30))?;
            connection.execute_batch(TABLE)?;
            Ok(connection)
        };
        let connection = open().map_err(|error: rusqlite::Error| format!("the register: {error}"))?;
        let fence = SqliteFence::default();
        fence.install(&connection).map_err(|error| error.to_string())?;
        connection.busy_timeout(BUSY).map_err(|error| format!("the register: {error}"))?;
        Ok(Self { connection, fence })
    }

    /// Shuts older holders out; `None` when the register is busy.
    pub(super) fn seal(&mut self, pass: &Pass) -> Option<Entry> {
        let name = pass.resource.as_str();
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).ok()?;
        let at_ns = boot_ns();
        // What `SqliteFence::seal` does, in a transaction that is dated; entering seals what was never seen.
        let admitted = admitted(&self.fence.enter(&tx, pass))?;
        let version = version(&tx, name)?;
        tx.commit().ok()?;
        let what = What::Sealed { token: pass.token, admitted, version };
        Some(Entry { at_ns, resource: name.to_owned(), what })
    }

    /// Writes through the fence; `None` when the register is busy.
    pub(super) fn write(&mut self, pass: &Pass) -> Option<Entry> {
        let name = pass.resource.as_str().to_owned();
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).ok()?;
        let at_ns = boot_ns();
        let admitted = admitted(&self.fence.check(&tx, pass))?;
        let version = if admitted { put(&tx, &name, pass.token.get())? } else { version(&tx, &name)? };
        tx.commit().ok()?;
        let what = What::Write { token: pass.token, admitted, version, op_seq: None, based_on: None };
        Some(Entry { at_ns, resource: name, what })
    }

    /// Writes to the control, which asks nothing; `None` when the register is busy.
    pub(super) fn write_unfenced(&mut self, resource: &str, token: leasehold::Token) -> Option<Entry> {
        let name = format!("{CONTROL}{resource}");
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).ok()?;
        let at_ns = boot_ns();
        let version = put(&tx, &name, token.get())?;
        tx.commit().ok()?;
        let what = What::Write { token, admitted: true, version, op_seq: None, based_on: None };
        Some(Entry { at_ns, resource: name, what })
    }
}

/// What the fence said; `None` when it could not be asked.
fn admitted(answer: &Result<(), NotAdmitted>) -> Option<bool> {
    match answer {
        Ok(()) => Some(true),
        Err(NotAdmitted::Failed(_)) => None,
        Err(_) => Some(false),
    }
}

fn put(tx: &Transaction<'_>, name: &str, token: u64) -> Option<u64> {
    const SQL: &str = "INSERT INTO register VALUES (?1, 1, ?2)
        ON CONFLICT (name) DO UPDATE SET version = version + 1, token = excluded.token RETURNING version";
    let token = i64::try_from(token).ok()?;
    let version: i64 = tx.query_row(SQL, params![name, token], |row| row.get(0)).ok()?;
    u64::try_from(version).ok()
}

fn version(tx: &Transaction<'_>, name: &str) -> Option<u64> {
    const SQL: &str = "SELECT coalesce(max(version), 0) FROM register WHERE name = ?1";
    let version: i64 = tx.query_row(SQL, params![name], |row| row.get(0)).ok()?;
    u64::try_from(version).ok()
}

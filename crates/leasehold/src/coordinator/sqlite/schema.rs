//! The tables, and how a file says that it is ours.
//!
//! One row per resource holds everything about it, so that a request costs one read and one write. The queue has a table
//! of its own, which is looked at only while a row's `waiting` says that there is somebody. Grants that have ended stand in a
//! ring of their resource, whose rows lie side by side (see `past`).
//!
//! A time is a boot-clock reading in µs and names its clock in a `boot` column; a `unix` column is wall-clock µs, for
//! people, for tokens and for the purge.

use std::{io, path::Path};

use leasehold_core::{Error, Kind};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::in_use;

/// `lsHD`: SQLite's application id of a lease file.
pub(super) const APPLICATION_ID: i32 = 0x6c73_4844;
/// The version of the tables below.
pub(super) const VERSION: i32 = 3;

/// Bytes of a page of a new file. A commit writes each page it touches as a whole, and sums it up; a row has some 200 bytes, so
/// most of a page of the usual 4,096 would be written for nothing.
const PAGE: u32 = 1_024;

/// The history, as `past` writes it. A macro, so that statements are constants.
macro_rules! past {
    () => {
        "
CREATE TABLE past (
    id INTEGER PRIMARY KEY,
    nth INTEGER NOT NULL,
    token INTEGER NOT NULL,
    lease_id BLOB NOT NULL,
    holder_id BLOB NOT NULL,
    label TEXT,
    granted_unix INTEGER NOT NULL,
    reason INTEGER NOT NULL,
    note TEXT,
    by TEXT,
    end_unix INTEGER NOT NULL
) STRICT;
"
    };
}

const TABLES: &str = concat!(
    past!(),
    "
CREATE TABLE boot (
    id INTEGER PRIMARY KEY,
    identity TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    made_unix INTEGER NOT NULL,
    quarantine_boot TEXT NOT NULL,
    quarantine_until INTEGER NOT NULL,
    quarantine_span INTEGER NOT NULL,
    purged_unix INTEGER NOT NULL DEFAULT 0,
    purge_cursor INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE space (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    max_ttl_ms INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    fresh INTEGER NOT NULL,
    token_floor INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE slot (
    id INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    resource TEXT NOT NULL,
    waiting INTEGER NOT NULL,
    touched_unix INTEGER NOT NULL,
    boot INTEGER NOT NULL,
    at INTEGER NOT NULL,
    span INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    token INTEGER,
    lease_id BLOB,
    holder_id BLOB,
    granted_unix INTEGER,
    label TEXT,
    wake BLOB,
    revoked_by TEXT,
    revoked_reason TEXT,
    end_lease_id BLOB,
    end_token INTEGER,
    end_reason INTEGER,
    end_note TEXT,
    end_by TEXT,
    end_unix INTEGER,
    success_unix INTEGER,
    heir BLOB,
    ends INTEGER NOT NULL DEFAULT 0,
    UNIQUE (space, resource)
) STRICT;
CREATE TABLE queue (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    slot INTEGER NOT NULL,
    lease_id BLOB NOT NULL,
    label TEXT NOT NULL,
    boot INTEGER NOT NULL,
    joined INTEGER NOT NULL,
    refreshed INTEGER NOT NULL,
    refreshed_unix INTEGER NOT NULL,
    wake BLOB NOT NULL,
    UNIQUE (slot, lease_id)
) STRICT;
CREATE INDEX queue_order ON queue (slot, sequence);
CREATE TABLE observed (
    slot INTEGER NOT NULL,
    boot INTEGER NOT NULL,
    record_boot INTEGER NOT NULL,
    record_at INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (slot, boot)
) STRICT, WITHOUT ROWID;
",
);

/// What each format has added to the one before. Programs of the older format that have the file open go on with it: they do
/// not see what was added, and what they write makes an heir they did not know of void.
const ADDED: [&str; 2] = [
    concat!(
        "ALTER TABLE slot ADD COLUMN heir BLOB;",
        "ALTER TABLE slot ADD COLUMN ends INTEGER NOT NULL DEFAULT 0;",
        past!(),
    ),
    concat!(
        "ALTER TABLE store ADD COLUMN purged_unix INTEGER NOT NULL DEFAULT 0;",
        "ALTER TABLE store ADD COLUMN purge_cursor INTEGER NOT NULL DEFAULT 0;",
    ),
];

/// What the first bytes of a file say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nature {
    /// Nothing there, or nothing in it: may be made.
    Absent,
    /// A lease file.
    Ours,
}

/// Looks at a file without giving it to SQLite, which would leave companions beside it.
///
/// # Errors
/// [`Kind::Invalid`] for anything that is not a lease file.
pub(super) fn nature(path: &Path) -> Result<Nature, Error> {
    let mut head = [0; 100];
    let length = match in_use::read_head(path, &mut head) {
        Ok(Some(length)) => length,
        // Only what was found to be ours has a connection.
        Ok(None) => return Ok(Nature::Ours),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Nature::Absent),
        Err(error) => return Err(super::failure::from_io("cannot open the lease file", &error)),
    };
    if length == 0 {
        return Ok(Nature::Absent);
    }
    // The header of SQLite files: https://www.sqlite.org/fileformat2.html#the_database_header
    if length < head.len() || !head.starts_with(b"SQLite format 3\0") {
        return Err(foreign("the file is not a SQLite database"));
    }
    if head[68..72] != APPLICATION_ID.to_be_bytes() {
        return Err(foreign("the file is a SQLite database of another program"));
    }
    Ok(Nature::Ours)
}

fn foreign(what: &str) -> Error {
    Error::new(Kind::Invalid, what)
        .advise("it was left as it is; give the path of a lease file, or of none yet")
}

/// Makes the tables in an empty database.
pub(super) fn create_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE}; BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
    ))
}

/// Makes the tables in an empty database and switches it to write-ahead logging.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    create_tables(connection)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    debug_assert_eq!(mode, "wal");
    Ok(())
}

/// Checks that this build understands the file, and brings one of an older format up to date.
///
/// # Errors
/// [`Kind::Unsupported`] for a newer file; [`Kind::Corrupt`] for a damaged one; [`Kind::Invalid`] for one that is not ours.
pub(super) fn check(connection: &Connection) -> Result<(), Error> {
    let number = |sql: &str| -> Result<i32, Error> {
        connection
            .query_row(sql, [], |row| row.get(0))
            .map_err(|error| super::failure::from_sql("cannot read the lease file", &error))
    };
    // The path may have got another file since its head was read.
    if number("PRAGMA application_id")? != APPLICATION_ID {
        return Err(foreign("the file is a SQLite database of another program"));
    }
    match number("PRAGMA user_version")? {
        VERSION => Ok(()),
        1..VERSION => upgrade(connection)
            .map_err(|error| super::failure::from_sql("cannot bring the lease file to the present format", &error)),
        newer if newer > VERSION => Err(Error::new(
            Kind::Unsupported,
            format!("the lease file was written by a newer Leasehold (format {newer}; this one reads format {VERSION})"),
        )
        .advise("upgrade this program; all programs on one file must understand its format")),
        other => Err(Error::new(Kind::Corrupt, format!("the lease file has an impossible format number ({other})"))
            .advise(super::failure::REPAIR)),
    }
}

/// Adds what is missing. Several may try at the same time, and the file may be busy with others' commits.
fn upgrade(connection: &Connection) -> rusqlite::Result<()> {
    let change = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let found: i32 = change.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for (added, from) in ADDED.iter().zip(1..) {
        if from >= found {
            change.execute_batch(added)?;
        }
    }
    change.execute_batch(&format!("PRAGMA user_version = {VERSION}"))?;
    change.commit()
}

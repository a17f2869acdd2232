//! The tables, in the database file of the data, and how their rows are read.

use leasehold_core::{Error, Label, LeaseId, Namespace, Resource, Token};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::failure;
use crate::effects::{
    key::{Fingerprint, Key},
    record::{Event, Record, State, corrupt, json_value},
};

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS leasehold_idempotency (
    scope TEXT NOT NULL CHECK (length(CAST(scope AS BLOB)) BETWEEN 1 AND 255),
    key TEXT NOT NULL CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 255),
    request_hash BLOB NOT NULL CHECK (length(request_hash) = 32),
    state TEXT NOT NULL CHECK (state IN ('started', 'done', 'needs_reconciliation')),
    namespace TEXT NOT NULL,
    resource TEXT NOT NULL,
    token INTEGER NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    lease_id BLOB NOT NULL CHECK (length(lease_id) = 16),
    holder TEXT NOT NULL,
    response TEXT,
    note TEXT,
    created_unix INTEGER NOT NULL,
    done_unix INTEGER,
    expires_unix INTEGER,
    PRIMARY KEY (scope, key),
    CHECK ((state = 'done') = (done_unix IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS leasehold_idempotency_expires ON leasehold_idempotency (expires_unix) WHERE state = 'done';
CREATE INDEX IF NOT EXISTS leasehold_idempotency_open ON leasehold_idempotency (created_unix) WHERE state <> 'done';
CREATE TABLE IF NOT EXISTS leasehold_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    resource TEXT NOT NULL,
    token INTEGER NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    topic TEXT NOT NULL CHECK (length(CAST(topic AS BLOB)) BETWEEN 1 AND 255),
    op_seq INTEGER NOT NULL,
    payload TEXT NOT NULL,
    created_unix INTEGER NOT NULL,
    published_unix INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    retry_unix INTEGER,
    set_aside_unix INTEGER,
    error TEXT,
    UNIQUE (scope, key, topic, op_seq)
) STRICT;
CREATE INDEX IF NOT EXISTS leasehold_outbox_waiting ON leasehold_outbox (id)
    WHERE published_unix IS NULL AND set_aside_unix IS NULL;
CREATE INDEX IF NOT EXISTS leasehold_outbox_retry ON leasehold_outbox (namespace, resource, id)
    WHERE published_unix IS NULL AND set_aside_unix IS NULL AND retry_unix IS NOT NULL;
CREATE TABLE IF NOT EXISTS leasehold_inbox (
    source TEXT NOT NULL,
    event_id INTEGER NOT NULL,
    received_unix INTEGER NOT NULL,
    PRIMARY KEY (source, event_id)
) STRICT, WITHOUT ROWID;
";

pub(super) const RECORD: &str = "SELECT scope, key, request_hash, state, namespace, resource, token, lease_id, holder, response, \
     note, created_unix, done_unix, expires_unix FROM leasehold_idempotency";
pub(super) const EVENT: &str = "SELECT o.id, o.topic, o.payload, o.scope, o.key, o.namespace, o.resource, o.token, o.created_unix, \
     o.published_unix, o.attempts, o.set_aside_unix, o.error FROM leasehold_outbox o";

pub(super) fn read(connection: &Connection, key: &Key) -> Result<Option<Record>, Error> {
    let failed = |error| failure::of("the key could not be looked up", &error);
    let mut statement =
        connection.prepare_cached(&format!("{RECORD} WHERE scope = ?1 AND key = ?2")).map_err(failed)?;
    let row =
        statement.query_row(params![key.scope(), key.as_str()], raw_record).optional().map_err(failed)?;
    row.map(record).transpose()
}

/// A row of the keys as it is stored.
#[derive(Debug)]
pub(super) struct RawRecord {
    key: (String, String),
    hash: Vec<u8>,
    state: String,
    place: (String, String),
    token: i64,
    lease_id: [u8; 16],
    holder: String,
    response: Option<String>,
    note: Option<String>,
    times: (i64, Option<i64>, Option<i64>),
}

pub(super) fn raw_record(row: &Row<'_>) -> rusqlite::Result<RawRecord> {
    Ok(RawRecord {
        key: (row.get(0)?, row.get(1)?),
        hash: row.get(2)?,
        state: row.get(3)?,
        place: (row.get(4)?, row.get(5)?),
        token: row.get(6)?,
        lease_id: row.get(7)?,
        holder: row.get(8)?,
        response: row.get(9)?,
        note: row.get(10)?,
        times: (row.get(11)?, row.get(12)?, row.get(13)?),
    })
}

pub(super) fn record(raw: RawRecord) -> Result<Record, Error> {
    let invalid = |_| corrupt("a stored operation has a name, a token or a key that is none");
    Ok(Record {
        key: Key::new(&raw.key.0, &raw.key.1).map_err(invalid)?,
        fingerprint: Fingerprint::from_bytes(&raw.hash)
            .ok_or_else(|| corrupt("a stored request has no hash"))?,
        state: State::read(&raw.state)?,
        namespace: Namespace::new(&raw.place.0).map_err(invalid)?,
        resource: Resource::new(&raw.place.1).map_err(invalid)?,
        token: Token::new(raw.token.unsigned_abs()).map_err(invalid)?,
        lease_id: LeaseId::from_bytes(raw.lease_id),
        holder: Label::from_lossy(&raw.holder),
        response: raw.response.as_deref().map(json_value).transpose()?,
        note: raw.note,
        created_us: raw.times.0.unsigned_abs(),
        done_us: raw.times.1.map(i64::unsigned_abs),
        expires_us: raw.times.2.map(i64::unsigned_abs),
    })
}

/// A row of the outbox as it is stored.
#[derive(Debug)]
pub(super) struct RawEvent {
    id: i64,
    topic: String,
    payload: String,
    key: (String, String),
    place: (String, String),
    token: i64,
    times: (i64, Option<i64>),
    attempts: u32,
    set_aside: Option<i64>,
    error: Option<String>,
}

pub(super) fn raw_event(row: &Row<'_>) -> rusqlite::Result<RawEvent> {
    Ok(RawEvent {
        id: row.get(0)?,
        topic: row.get(1)?,
        payload: row.get(2)?,
        key: (row.get(3)?, row.get(4)?),
        place: (row.get(5)?, row.get(6)?),
        token: row.get(7)?,
        times: (row.get(8)?, row.get(9)?),
        attempts: row.get(10)?,
        set_aside: row.get(11)?,
        error: row.get(12)?,
    })
}

pub(super) fn event(raw: RawEvent) -> Result<Event, Error> {
    let invalid = |_| corrupt("a stored event has a name, a token or a key that is none");
    Ok(Event {
        id: raw.id.unsigned_abs(),
        topic: raw.topic,
        payload: json_value(&raw.payload)?,
        key: Key::new(&raw.key.0, &raw.key.1).map_err(invalid)?,
        namespace: Namespace::new(&raw.place.0).map_err(invalid)?,
        resource: Resource::new(&raw.place.1).map_err(invalid)?,
        token: Token::new(raw.token.unsigned_abs()).map_err(invalid)?,
        created_us: raw.times.0.unsigned_abs(),
        published_us: raw.times.1.map(i64::unsigned_abs),
        attempts: raw.attempts,
        set_aside_us: raw.set_aside.map(i64::unsigned_abs),
        error: raw.error,
    })
}

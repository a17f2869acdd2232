//! The statements, for a schema, and how their rows are read.

use leasehold_core::{Error, Label, LeaseId, Namespace, Resource, Token};
use tokio_postgres::Row;

use crate::effects::{
    key::{Fingerprint, Key},
    record::{Event, Record, State, corrupt, json_value},
};

const MICROS: &str = "(extract(epoch FROM $) * 1000000)::int8";

/// Statements of an operation.
#[derive(Clone, Debug)]
pub(super) struct Statements {
    pub(super) schema: String,
    pub(super) look: String,
    pub(super) insert: String,
    pub(super) complete: String,
    pub(super) take_over: String,
    pub(super) park: String,
    pub(super) forget: String,
    pub(super) emit: String,
}

/// Columns of a [`Record`], in the order in which [`record`] reads them.
pub(super) fn record_columns() -> String {
    let at = |column: &str| MICROS.replace('$', column);
    format!(
        "scope, key, request_hash, state, namespace, resource, token, lease_id::text, holder, response::text, note, {}, {}, {}",
        at("created_at"),
        at("done_at"),
        at("expires_at")
    )
}

/// Columns of an [`Event`] of the table `o`, in the order in which [`event`] reads them.
pub(super) fn event_columns() -> String {
    let at = |column: &str| MICROS.replace('$', column);
    format!(
        "o.id, o.topic, o.payload::text, o.scope, o.key, o.namespace, o.resource, o.token, {}, {}, o.attempts, {}, o.error",
        at("o.created_at"),
        at("o.published_at"),
        at("o.set_aside_at")
    )
}

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        let schema = format!("\"{}\"", schema.replace('"', "\"\""));
        let one = "scope = $1::text AND key = $2::text AND state = 'started'";
        Self {
            look: format!(
                "SELECT {} FROM {schema}.idempotency WHERE scope = $1::text AND key = $2::text",
                record_columns()
            ),
            insert: format!(
                "INSERT INTO {schema}.idempotency (scope, key, request_hash, state, namespace, resource, token, lease_id, holder) \
                 VALUES ($1::text, $2::text, $3::bytea, 'started', $4::text, $5::text, $6::int8, $7::text::uuid, $8::text) \
                 ON CONFLICT (scope, key) DO NOTHING"
            ),
            complete: format!(
                "UPDATE {schema}.idempotency SET state = 'done', response = $5::text::json, done_at = clock_timestamp(), \
                 expires_at = clock_timestamp() + $6::int8 * interval '1 microsecond' \
                 WHERE {one} AND token = $3::int8 AND lease_id = $4::text::uuid"
            ),
            take_over: format!(
                "UPDATE {schema}.idempotency SET token = $3::int8, lease_id = $4::text::uuid, holder = $5::text \
                 WHERE {one} AND token < $3::int8"
            ),
            park: format!(
                "UPDATE {schema}.idempotency SET state = 'needs_reconciliation', note = $4::text WHERE {one} AND token = $3::int8"
            ),
            forget: format!("DELETE FROM {schema}.idempotency WHERE {one} AND token = $3::int8"),
            emit: format!(
                "INSERT INTO {schema}.outbox (namespace, resource, token, scope, key, topic, op_seq, payload) \
                 VALUES ($1::text, $2::text, $3::int8, $4::text, $5::text, $6::text, $7::int4, $8::text::json) RETURNING id"
            ),
            schema,
        }
    }
}

/// Reads a row of [`record_columns`].
pub(super) fn record(row: &Row) -> Result<Record, Error> {
    let unread = |_: tokio_postgres::Error| corrupt("a stored operation cannot be read");
    let invalid = |_| corrupt("a stored operation has a name, a token or a key that is none");
    let text = |at: usize| row.try_get::<_, &str>(at).map_err(unread);
    let micros = |at: usize| row.try_get::<_, Option<i64>>(at).map_err(unread);
    let response = row.try_get::<_, Option<&str>>(9).map_err(unread)?;
    Ok(Record {
        key: Key::new(text(0)?, text(1)?).map_err(invalid)?,
        fingerprint: Fingerprint::from_bytes(row.try_get(2).map_err(unread)?)
            .ok_or_else(|| corrupt("a stored request has no hash"))?,
        state: State::read(text(3)?)?,
        namespace: Namespace::new(text(4)?).map_err(invalid)?,
        resource: Resource::new(text(5)?).map_err(invalid)?,
        token: Token::new(row.try_get::<_, i64>(6).map_err(unread)?.unsigned_abs()).map_err(invalid)?,
        // PostgreSQL writes a uuid with hyphens.
        lease_id: text(7)?.replace('-', "").parse::<LeaseId>().map_err(invalid)?,
        holder: Label::from_lossy(text(8)?),
        response: response.map(json_value).transpose()?,
        note: row.try_get(10).map_err(unread)?,
        created_us: micros(11)?.unwrap_or_default().unsigned_abs(),
        done_us: micros(12)?.map(i64::unsigned_abs),
        expires_us: micros(13)?.map(i64::unsigned_abs),
    })
}

/// Reads a row of [`event_columns`].
pub(super) fn event(row: &Row) -> Result<Event, Error> {
    let unread = |_: tokio_postgres::Error| corrupt("a stored event cannot be read");
    let invalid = |_| corrupt("a stored event has a name, a token or a key that is none");
    let text = |at: usize| row.try_get::<_, &str>(at).map_err(unread);
    let number = |at: usize| Ok::<_, Error>(row.try_get::<_, i64>(at).map_err(unread)?.unsigned_abs());
    let micros =
        |at: usize| Ok::<_, Error>(row.try_get::<_, Option<i64>>(at).map_err(unread)?.map(i64::unsigned_abs));
    Ok(Event {
        id: number(0)?,
        topic: text(1)?.to_owned(),
        payload: json_value(text(2)?)?,
        key: Key::new(text(3)?, text(4)?).map_err(invalid)?,
        namespace: Namespace::new(text(5)?).map_err(invalid)?,
        resource: Resource::new(text(6)?).map_err(invalid)?,
        token: Token::new(number(7)?).map_err(invalid)?,
        created_us: number(8)?,
        published_us: micros(9)?,
        attempts: row.try_get::<_, i32>(10).map_err(unread)?.unsigned_abs(),
        set_aside_us: micros(11)?,
        error: row.try_get(12).map_err(unread)?,
    })
}

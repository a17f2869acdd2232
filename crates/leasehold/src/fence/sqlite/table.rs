//! The table: one row per fenced resource, in whichever database it is made.

use leasehold_core::{
    Label, LeaseId, Namespace, Resource, Token,
    fence::{Mark, OpSeq},
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::failure::Failure;

pub(super) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS leasehold_fence (
    namespace TEXT NOT NULL,
    resource TEXT NOT NULL,
    token INTEGER NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    lease_id BLOB CHECK (length(lease_id) = 16),
    op_seq INTEGER CHECK (op_seq BETWEEN 1 AND 9007199254740991),
    holder TEXT NOT NULL,
    touched_unix INTEGER NOT NULL,
    PRIMARY KEY (namespace, resource)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS leasehold_fence_never_goes_back BEFORE UPDATE OF token ON leasehold_fence
WHEN new.token < old.token BEGIN SELECT RAISE(ABORT, 'a fencing token never goes back'); END;
";

pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)
}

pub(super) fn read(
    connection: &Connection,
    namespace: &Namespace,
    resource: &Resource,
) -> Result<Option<Mark>, Failure> {
    const SQL: &str =
        "SELECT token, lease_id, op_seq, holder FROM leasehold_fence WHERE namespace = ?1 AND resource = ?2";
    let mut statement = connection.prepare_cached(SQL)?;
    let raw = statement.query_row(params![namespace.as_str(), resource.as_str()], raw).optional()?;
    raw.map(mark).transpose()
}

type Raw = (i64, Option<[u8; 16]>, Option<i64>, String);

fn raw(row: &Row<'_>) -> rusqlite::Result<Raw> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

fn mark((token, lease_id, op_seq, holder): Raw) -> Result<Mark, Failure> {
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    let op_seq = op_seq.map(|op_seq| OpSeq::new(number(op_seq))).transpose();
    Ok(Mark {
        token: Token::new(number(token)).map_err(|_| Failure::Corrupt("the fence's token is none"))?,
        lease_id: lease_id.map(LeaseId::from_bytes),
        op_seq: op_seq.map_err(|_| Failure::Corrupt("the fence's op_seq is none"))?,
        holder: Label::from_lossy(&holder),
    })
}

pub(super) fn write(
    connection: &Connection,
    namespace: &Namespace,
    resource: &Resource,
    mark: &Mark,
    now_us: u64,
) -> Result<(), Failure> {
    const SQL: &str = "INSERT INTO leasehold_fence (namespace, resource, token, lease_id, op_seq, holder, touched_unix) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (namespace, resource) DO UPDATE SET token = ?3, lease_id = ?4, \
        op_seq = ?5, holder = ?6, touched_unix = ?7";
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    connection.prepare_cached(SQL)?.execute(params![
        namespace.as_str(),
        resource.as_str(),
        signed(mark.token.get()),
        mark.lease_id.as_ref().map(|lease_id| lease_id.as_bytes().to_vec()),
        mark.op_seq.map(|op_seq| signed(op_seq.get())),
        mark.holder.as_str(),
        signed(now_us)
    ])?;
    Ok(())
}

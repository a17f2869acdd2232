//! One resource's row: read into a [`Slot`], and written back as far as it changed.

use leasehold_core::{
    HolderId, Label, LeaseId, Token, Ttl,
    record::{End, EndReason, Notice},
    request::Renewal,
    slot::{Held, Now, Slot},
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{failure::Failure, heir::Heir, wake::Address};

/// A time with the clock it was read from, and how far ahead of that moment it lay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub(super) boot: i64,
    pub(super) at_us: u64,
    pub(super) span_us: u64,
}

/// What the row has beside the slot.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// The row, once there is one.
    pub(super) id: Option<i64>,
    /// How many rows the queue has for it.
    pub(super) waiting: u32,
    /// The holder's expiry, or the start of being free, as written.
    pub(super) stamp: Stamp,
    /// Where the holder is woken.
    pub(super) wake: Option<Address>,
    /// True when the answer gives the holder time from now on.
    pub(super) promised: bool,
    /// For whom the last token was set aside, while nobody holds.
    pub(super) heir: Option<Heir>,
    /// How many grants have ended so far, as far as the history goes.
    pub(super) ends: i64,
}

/// The columns that [`decode`] reads; a macro, so that statements are constants.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, waiting, boot, at, span, ttl_ms, token, lease_id, holder_id, granted_unix, label, wake, \
             revoked_by, revoked_reason, end_lease_id, end_token, end_reason, end_note, end_by, end_unix, success_unix, \
             resource, touched_unix, heir, ends FROM slot ",
            $rest
        )
    };
}
pub(super) use select;

/// A row as read: the slot's times are still those of the clock that wrote them.
pub(super) type Loaded = (Slot, Cell);

/// Reads the row of a resource, if there is one.
pub(super) fn load(connection: &Connection, space: i64, resource: &str) -> Result<Option<Loaded>, Failure> {
    let mut statement = connection.prepare_cached(select!("WHERE space = ?1 AND resource = ?2"))?;
    let found = statement.query_row(params![space, resource], |row| Ok(decode(row))).optional()?;
    found.transpose()
}

/// Turns a row of `select!` into values.
pub(super) fn decode(row: &Row<'_>) -> Result<Loaded, Failure> {
    let stamp = Stamp { boot: row.get(2)?, at_us: unsigned(row, 3)?, span_us: unsigned(row, 4)? };
    let last_token = row.get::<_, Option<i64>>(6)?.map(token).transpose()?;
    let lease_id: Option<[u8; 16]> = row.get(7)?;
    let held = match (lease_id, last_token) {
        (Some(lease_id), Some(token)) => Some(Held {
            lease_id: LeaseId::from_bytes(lease_id),
            token,
            ttl: Ttl::from_millis(unsigned(row, 5)?)
                .map_err(|invalid| Failure::Corrupt(invalid.to_string()))?,
            expires_us: stamp.at_us,
            granted_us: unsigned(row, 9)?,
            holder_id: HolderId::from_bytes(row.get(8)?),
            label: label(row, 10)?,
            revoked: notice(row)?,
        }),
        (None, _) => None,
        (Some(_), None) => return Err(Failure::Corrupt("a lease in the file has no token".to_owned())),
    };
    let heir = row.get::<_, Option<[u8; 24]>>(23)?.filter(|_| held.is_none());
    let heir = heir.map(|bytes| Ok::<_, Failure>(Heir::decode(bytes, label(row, 10)?))).transpose()?;
    let slot = Slot {
        last_token,
        free_since_us: if held.is_some() { 0 } else { stamp.at_us },
        held,
        last_end: end(row)?,
        last_success_us: row.get::<_, Option<i64>>(20)?.map(i64::unsigned_abs),
    };
    // A grant that came in between, by a program that knows nothing of heirs, has a token of its own.
    let heir = heir.flatten().filter(|heir| Some(heir.token) == last_token);
    Ok((
        slot,
        Cell {
            id: row.get(0)?,
            waiting: row.get(1)?,
            stamp,
            wake: row.get(11)?,
            promised: false,
            heir,
            ends: row.get(24)?,
        },
    ))
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> Result<u64, Failure> {
    u64::try_from(row.get::<_, i64>(column)?)
        .map_err(|_| Failure::Corrupt("a negative number in the file".to_owned()))
}

pub(super) fn token(value: i64) -> Result<Token, Failure> {
    u64::try_from(value)
        .ok()
        .and_then(|value| Token::new(value).ok())
        .ok_or_else(|| Failure::Corrupt(format!("{value} in the file is no fencing token")))
}

pub(super) fn label(row: &Row<'_>, column: usize) -> Result<Label, Failure> {
    Ok(match row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)? {
        Some(text) => Label::from_lossy(text),
        None => Label::default(),
    })
}

fn notice(row: &Row<'_>) -> Result<Option<Notice>, Failure> {
    let revoked = row.get_ref(12)?.as_str_or_null().map_err(rusqlite::Error::from)?.is_some();
    Ok(if revoked { Some(Notice { by: label(row, 12)?, reason: label(row, 13)? }) } else { None })
}

/// How a reason is written: a number, and the words of a revocation.
pub(super) fn encode_reason(reason: &EndReason) -> (i64, Option<&str>) {
    match reason {
        EndReason::Expired => (1, None),
        EndReason::Revoked(note) => (2, Some(note.as_str())),
        _ => (0, None),
    }
}

/// The reason that a number and the text in column `note` stand for.
pub(super) fn decode_reason(number: i64, row: &Row<'_>, note: usize) -> Result<EndReason, Failure> {
    match number {
        0 => Ok(EndReason::Released),
        1 => Ok(EndReason::Expired),
        2 => Ok(EndReason::Revoked(label(row, note)?)),
        other => Err(Failure::Corrupt(format!("{other} in the file is no way for a lease to end"))),
    }
}

fn end(row: &Row<'_>) -> Result<Option<End>, Failure> {
    let Some(lease_id) = row.get::<_, Option<[u8; 16]>>(14)? else { return Ok(None) };
    let reason = decode_reason(row.get(16)?, row, 17)?;
    Ok(Some(End {
        lease_id: LeaseId::from_bytes(lease_id),
        token: token(row.get(15)?)?,
        reason,
        by: label(row, 18)?,
        at_us: unsigned(row, 19)?,
    }))
}

/// Adds an empty row, for a queue to hang on.
pub(super) fn insert(connection: &Connection, space: i64, resource: &str, now: Now) -> Result<i64, Failure> {
    connection
        .prepare_cached(
            "INSERT INTO slot (space, resource, waiting, touched_unix, boot, at, span, ttl_ms) \
             VALUES (?1, ?2, 0, ?3, 0, 0, 0, 0)",
        )?
        .execute(params![space, resource, signed(now.unix_us)])?;
    Ok(connection.last_insert_rowid())
}

/// Renews in one statement, where the row is just as [`Slot::renew`] would have it: the same lease id and token, not revoked,
/// not expired by our own clock, and ending no later than asked. False: nothing was changed, and the slot must say why.
pub(super) fn renew_at_once(
    connection: &Connection,
    (space, resource): (i64, &str),
    renewal: &Renewal,
    stamp: Stamp,
    now: Now,
) -> Result<bool, Failure> {
    let changed = connection
        .prepare_cached(
            "UPDATE slot SET touched_unix = ?1, at = ?2, span = ?3, ttl_ms = ?4 \
             WHERE space = ?5 AND resource = ?6 AND lease_id = ?7 AND token = ?8 AND revoked_by IS NULL \
             AND boot = ?9 AND at > ?10 AND at <= ?2",
        )?
        .execute(params![
            signed(now.unix_us),
            signed(stamp.at_us),
            signed(stamp.span_us),
            signed(renewal.ttl.as_millis()),
            space,
            resource,
            renewal.lease_id.as_bytes(),
            signed(renewal.token.get()),
            stamp.boot,
            signed(now.clock_us),
        ])?;
    Ok(changed == 1)
}

/// Writes a renewal: the one change that is made again and again.
pub(super) fn save_renewal(
    connection: &Connection,
    id: i64,
    ttl: Ttl,
    stamp: Stamp,
    now: Now,
) -> Result<(), Failure> {
    connection
        .prepare_cached(
            "UPDATE slot SET touched_unix = ?2, boot = ?3, at = ?4, span = ?5, ttl_ms = ?6 WHERE id = ?1",
        )?
        .execute(params![
            id,
            signed(now.unix_us),
            stamp.boot,
            signed(stamp.at_us),
            signed(stamp.span_us),
            signed(ttl.as_millis())
        ])?;
    Ok(())
}

/// Writes everything.
pub(super) fn save(
    connection: &Connection,
    id: i64,
    slot: &Slot,
    cell: &Cell,
    now: Now,
) -> Result<(), Failure> {
    let held = slot.held.as_ref();
    let end = slot.last_end.as_ref();
    let (reason, note) = end.map(|end| encode_reason(&end.reason)).unzip();
    let note = note.flatten();
    let revoked = held.and_then(|held| held.revoked.as_ref());
    let heir = cell.heir.as_ref().filter(|_| held.is_none());
    let label = held.map(|held| &held.label).or(heir.map(|heir| &heir.label));
    connection
        .prepare_cached(
            "UPDATE slot SET waiting = ?2, touched_unix = ?3, boot = ?4, at = ?5, span = ?6, ttl_ms = ?7, token = ?8, \
             lease_id = ?9, holder_id = ?10, granted_unix = ?11, label = ?12, wake = ?13, revoked_by = ?14, \
             revoked_reason = ?15, end_lease_id = ?16, end_token = ?17, end_reason = ?18, end_note = ?19, end_by = ?20, \
             end_unix = ?21, success_unix = ?22, heir = ?23, ends = ?24 WHERE id = ?1",
        )?
        .execute(params![
            id,
            cell.waiting,
            signed(now.unix_us),
            cell.stamp.boot,
            signed(cell.stamp.at_us),
            signed(cell.stamp.span_us),
            held.map_or(0, |held| signed(held.ttl.as_millis())),
            slot.last_token.map(|token| signed(token.get())),
            held.map(|held| held.lease_id.as_bytes()),
            held.map(|held| held.holder_id.as_bytes()),
            held.map(|held| signed(held.granted_us)),
            label.map(Label::as_str).filter(|text| !text.is_empty()),
            cell.wake.filter(|_| held.is_some()),
            revoked.map(|notice| notice.by.as_str()),
            revoked.map(|notice| notice.reason.as_str()),
            end.map(|end| end.lease_id.as_bytes()),
            end.map(|end| signed(end.token.get())),
            reason,
            note,
            end.map(|end| end.by.as_str()),
            end.map(|end| signed(end.at_us)),
            slot.last_success_us.map(signed),
            heir.map(Heir::encode),
            cell.ends,
        ])?;
    Ok(())
}

/// SQLite's integers are signed; ours stay below 2^63 for 290,000 years.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

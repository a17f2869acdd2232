//! The history: grants that have ended, the last [`Past::KEPT`] of each resource.
//!
//! They stand in a ring: the `n`th to end takes the place of the one that many before it. The places of a resource lie side by
//! side, by its row's number, so noting an end touches one page and finding them needs no index.

use leasehold_core::{
    HolderId, LeaseId, Resource,
    record::{End, Past},
    slot::Now,
};
use rusqlite::{Connection, Row, params};

use super::{
    apply::{Outcome, Step},
    failure::Failure,
    row::{self, signed},
};

/// Places of a ring. Fixed by the file's format.
const PLACES: i64 = 32;
const _: () = assert!(Past::KEPT <= 32, "the ring is long enough");

/// Notes the `nth` end of the resource whose row is `slot`.
pub(super) fn note(connection: &Connection, slot: i64, nth: i64, past: &Past) -> Result<(), Failure> {
    let Past { holder_id, label, granted_us, end } = past;
    let (reason, note) = row::encode_reason(&end.reason);
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO past (id, nth, token, lease_id, holder_id, label, granted_unix, reason, note, by, end_unix) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            slot * PLACES + nth % PLACES,
            nth,
            signed(end.token.get()),
            end.lease_id.as_bytes(),
            holder_id.as_bytes(),
            label.as_str(),
            signed(*granted_us),
            reason,
            note,
            end.by.as_str(),
            signed(end.at_us),
        ])?;
    Ok(())
}

/// Forgets the history of a row that is removed: its number may be given again.
pub(super) fn forget(connection: &Connection, slot: i64) -> Result<(), Failure> {
    let mut statement = connection.prepare_cached("DELETE FROM past WHERE id BETWEEN ?1 AND ?2")?;
    statement.execute([slot * PLACES, slot * PLACES + PLACES - 1])?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<Past, Failure> {
    let end = End {
        lease_id: LeaseId::from_bytes(row.get(1)?),
        token: row::token(row.get(0)?)?,
        reason: row::decode_reason(row.get(5)?, row, 6)?,
        by: row::label(row, 7)?,
        at_us: row::unsigned(row, 8)?,
    };
    let holder_id = HolderId::from_bytes(row.get(2)?);
    Ok(Past { holder_id, label: row::label(row, 3)?, granted_us: row::unsigned(row, 4)?, end })
}

impl Step<'_> {
    pub(super) fn history(&mut self, resource: &Resource, now: Now) -> Outcome<Vec<Past>> {
        let (slot, cell) = self.load(&resource.encode(), now)?;
        let mut found: Vec<Past> = slot.lapsed(now).into_iter().collect();
        let Some(id) = cell.id else { return Ok(Ok(found)) };
        let mut statement = self.connection.prepare_cached(
            "SELECT token, lease_id, holder_id, label, granted_unix, reason, note, by, end_unix FROM past \
             WHERE id BETWEEN ?1 AND ?2 ORDER BY nth DESC",
        )?;
        let rows = statement.query_map([id * PLACES, id * PLACES + PLACES - 1], |row| Ok(decode(row)))?;
        for row in rows {
            found.push(row??);
        }
        found.truncate(Past::KEPT);
        Ok(Ok(found))
    }
}

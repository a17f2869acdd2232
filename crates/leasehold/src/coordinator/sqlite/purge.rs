//! Forgetting resources that nobody has used for a week.
//!
//! What a purged row knew is its token counter. The namespace keeps the highest one of all that were purged, and a
//! resource without a row starts above it, so that tokens rise whatever the wall clock did in between.

use leasehold_core::{Resource, Ttl, record::Purged, request::Purge, slot::Now};
use rusqlite::{Row, params};

use super::{
    apply::Step,
    failure::Failure,
    past,
    row::{self, signed},
};

/// Seven days, the retention of token counters.
const RETENTION_US: u64 = Ttl::MAX.as_micros();
/// Rows looked at in one step (ours: some ten microseconds; programs that run for seconds share the work by chance).
const STEP: i64 = 64;
/// Rows looked at in one step of somebody who asks for it (ours: a millisecond, for which others wait).
const PAGE: u32 = 500;
/// Time between steps.
pub(super) const PAUSE_US: u64 = 60_000_000;

/// A row that nobody needs any more.
struct Idle {
    row: i64,
    name: String,
    token: i64,
}

impl Step<'_> {
    /// Looks at the rows after `cursor`, or anywhere at first, and removes the idle ones. Where to go on.
    pub(super) fn purge(&mut self, cursor: Option<i64>, now: Now) -> Result<i64, Failure> {
        let cursor = match cursor {
            Some(cursor) => cursor,
            None => self.anywhere(now)?,
        };
        let mut statement =
            self.connection.prepare_cached(row::select!("WHERE id > ?1 ORDER BY id LIMIT ?2"))?;
        let (mut idle, mut last, mut seen) = (Vec::new(), cursor, 0);
        let mut rows = statement.query([cursor, STEP])?;
        while let Some(row) = rows.next()? {
            seen += 1;
            last = row.get(0)?;
            idle.extend(self.idle(row, now)?);
        }
        drop(rows);
        for found in &idle {
            self.forget(found)?;
        }
        Ok(if seen < STEP { 0 } else { last })
    }

    /// The same for one namespace, as somebody asked, in the order of names.
    pub(super) fn purge_page(&mut self, purge: &Purge, now: Now) -> Result<Purged, Failure> {
        let mut purged = Purged::default();
        let Some(space) = self.space_id()? else { return Ok(purged) };
        let after = purge.after.as_ref().map(Resource::encode).unwrap_or_default();
        let mut statement = self
            .connection
            .prepare_cached(row::select!("WHERE space = ?1 AND resource > ?2 ORDER BY resource LIMIT ?3"))?;
        let (mut idle, mut last) = (Vec::new(), None);
        let mut rows = statement.query(params![space, after, PAGE])?;
        while let Some(row) = rows.next()? {
            purged.looked_at += 1;
            last = Some(row.get::<_, String>(21)?);
            idle.extend(self.idle(row, now)?);
        }
        drop(rows);
        for found in &idle {
            if !purge.dry_run {
                self.forget(found)?;
            }
            purged.idle.push(resource(&found.name)?);
        }
        purged.next =
            last.filter(|_| purged.looked_at == u64::from(PAGE)).map(|name| resource(&name)).transpose()?;
        Ok(purged)
    }

    /// The resource of a row, if it is idle.
    fn idle(&mut self, row: &Row<'_>, now: Now) -> Result<Option<Idle>, Failure> {
        let touched = row.get::<_, i64>(22)?.unsigned_abs();
        if now.unix_us.saturating_sub(touched) < RETENTION_US {
            return Ok(None);
        }
        let (mut slot, mut cell) = row::decode(row)?;
        self.clocks.translate(self.connection, &mut slot, &mut cell, now, false)?;
        if cell.waiting > 0 || !slot.is_free(now) {
            return Ok(None);
        }
        let token = slot.last_token.map_or(0, |token| signed(token.get()));
        Ok(Some(Idle { row: row.get(0)?, name: row.get(21)?, token }))
    }

    fn forget(&self, Idle { row, token, .. }: &Idle) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "UPDATE space SET token_floor = max(token_floor, ?2) WHERE id = (SELECT space FROM slot WHERE id = ?1)",
            )?
            .execute(params![row, token])?;
        self.connection.prepare_cached("DELETE FROM observed WHERE slot = ?1")?.execute([row])?;
        past::forget(self.connection, *row)?;
        self.connection.prepare_cached("DELETE FROM slot WHERE id = ?1")?.execute([row])?;
        Ok(())
    }

    /// A row by chance: short-lived programs would else all look at the same ones.
    fn anywhere(&self, now: Now) -> Result<i64, Failure> {
        let last: Option<i64> =
            self.connection.prepare_cached("SELECT max(id) FROM slot")?.query_row([], |row| row.get(0))?;
        let blocks = last.unwrap_or(0) / STEP + 1;
        Ok(signed(now.unix_us) % blocks * STEP)
    }
}

fn resource(name: &str) -> Result<Resource, Failure> {
    Resource::decode(name)
        .map_err(|invalid| Failure::Corrupt(format!("a row of the lease file has an {invalid}")))
}

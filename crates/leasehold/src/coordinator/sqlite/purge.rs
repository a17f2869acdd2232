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
/// Rows looked at in one step (ours: a fraction of a millisecond, beside a request that waits for it).
const STEP: i64 = 256;
/// Rows looked at in one step of somebody who asks for it (ours: a millisecond, for which others wait).
const PAGE: u32 = 500;
/// Time between steps, whoever makes them.
const PAUSE_US: u64 = 60_000_000;

/// A row that nobody needs any more.
struct Idle {
    row: i64,
    name: String,
    token: i64,
}

impl Step<'_> {
    /// Makes the next step, unless some program has made one in the last minute: all that use the file take turns, and go on where
    /// the last one stopped. Time until this one need look again.
    pub(super) fn purge_in_turn(&mut self, now: Now) -> Result<u64, Failure> {
        let (last, cursor): (i64, i64) = self
            .connection
            .prepare_cached("SELECT purged_unix, purge_cursor FROM store WHERE id = 1")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        // A wall clock that was set back is not waited for.
        let since_us = signed(now.unix_us).abs_diff(last);
        if since_us < PAUSE_US {
            return Ok(PAUSE_US - since_us);
        }
        let cursor = self.purge_after(cursor, now)?;
        self.connection
            .prepare_cached("UPDATE store SET purged_unix = ?1, purge_cursor = ?2 WHERE id = 1")?
            .execute([signed(now.unix_us), cursor])?;
        Ok(PAUSE_US)
    }

    /// Looks at the rows after `cursor` and removes the idle ones. Where to go on.
    fn purge_after(&mut self, cursor: i64, now: Now) -> Result<i64, Failure> {
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
}

fn resource(name: &str) -> Result<Resource, Failure> {
    Resource::decode(name)
        .map_err(|invalid| Failure::Corrupt(format!("a row of the lease file has an {invalid}")))
}

//! Forgetting resources that nobody has used for a week.
//!
//! What a purged row knew is its token counter. The namespace keeps the highest one of all that were purged, and a
//! resource without a row starts above it, so that tokens rise whatever the wall clock did in between.

use leasehold_core::{Ttl, slot::Now};
use rusqlite::params;

use super::{
    apply::Step,
    failure::Failure,
    row::{self, signed},
};

/// Seven days, the retention of token counters.
const RETENTION_US: u64 = Ttl::MAX.as_micros();
/// Rows looked at in one step (ours: some ten microseconds; programs that run for seconds share the work by chance).
const STEP: i64 = 64;
/// Time between steps.
pub(super) const PAUSE_US: u64 = 60_000_000;

impl Step<'_> {
    /// Looks at the rows after `cursor`, or anywhere at first, and removes the idle ones. Where to go on.
    pub(super) fn purge(&mut self, cursor: Option<i64>, now: Now) -> Result<i64, Failure> {
        let cursor = match cursor {
            Some(cursor) => cursor,
            None => self.anywhere(now)?,
        };
        let mut idle = Vec::new();
        let (mut last, mut seen) = (cursor, 0);
        let mut statement =
            self.connection.prepare_cached(row::select!("WHERE id > ?1 ORDER BY id LIMIT ?2"))?;
        let mut rows = statement.query([cursor, STEP])?;
        while let Some(row) = rows.next()? {
            seen += 1;
            last = row.get(0)?;
            let touched = row.get::<_, i64>(22)?.unsigned_abs();
            if now.unix_us.saturating_sub(touched) < RETENTION_US {
                continue;
            }
            let (mut slot, cell) = row::decode(row)?;
            self.clocks.translate(self.connection, &mut slot, &cell, now, false)?;
            if cell.waiting == 0 && slot.is_free(now) {
                idle.push((last, slot.last_token));
            }
        }
        drop(rows);
        for (id, token) in idle {
            let token = token.map_or(0, |token| signed(token.get()));
            self.connection
                .prepare_cached(
                    "UPDATE space SET token_floor = max(token_floor, ?2) WHERE id = (SELECT space FROM slot WHERE id = ?1)",
                )?
                .execute(params![id, token])?;
            self.connection.prepare_cached("DELETE FROM observed WHERE slot = ?1")?.execute([id])?;
            self.connection.prepare_cached("DELETE FROM slot WHERE id = ?1")?.execute([id])?;
        }
        Ok(if seen < STEP { 0 } else { last })
    }

    /// A row by chance: short-lived programs would else all look at the same ones.
    fn anywhere(&self, now: Now) -> Result<i64, Failure> {
        let last: Option<i64> =
            self.connection.prepare_cached("SELECT max(id) FROM slot")?.query_row([], |row| row.get(0))?;
        let blocks = last.unwrap_or(0) / STEP + 1;
        Ok(signed(now.unix_us) % blocks * STEP)
    }
}

//! Looking without touching: one resource, or a page of them.

use std::time::Duration;

use leasehold_core::{
    Label, LeaseId, Resource,
    record::{Inspection, Page, WaiterInfo},
    request::Listing,
    slot::{Now, Slot},
};
use rusqlite::params;

use super::{
    apply::{Outcome, Step},
    boot::Relation,
    failure::Failure,
    heir,
    line::is_stale,
    row::{self, Cell},
};
use crate::coordinator::rules;

impl Step<'_> {
    pub(super) fn inspect(&mut self, resource: &Resource, now: Now) -> Outcome<Inspection> {
        let (slot, cell) = self.load(&resource.encode(), now)?;
        self.describe(resource.clone(), &slot, &cell, Inspection::MAX_WAITERS, now).map(Ok)
    }

    pub(super) fn list(&mut self, listing: &Listing, now: Now) -> Outcome<Page> {
        let quarantine = self.quarantine(now)?;
        let mut page = Page { items: Vec::new(), more: false, quarantine };
        let Some(space) = self.space_id()? else { return Ok(Ok(page)) };
        let prefix = encode_prefix(&listing.prefix);
        let mut after = listing.after.as_ref().map(Resource::encode).unwrap_or_default();
        let wanted = usize::from(listing.limit) + 1;
        while page.items.len() < wanted {
            let rows = self.rows(space, &prefix, &after, listing.free_too)?;
            let Some((last, _, _)) = rows.last() else { break };
            after.clone_from(last);
            for (name, mut slot, mut cell) in rows {
                let resource = Resource::decode(&name).map_err(|invalid| {
                    Failure::Corrupt(format!("a row of the lease file has an {invalid}"))
                })?;
                self.clocks.translate(self.connection, &mut slot, &mut cell, now, false)?;
                let item = self.describe(resource, &slot, &cell, 0, now)?;
                if listing.free_too || item.record.is_some() || item.waiting > 0 {
                    page.items.push(item);
                }
                if page.items.len() == wanted {
                    break;
                }
            }
        }
        page.more = page.items.len() == wanted;
        page.items.truncate(wanted - 1);
        Ok(Ok(page))
    }

    fn rows(
        &self,
        space: i64,
        prefix: &str,
        after: &str,
        free_too: bool,
    ) -> Result<Vec<(String, Slot, Cell)>, Failure> {
        // Every encoded name is ASCII: `~` sorts behind all that may follow the prefix.
        let mut statement = self.connection.prepare_cached(row::select!(
            "WHERE space = ?1 AND resource > ?2 AND resource >= ?3 AND resource < ?3 || '~' \
             AND (?4 OR lease_id IS NOT NULL OR waiting > 0) ORDER BY resource LIMIT 256"
        ))?;
        let rows = statement.query_map(params![space, after, prefix, free_too], |row| {
            let name: String = row.get(21)?;
            Ok(row::decode(row).map(|(slot, cell)| (name, slot, cell)))
        })?;
        rows.map(|row| row.map_err(Failure::from).and_then(|decoded| decoded)).collect()
    }

    fn describe(
        &mut self,
        resource: Resource,
        slot: &Slot,
        cell: &Cell,
        named: usize,
        now: Now,
    ) -> Result<Inspection, Failure> {
        let mut waiting = 0;
        let mut waiters = Vec::new();
        for (info, boot, refreshed, refreshed_unix) in self.waiters(cell, now)? {
            let dead = match self.clocks.relation(self.connection, boot)? {
                Relation::Rebooted => true,
                Relation::Same => is_stale(now.clock_us, refreshed),
                Relation::Unknown => is_stale(now.unix_us, refreshed_unix),
            };
            if !dead {
                waiting += 1;
                if waiters.len() < named {
                    waiters.push(info);
                }
            }
        }
        let inspection = rules::inspection(resource, slot, waiters, waiting, now);
        // Of a resource without a row only the floor of its next token is known.
        let last_token = cell.id.and_then(|_| heir::granted_token(slot, cell));
        Ok(Inspection { last_token, ..inspection })
    }

    fn waiters(&self, cell: &Cell, now: Now) -> Result<Vec<(WaiterInfo, i64, u64, u64)>, Failure> {
        let Some(slot) = cell.id.filter(|_| cell.waiting > 0) else { return Ok(Vec::new()) };
        let mut statement = self.connection.prepare_cached(
            "SELECT lease_id, label, joined, boot, refreshed, refreshed_unix FROM queue WHERE slot = ?1 ORDER BY sequence",
        )?;
        let found = statement.query_map([slot], |row| {
            let joined = row.get::<_, i64>(2)?.unsigned_abs();
            let info = WaiterInfo {
                lease_id: LeaseId::from_bytes(row.get(0)?),
                label: Label::from_lossy(row.get_ref(1)?.as_str()?),
                waited: Duration::from_micros(now.clock_us.saturating_sub(joined)),
            };
            let refreshed = row.get::<_, i64>(4)?.unsigned_abs();
            Ok((info, row.get(3)?, refreshed, row.get::<_, i64>(5)?.unsigned_abs()))
        })?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    }
}

/// The encoding of a prefix of names is a prefix of their encodings, because every byte is encoded by itself.
fn encode_prefix(prefix: &str) -> String {
    Resource::new(prefix).map(|prefix| prefix.encode()).unwrap_or_default()
}

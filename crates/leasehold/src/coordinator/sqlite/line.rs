//! The queue of one resource, on SQL.
//!
//! The row's `waiting` count saves every statement while nobody waits. An entry is dead when it was not refreshed in time,
//! when it is from before a reboot, or when the kernel knows that its process is gone.

use leasehold_core::{
    Label, LeaseId,
    line::{ENTRY_LIFE, Line},
    slot::Now,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{
    boot::Relation,
    clocks::Clocks,
    failure::Failure,
    row::{self, Cell, signed},
    wake::{Address, Ringer},
};

/// An entry younger than this is not written again (ours: a ninth of its life, so that a waiter at the front, who asks
/// every second, does not write to disk every second).
const REFRESH_US: u64 = ENTRY_LIFE.as_secs() * 1_000_000 / 9;
const ENTRY_LIFE_US: u64 = ENTRY_LIFE.as_secs() * 1_000_000;
/// How many at the front must be alive for those behind to rely on them.
const FRONT: usize = 2;

/// The queue, within a transaction.
#[derive(Debug)]
pub(super) struct SqlLine<'a> {
    pub(super) connection: &'a Connection,
    pub(super) clocks: &'a mut Clocks,
    pub(super) ringer: &'a Ringer,
    /// Where the asking process is woken.
    pub(super) own: Address,
    pub(super) space: i64,
    pub(super) resource: &'a str,
    pub(super) cell: &'a mut Cell,
    pub(super) now: Now,
    /// The last head that was found, and where it is woken.
    pub(super) head: Option<(LeaseId, Address)>,
    /// What people call it.
    pub(super) head_label: Label,
    /// Who has come to the front because the dead before them were removed: they were told to sleep for longer.
    pub(super) promoted: Vec<(LeaseId, Address)>,
}

struct Found {
    sequence: i64,
    lease_id: LeaseId,
    boot: i64,
    refreshed_us: u64,
    refreshed_unix: u64,
    wake: Address,
    label: Label,
}

impl SqlLine<'_> {
    fn slot(&mut self) -> Result<i64, Failure> {
        if let Some(id) = self.cell.id {
            return Ok(id);
        }
        let id = row::insert(self.connection, self.space, self.resource, self.now)?;
        Ok(*self.cell.id.insert(id))
    }

    fn front(&self, slot: i64, count: usize) -> Result<Vec<Found>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "SELECT sequence, lease_id, boot, refreshed, refreshed_unix, wake, label FROM queue WHERE slot = ?1 \
             ORDER BY sequence LIMIT ?2",
        )?;
        let found = statement.query_map(params![slot, signed(count as u64)], |row| {
            Ok(Found {
                sequence: row.get(0)?,
                lease_id: LeaseId::from_bytes(row.get(1)?),
                boot: row.get(2)?,
                refreshed_us: row.get::<_, i64>(3)?.unsigned_abs(),
                refreshed_unix: row.get::<_, i64>(4)?.unsigned_abs(),
                wake: row.get(5)?,
                label: Label::from_lossy(row.get_ref(6)?.as_str()?),
            })
        })?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    }

    fn is_dead(&mut self, entry: &Found) -> Result<bool, Failure> {
        Ok(match self.clocks.relation(self.connection, entry.boot)? {
            Relation::Rebooted => true,
            Relation::Same if is_stale(self.now.clock_us, entry.refreshed_us) => true,
            // A clock that we cannot read: the wall clock will do, for order alone hangs on it.
            Relation::Unknown if is_stale(self.now.unix_us, entry.refreshed_unix) => true,
            _ => self.ringer.is_dead(&entry.wake),
        })
    }

    fn remove(&mut self, sequence: i64) -> Result<(), Failure> {
        let gone =
            self.connection.prepare_cached("DELETE FROM queue WHERE sequence = ?1")?.execute([sequence])?;
        self.count_down(gone);
        Ok(())
    }

    fn count_down(&mut self, gone: usize) {
        self.cell.waiting = self.cell.waiting.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
    }

    /// Removes the dead until the front is alive: those behind ask seldom, because they rely on the front to notice.
    fn prune(&mut self, slot: i64) -> Result<(), Failure> {
        let mut alive = Vec::new();
        let mut buried = false;
        for entry in self.front(slot, 8)? {
            if self.is_dead(&entry)? {
                self.remove(entry.sequence)?;
                buried = true;
            } else {
                alive.push((entry.lease_id, entry.wake));
            }
            if alive.len() == FRONT {
                break;
            }
        }
        if buried {
            self.promoted.append(&mut alive);
        }
        Ok(())
    }

    /// Gives up the place of a dead process. False when it is gone already, or another process took it over: that one asked
    /// after the resource became free, and knows.
    pub(super) fn bury(&mut self, lease_id: LeaseId, address: &Address) -> Result<bool, Failure> {
        let Some(slot) = self.cell.id.filter(|_| self.cell.waiting > 0) else { return Ok(false) };
        let gone = self
            .connection
            .prepare_cached("DELETE FROM queue WHERE slot = ?1 AND lease_id = ?2 AND wake = ?3")?
            .execute(params![slot, lease_id.as_bytes(), address])?;
        self.count_down(gone);
        Ok(gone > 0)
    }

    fn place(&self, slot: i64, lease_id: LeaseId) -> Result<Option<(i64, u32)>, Failure> {
        let mine: Option<i64> = self
            .connection
            .prepare_cached("SELECT sequence FROM queue WHERE slot = ?1 AND lease_id = ?2")?
            .query_row(params![slot, lease_id.as_bytes()], |row| row.get(0))
            .optional()?;
        let Some(sequence) = mine else { return Ok(None) };
        let ahead = self
            .connection
            .prepare_cached("SELECT count(*) FROM queue WHERE slot = ?1 AND sequence < ?2")?
            .query_row([slot, sequence], |row| row.get(0))?;
        Ok(Some((sequence, ahead)))
    }
}

pub(super) fn is_stale(now_us: u64, refreshed_us: u64) -> bool {
    now_us.saturating_sub(refreshed_us) >= ENTRY_LIFE_US
}

impl Line for SqlLine<'_> {
    type Error = Failure;

    fn enter(&mut self, lease_id: LeaseId, label: &Label, now_us: u64) -> Result<(), Failure> {
        let slot = self.slot()?;
        let mine = self.clocks.my_id(self.connection)?;
        let refreshed: Option<(i64, i64)> = self
            .connection
            .prepare_cached("SELECT boot, refreshed FROM queue WHERE slot = ?1 AND lease_id = ?2")?
            .query_row(params![slot, lease_id.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let (now, unix) = (signed(now_us), signed(self.now.unix_us));
        match refreshed {
            Some((boot, at)) if boot == mine && now_us.saturating_sub(at.unsigned_abs()) < REFRESH_US => {}
            Some(_) => {
                self.connection
                    .prepare_cached(
                        "UPDATE queue SET boot = ?3, refreshed = ?4, refreshed_unix = ?5, wake = ?6 \
                         WHERE slot = ?1 AND lease_id = ?2",
                    )?
                    .execute(params![slot, lease_id.as_bytes(), mine, now, unix, self.own])?;
            }
            None => {
                self.connection
                    .prepare_cached(
                        "INSERT INTO queue (slot, lease_id, label, boot, joined, refreshed, refreshed_unix, wake) \
                         VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7)",
                    )?
                    .execute(params![slot, lease_id.as_bytes(), label.as_str(), mine, now, unix, self.own])?;
                self.cell.waiting += 1;
            }
        }
        Ok(())
    }

    fn leave(&mut self, lease_id: LeaseId) -> Result<bool, Failure> {
        let Some(slot) = self.cell.id.filter(|_| self.cell.waiting > 0) else { return Ok(false) };
        let gone = self
            .connection
            .prepare_cached("DELETE FROM queue WHERE slot = ?1 AND lease_id = ?2")?
            .execute(params![slot, lease_id.as_bytes()])?;
        self.count_down(gone);
        Ok(gone > 0)
    }

    fn head(&mut self, _now_us: u64) -> Result<Option<LeaseId>, Failure> {
        self.head = None;
        let Some(slot) = self.cell.id.filter(|_| self.cell.waiting > 0) else { return Ok(None) };
        let mut buried = false;
        while let Some(entry) = self.front(slot, 1)?.pop() {
            if !self.is_dead(&entry)? {
                self.head = Some((entry.lease_id, entry.wake));
                self.head_label = entry.label;
                self.promoted.extend(self.head.filter(|_| buried));
                return Ok(Some(entry.lease_id));
            }
            self.remove(entry.sequence)?;
            buried = true;
        }
        self.cell.waiting = 0;
        Ok(None)
    }

    fn ahead_of(&mut self, lease_id: LeaseId) -> Result<Option<u32>, Failure> {
        let Some(slot) = self.cell.id.filter(|_| self.cell.waiting > 0) else { return Ok(None) };
        let Some((_, ahead)) = self.place(slot, lease_id)? else { return Ok(None) };
        if (ahead as usize) < FRONT {
            return Ok(Some(ahead));
        }
        self.prune(slot)?;
        Ok(self.place(slot, lease_id)?.map(|(_, ahead)| ahead))
    }

    fn count(&mut self) -> Result<u32, Failure> {
        Ok(self.cell.waiting)
    }
}

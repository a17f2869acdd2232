//! Times in the file, translated to this process's clock.
//!
//! A time written by our own clock is taken as it is. One from before a reboot has passed. One of a clock that we cannot
//! read is *observed*: when this clock first sees such a lease, it notes, in the file, the moment at which the lease must
//! have run out if its holder stays silent (its whole span from now, plus the margin for clock rates), and only a renewal,
//! which rewrites the lease, makes it observe anew. The note is kept per observing clock, so that two kinds of
//! observers do not put one another off for ever; and the record itself is left to its holder.

use std::collections::HashMap;

use leasehold_core::slot::{Now, Slot};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{
    boot::{Boot, Relation},
    failure::Failure,
    heir::Heir,
    row::{Cell, Stamp, signed},
};

/// So many identities of single runs are kept (ours: more than programs that run at a time).
const RUNS: i64 = 64;

/// The clocks known to one connection.
#[derive(Debug)]
pub(super) struct Clocks {
    mine: Boot,
    local: bool,
    my_id: Option<i64>,
    relations: HashMap<i64, Relation>,
}

/// Times of rows without any.
pub(super) const NO_BOOT: i64 = 0;
/// The key of the store's own quarantine among observations; rows of slots count from 1.
const STORE: i64 = 0;

impl Clocks {
    pub(super) fn new(mine: Boot, local: bool) -> Self {
        Self { mine, local, my_id: None, relations: HashMap::new() }
    }

    pub(super) fn mine(&self) -> &Boot {
        &self.mine
    }

    pub(super) fn is_local(&self) -> bool {
        self.local
    }

    /// True when a reboot of this machine is recognised in what was written now.
    pub(super) fn tells_reboots(&self) -> bool {
        self.local && self.mine.tells_reboots()
    }

    /// Forgets what a rolled-back transaction may have written.
    pub(super) fn forget(&mut self) {
        self.my_id = None;
        self.relations.clear();
    }

    /// The number of our own clock in this file, which gets one where it has none.
    pub(super) fn my_id(&mut self, connection: &Connection) -> Result<i64, Failure> {
        if let Some(id) = self.my_id {
            return Ok(id);
        }
        let text = self.mine.text();
        let found = connection
            .query_row("SELECT id FROM boot WHERE identity = ?1", [&text], |row| row.get(0))
            .optional()?;
        let id = if let Some(id) = found {
            id
        } else {
            connection.execute("INSERT INTO boot (identity) VALUES (?1)", [&text])?;
            let id = connection.last_insert_rowid();
            if self.mine.is_of_one_run() {
                forget_runs(connection, id)?;
            }
            id
        };
        self.relations.insert(id, Relation::Same);
        self.my_id = Some(id);
        Ok(id)
    }

    pub(super) fn relation(&mut self, connection: &Connection, boot: i64) -> Result<Relation, Failure> {
        if boot == NO_BOOT {
            return Ok(Relation::Same);
        }
        if let Some(&relation) = self.relations.get(&boot) {
            return Ok(relation);
        }
        let identity: Option<String> = connection
            .query_row("SELECT identity FROM boot WHERE id = ?1", [boot], |row| row.get(0))
            .optional()?;
        let relation =
            identity.map_or(Relation::Unknown, |text| self.mine.relation(&Boot::parse(&text), self.local));
        self.relations.insert(boot, relation);
        Ok(relation)
    }

    /// Translates the times of a slot. `observe`: note what has to be observed (in a transaction that writes).
    pub(super) fn translate(
        &mut self,
        connection: &Connection,
        slot: &mut Slot,
        cell: &mut Cell,
        now: Now,
        observe: bool,
    ) -> Result<(), Failure> {
        let at_us = match self.relation(connection, cell.stamp.boot)? {
            Relation::Same => return Ok(()),
            Relation::Rebooted => {
                // It may have been taken, and the machine have gone down before that was on its disk.
                slot.held = slot.held.take().or(cell.heir.take().map(Heir::lapsed));
                0
            }
            Relation::Unknown if slot.held.is_none() => 0,
            Relation::Unknown => {
                let key = cell.id.unwrap_or(STORE);
                self.observed(connection, key, cell.stamp, now, observe)?
            }
        };
        match &mut slot.held {
            Some(held) => held.expires_us = at_us,
            None => slot.free_since_us = at_us,
        }
        Ok(())
    }

    /// When something stamped by an unknown clock must be over, by ours.
    pub(super) fn observed(
        &mut self,
        connection: &Connection,
        key: i64,
        stamp: Stamp,
        now: Now,
        observe: bool,
    ) -> Result<u64, Failure> {
        let known = self.my_known_id(connection)?;
        let noted: Option<i64> = connection
            .prepare_cached(
                "SELECT until FROM observed WHERE slot = ?1 AND boot = ?2 AND record_boot = ?3 AND record_at = ?4",
            )?
            .query_row(params![key, known, stamp.boot, signed(stamp.at_us)], |row| row.get(0))
            .optional()?;
        if let Some(until) = noted {
            return Ok(until.unsigned_abs());
        }
        let until = now.clock_us.saturating_add(with_margin(stamp.span_us));
        if observe {
            let mine = self.my_id(connection)?;
            connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO observed (slot, boot, record_boot, record_at, until) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![key, mine, stamp.boot, signed(stamp.at_us), signed(until)])?;
        }
        Ok(until)
    }

    /// Our number if the file has one, without giving one.
    fn my_known_id(&self, connection: &Connection) -> Result<Option<i64>, Failure> {
        if self.my_id.is_some() {
            return Ok(self.my_id);
        }
        let text = self.mine.text();
        Ok(connection
            .query_row("SELECT id FROM boot WHERE identity = ?1", [&text], |row| row.get(0))
            .optional()?)
    }
}

/// Where the machine tells no boot id, every run of a program adds an identity, and may add observations. Forgets those before
/// the newest [`RUNS`]. To everybody else an identity that is not there is what it was, unknown; its own process, should it
/// still live, goes on with the number that it has, or takes a new one and finds its old leases unknown, which are waited
/// out. A number is never given twice: the highest one stays.
fn forget_runs(connection: &Connection, newest: i64) -> Result<(), Failure> {
    let gone = connection
        .execute("DELETE FROM boot WHERE id <= ?1 AND identity LIKE '%/unknown-%/%'", [newest - RUNS])?;
    if gone > 0 {
        connection.execute("DELETE FROM observed WHERE boot NOT IN (SELECT id FROM boot)", [])?;
    }
    Ok(())
}

/// `T·(1+2ρ) + ε` with ρ = 5,000 ppm and ε = 2 ms: what the holder's own window is short of, on the other side.
fn with_margin(span_us: u64) -> u64 {
    span_us.saturating_add(span_us / 100).saturating_add(2_000)
}

//! The namespace's row: its settings, whether it has granted yet, and the quarantine of a file that is younger than grants
//! an older one may have held.

use std::time::Duration;

use leasehold_core::{Error, Kind, Token, Ttl, record::Prepared, request::Preparation, slot::Now};
use rusqlite::{OptionalExtension as _, params};

use super::{
    apply::{Outcome, Step},
    boot::{Boot, Relation},
    clocks::NO_BOOT,
    failure::Failure,
    row::{Stamp, signed},
};
use crate::coordinator::rules;

/// The namespace's settings, as the file has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) id: i64,
    pub(super) max_ttl: Ttl,
    pub(super) settled: bool,
    pub(super) fresh: bool,
    pub(super) token_floor: Option<Token>,
}

/// What is known of the file for as long as it is open.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// A file is quarantined when it is made, or never.
    quarantine_over: bool,
}

/// Whether the namespace was looked for in this transaction, and what was found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lookup {
    Pending,
    Done(Option<Space>),
}

impl Step<'_> {
    pub(super) fn space(&mut self) -> Result<Option<Space>, Failure> {
        if let Lookup::Done(known) = self.space {
            return Ok(known);
        }
        let found = self
            .connection
            .prepare_cached("SELECT id, max_ttl_ms, settled, fresh, token_floor FROM space WHERE name = ?1")?
            .query_row([self.setting.namespace.as_str()], |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?, row.get::<_, i64>(4)?))
            })
            .optional()?;
        let found = match found {
            None => None,
            Some((id, max_ttl_ms, settled, fresh, token_floor)) => Some(Space {
                id,
                max_ttl: Ttl::from_millis(max_ttl_ms.unsigned_abs())
                    .map_err(|invalid| Failure::Corrupt(format!("the namespace's longest {invalid}")))?,
                settled,
                fresh,
                token_floor: Token::new(token_floor.unsigned_abs()).ok(),
            }),
        };
        self.space = Lookup::Done(found);
        Ok(found)
    }

    pub(super) fn space_id(&mut self) -> Result<Option<i64>, Failure> {
        Ok(self.space()?.map(|space| space.id))
    }

    fn make_space(&mut self, max_ttl: Ttl, settled: bool, fresh: bool) -> Result<Space, Failure> {
        self.connection.execute(
            "INSERT INTO space (name, max_ttl_ms, settled, fresh) VALUES (?1, ?2, ?3, ?4)",
            params![self.setting.namespace.as_str(), signed(max_ttl.as_millis()), settled, fresh],
        )?;
        let id = self.connection.last_insert_rowid();
        let space = Space { id, max_ttl, settled, fresh, token_floor: None };
        self.space = Lookup::Done(Some(space));
        Ok(space)
    }

    /// The space for a claim, made on first contact.
    pub(super) fn claimed_space(&mut self) -> Result<Space, Failure> {
        match self.space()? {
            Some(space) => Ok(space),
            None => self.make_space(self.setting.told_max_ttl.unwrap_or(Ttl::LOCAL_MAX), false, false),
        }
    }

    /// Time until the namespace grants, while the file is younger than grants that an older one may have held.
    pub(super) fn quarantine(&mut self, now: Now) -> Result<Option<Duration>, Failure> {
        if self.memo.quarantine_over || self.space()?.is_some_and(|space| space.fresh) {
            return Ok(None);
        }
        let (boot, until, span): (String, i64, i64) = self
            .connection
            .prepare_cached(
                "SELECT quarantine_boot, quarantine_until, quarantine_span FROM store WHERE id = 1",
            )?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let until_us = match self.clocks.mine().relation(&Boot::parse(&boot), self.clocks.is_local()) {
            _ if span == 0 => 0,
            Relation::Same => until.unsigned_abs(),
            Relation::Rebooted => 0,
            Relation::Unknown => {
                let stamp =
                    Stamp { boot: NO_BOOT, at_us: until.unsigned_abs(), span_us: span.unsigned_abs() };
                let observe = self.writes();
                self.clocks.observed(self.connection, 0, stamp, now, observe)?
            }
        };
        let left = rules::left(until_us, now);
        self.memo.quarantine_over = left.is_none();
        Ok(left)
    }

    /// Notes that the namespace has granted: it can never be made fresh again.
    pub(super) fn settle(&mut self, space: Space) -> Result<(), Failure> {
        if !space.settled {
            self.connection.execute("UPDATE space SET settled = 1 WHERE id = ?1", [space.id])?;
            self.space = Lookup::Pending;
        }
        Ok(())
    }

    /// A client that would quarantine for another time than the file's grants may last is refused.
    pub(super) fn agree(&self, space: Space) -> Result<(), Error> {
        let told = self.setting.told_max_ttl;
        if told.unwrap_or(space.max_ttl.min(Ttl::LOCAL_MAX)) == space.max_ttl {
            return Ok(());
        }
        let what = format!(
            "this client was told a longest TTL of {}, the namespace {} has {}",
            told.unwrap_or(Ttl::LOCAL_MAX),
            self.setting.namespace,
            space.max_ttl
        );
        Err(Error::new(Kind::Invalid, what).advise(format!(
            "put max_ttl={}ms into the URL, or change the namespace with `leasehold init --max-ttl`",
            space.max_ttl.as_millis()
        )))
    }

    pub(super) fn prepare(&mut self, preparation: Preparation, now: Now) -> Outcome<Prepared> {
        let existing = self.space()?;
        if preparation.fresh && existing.is_some_and(|space| space.settled) {
            return Ok(Err(rules::not_fresh(self.setting.namespace.as_str())));
        }
        let asked = preparation.max_ttl.or(self.setting.told_max_ttl.filter(|_| existing.is_none()));
        let max_ttl = asked.unwrap_or_else(|| existing.map_or(Ttl::LOCAL_MAX, |space| space.max_ttl));
        match existing {
            None => drop(self.make_space(max_ttl, true, preparation.fresh)?),
            Some(space) => {
                self.connection.execute(
                    "UPDATE space SET max_ttl_ms = ?2, settled = 1, fresh = fresh OR ?3 WHERE id = ?1",
                    params![space.id, signed(max_ttl.as_millis()), preparation.fresh],
                )?;
                self.space = Lookup::Pending;
            }
        }
        let created = existing.is_none_or(|space| !space.settled);
        let quarantine = self.quarantine(now)?;
        Ok(Ok(Prepared { created, max_ttl, quarantine, place: self.setting.place.clone() }))
    }
}

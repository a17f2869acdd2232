//! Transactions on the open file: all requests that have gathered are one.

use std::{io, path::Path, sync::Arc};

use leasehold_core::{Error, Kind, Namespace, Ttl, slot::Now};
use rusqlite::OptionalExtension as _;

use super::{
    apply::{Effects, Outcome, Ring, Setting, Step, Unheard},
    failure::{self, Failure},
    gate::{Gate, Passage},
    horizon::Horizon,
    open::{self, Opened},
    place::Companions,
    request::{Reply, Request, Work},
    space::Memo,
    wake::Ringer,
};
use crate::clock::{self, Clock};

/// An open file and what is done on it.
#[derive(Debug)]
pub(super) struct Session {
    opened: Opened,
    memo: Memo,
    /// Nothing is to be forgotten before.
    purge_after_us: u64,
    /// What the horizon is at least: only ever raised by others.
    horizon_us: u64,
    gate_checked_us: u64,
    /// The log and the index that were beside the file when it was opened.
    companions: Companions,
    /// True once this session has looked whether the log it came to is long.
    tidied: bool,
    /// True while commits of this connection do not wait for the disk.
    quick: bool,
    /// True while something that was committed may not be on the disk yet.
    unsettled: bool,
}

/// The lock file is looked for this often: its loss costs order between processes and the horizon, not exclusion.
const GATE_CHECK_US: u64 = 100_000;

/// How a transaction ended.
pub(super) struct Done {
    /// One per request.
    pub(super) answers: Vec<Result<Reply, Error>>,
    /// Those first in line who turned out to be dead when they were woken.
    pub(super) unheard: Vec<Unheard>,
    /// True when the connection can be used further.
    pub(super) healthy: bool,
}

/// Fixed parts that every transaction needs.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) setting: Setting,
    pub(super) ringer: Ringer,
    pub(super) clock: Arc<dyn Clock>,
}

impl Context {
    fn now(&self) -> Now {
        clock::now(&*self.clock)
    }
}

impl Session {
    pub(super) fn open(path: &Path, max_ttl: Ttl, clock: &dyn Clock) -> Result<Self, Error> {
        let opened = open::open(path, max_ttl, clock::now(clock))?;
        let companions = Companions::of(path)
            .map_err(|error| failure::from_io("cannot look beside the lease file", &error))?;
        Ok(Self {
            opened,
            memo: Memo::default(),
            purge_after_us: 0,
            horizon_us: 0,
            gate_checked_us: 0,
            companions,
            tidied: false,
            quick: false,
            unsettled: false,
        })
    }

    /// The longest TTL that the file has for a namespace.
    pub(super) fn max_ttl(&self, namespace: &Namespace) -> Result<Option<Ttl>, Error> {
        let found: Option<i64> = self
            .opened
            .connection
            .query_row("SELECT max_ttl_ms FROM space WHERE name = ?1", [namespace.as_str()], |row| row.get(0))
            .optional()
            .map_err(|error| failure::from_sql("cannot read the lease file", &error))?;
        Ok(found.and_then(|ms| Ttl::from_millis(ms.unsigned_abs()).ok()))
    }

    /// True once, when the log that this session came to is long.
    pub(super) fn wants_tidying(&mut self) -> bool {
        !std::mem::replace(&mut self.tidied, true) && self.opened.has_long_log()
    }

    /// Moves the log along.
    pub(super) fn tidy(&self) {
        self.opened.move_log();
    }

    /// The gate to pass before writing; a new one when its file was taken away.
    pub(super) fn gate(&mut self, path: &Path, context: &Context) -> Result<Arc<Gate>, Error> {
        let now_us = context.now().clock_us;
        if now_us.saturating_sub(self.gate_checked_us) >= GATE_CHECK_US {
            self.gate_checked_us = now_us;
            if !self.opened.gate.is_in_place() {
                self.renew_gate(path, context)?;
            }
        }
        Ok(Arc::clone(&self.opened.gate))
    }

    /// True while the path still points at the file that is open, and what belongs to it is beside it.
    pub(super) fn is_in_place(&self, path: &Path) -> io::Result<bool> {
        Ok(self.opened.in_use.is_at(path)? && self.companions.are_in_place())
    }

    /// True while something that was committed may not be on the disk yet.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Begins a transaction. When this fails nothing was changed.
    pub(super) fn begin(&mut self, work: Work) -> Result<(), Error> {
        let (sql, quick) = match work {
            Work::Read => ("BEGIN", self.quick),
            Work::Inherit => ("BEGIN IMMEDIATE", true),
            Work::Write => ("BEGIN IMMEDIATE", false),
        };
        let ready = if quick == self.quick { Ok(()) } else { self.be_quick(quick) };
        ready
            .and_then(|()| self.run(sql))
            .map_err(|error| failure::from_sql("the lease file cannot be changed now", &error))
    }

    /// From now on commits do not wait until they are on the disk, or do again. Between transactions only.
    fn be_quick(&mut self, quick: bool) -> rusqlite::Result<()> {
        // SQLite does this when it reads the statement: there is nothing to be kept ready.
        let sql = if quick { "PRAGMA synchronous = NORMAL" } else { "PRAGMA synchronous = FULL" };
        self.opened.connection.execute_batch(sql)?;
        self.quick = quick;
        Ok(())
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.opened.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    fn roll_back(&mut self) {
        self.opened.clocks.forget();
        if !self.opened.connection.is_autocommit()
            && let Err(error) = self.run("ROLLBACK")
        {
            tracing::error!(%error, "cannot roll back");
        }
    }

    /// Applies `requests` in the transaction that has begun, and commits it. `passage` stands for the right to write.
    pub(super) fn apply(
        &mut self,
        requests: &[&Request],
        work: Work,
        context: &Context,
        passage: Option<&Passage<'_>>,
    ) -> Done {
        if work == Work::Inherit {
            return self.apply_quickly(requests, context, passage);
        }
        let changes = self.opened.connection.total_changes();
        let applied = self.apply_all(requests, work, context, passage);
        match applied {
            Ok((answers, effects)) => {
                let unheard = ring(&context.ringer, effects.rings);
                // A commit without a change writes nothing and waits for nothing.
                let settles = self.opened.connection.total_changes() != changes;
                self.commit(answers, unheard, settles)
            }
            Err(failure) => {
                self.roll_back();
                self.apply_apart(requests, context, passage, &failure)
            }
        }
    }

    /// Applies claims that only take what was set aside for them, and commits them without waiting for the disk: what must
    /// survive the machine is there already. Where that is not all, nothing of it is kept, and it is done anew as usual.
    fn apply_quickly(
        &mut self,
        requests: &[&Request],
        context: &Context,
        passage: Option<&Passage<'_>>,
    ) -> Done {
        let changes = self.opened.connection.total_changes();
        if let Ok((answers, effects)) = self.apply_all(requests, Work::Inherit, context, passage)
            && !effects.must_last
        {
            let unheard = ring(&context.ringer, effects.rings);
            self.unsettled |= self.opened.connection.total_changes() != changes;
            return self.commit(answers, unheard, false);
        }
        self.roll_back();
        match self.begin(Work::Write) {
            Ok(()) => self.apply(requests, Work::Write, context, passage),
            Err(error) => {
                let answers = requests.iter().map(|_| Err(error.clone())).collect();
                Done { answers, unheard: Vec::new(), healthy: true }
            }
        }
    }

    /// One of several requests failed: each gets a transaction of its own, so that none suffers for another.
    fn apply_apart(
        &mut self,
        requests: &[&Request],
        context: &Context,
        passage: Option<&Passage<'_>>,
        failure: &Failure,
    ) -> Done {
        let mut whole = Done { answers: Vec::new(), unheard: Vec::new(), healthy: true };
        if requests.len() <= 1 {
            whole.answers.extend(requests.iter().map(|_| Err(failure.error())));
            return whole;
        }
        for request in requests {
            let work = if passage.is_some() { Work::Write } else { Work::Read };
            let done = match self.begin(work) {
                Ok(()) => self.apply(&[request], work, context, passage),
                Err(error) => Done { answers: vec![Err(error)], unheard: Vec::new(), healthy: true },
            };
            whole.answers.extend(done.answers);
            whole.unheard.extend(done.unheard);
            whole.healthy &= done.healthy;
        }
        whole
    }

    fn apply_all(
        &mut self,
        requests: &[&Request],
        work: Work,
        context: &Context,
        passage: Option<&Passage<'_>>,
    ) -> Result<(Vec<Result<Reply, Error>>, Effects), Failure> {
        let Opened { connection, clocks, gate, .. } = &mut self.opened;
        let mut step = Step::new(connection, clocks, &context.ringer, &context.setting, &mut self.memo);
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(one(&mut step, request, context.now())?);
        }
        if work == Work::Write {
            let now = context.now();
            if now.clock_us >= self.purge_after_us {
                self.purge_after_us = now.clock_us.saturating_add(step.purge_in_turn(now)?);
            }
        }
        let effects = step.effects;
        if let Some(passage) = passage.filter(|_| effects.horizon_us > self.horizon_us) {
            self.horizon_us =
                Horizon::raise(gate, passage, clocks.mine(), clocks.is_local(), effects.horizon_us)?;
        }
        Ok((answers, effects))
    }

    /// `settles`: what was committed before is on the disk with it.
    fn commit(&mut self, answers: Vec<Result<Reply, Error>>, unheard: Vec<Unheard>, settles: bool) -> Done {
        let Err(error) = self.run("COMMIT") else {
            self.unsettled &= !settles;
            return Done { answers, unheard, healthy: true };
        };
        self.roll_back();
        let error = failure::from_commit(&error);
        // What changed nothing was answered from what is there; only the changes are in doubt. They are not told apart.
        let answers = answers.into_iter().map(|answer| answer.and(Err(error.clone()))).collect();
        Done { answers, unheard: Vec::new(), healthy: error.kind() != Kind::Unknown }
    }

    /// Puts the horizon into a lock file that has just replaced another.
    fn renew_gate(&mut self, path: &Path, context: &Context) -> Result<(), Error> {
        let failed = |error: io::Error| failure::from_io("cannot replace the lock file", &error);
        self.opened.gate = Gate::open(path).map_err(failed)?;
        self.horizon_us = 0;
        let gate = Arc::clone(&self.opened.gate);
        gate.show_life().map_err(failed)?;
        let passage = gate.pass().map_err(failed)?;
        let latest: Option<i64> = self
            .opened
            .connection
            .query_row("SELECT max(at) FROM slot WHERE lease_id IS NOT NULL", [], |row| row.get(0))
            .map_err(|error| failure::from_sql("cannot read the lease file", &error))?;
        let latest = latest.map_or(0, i64::unsigned_abs).max(context.now().clock_us);
        let clocks = &self.opened.clocks;
        Horizon::raise(&gate, &passage, clocks.mine(), clocks.is_local(), latest).map_err(failed).map(drop)
    }
}

/// Wakes those who can go on, *before* the commit: a wake takes about as long as a commit does, and whoever is woken queues at
/// the gate until it is over. Should the commit fail, they have asked once for nothing. Gives those first in line
/// who were found dead.
fn ring(ringer: &Ringer, rings: Vec<Ring>) -> Vec<Unheard> {
    let unheard = |Ring { address, lease_id, reserved }: Ring| {
        let heard = ringer.ring(&address, lease_id);
        let resource = reserved.filter(|_| !heard)?;
        Some(Unheard { resource, lease_id, address })
    };
    rings.into_iter().filter_map(unheard).collect()
}

fn one(step: &mut Step<'_>, request: &Request, now: Now) -> Outcome<Reply> {
    Ok(match request {
        Request::Acquire(claim) | Request::AcquireWoken(claim) => {
            step.acquire(claim, now)?.map(Reply::Acquired)
        }
        Request::Renew(renewals) => {
            let answers =
                renewals.iter().map(|renewal| step.renew(renewal, now)).collect::<Result<_, _>>()?;
            Ok(Reply::Renewed(answers))
        }
        Request::Release(release) => step.release(release, now)?.map(Reply::Released),
        Request::Revoke(revocation) => step.revoke(revocation, now)?.map(Reply::Revoked),
        Request::Inspect(resource) => step.inspect(resource, now)?.map(Reply::Inspected),
        Request::History(resource) => step.history(resource, now)?.map(Reply::History),
        Request::List(listing) => step.list(listing, now)?.map(Reply::Listed),
        Request::Prepare(preparation) => step.prepare(*preparation, now)?.map(Reply::Prepared),
        Request::Purge(purge) => Ok(Reply::Purged(step.purge_page(purge, now)?)),
        Request::Discard => Ok(Reply::Discarded(step.discard()?)),
        Request::PassOver(unheard) => step.pass_over(unheard, now)?.map(|()| Reply::Passed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    /// What SQLite calls FULL and NORMAL.
    const WAITS: i64 = 2;
    const IS_QUICK: i64 = 1;

    #[test]
    fn only_what_is_inherited_is_committed_without_waiting_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let mut session = Session::open(&path, Ttl::LOCAL_MAX, &SystemClock).unwrap();
        let works = [Work::Write, Work::Inherit, Work::Read, Work::Inherit, Work::Write, Work::Read];
        let modes: [i64; 6] = works.map(|work| {
            session.begin(work).unwrap();
            let mode = session.opened.connection.query_row("PRAGMA synchronous", [], |row| row.get(0));
            session.roll_back();
            mode.unwrap()
        });
        assert_eq!(modes, [WAITS, IS_QUICK, IS_QUICK, IS_QUICK, WAITS, WAITS]);
    }
}

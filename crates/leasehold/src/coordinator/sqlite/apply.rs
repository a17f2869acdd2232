//! One request on one transaction: read the row, let [`Slot`] decide, write the row.

use leasehold_core::{
    Error, Label, LeaseId, Resource, Ttl,
    record::{Acquired, Released, Renewed, Revoked},
    request::{Claim, MAX_LOCK_DELAY, Release, Renewal, Revocation},
    slot::{Fault, Freed, Now, Slot, expiry},
};
use rusqlite::Connection;

use super::{
    clocks::{Clocks, NO_BOOT},
    failure::Failure,
    heir,
    line::SqlLine,
    past,
    row::{self, Cell, Stamp},
    space::{Lookup, Memo},
    wake::{Address, Ringer},
};
use crate::coordinator::rules;

/// An answer, or the refusal of this one request; a [`Failure`] gives up the transaction.
pub(super) type Outcome<T> = Result<Result<T, Error>, Failure>;

/// Somebody to be woken by what the transaction does.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) address: Address,
    pub(super) lease_id: LeaseId,
    /// The resource that is now reserved for this waiter; `None` for a holder, for whom nothing is.
    pub(super) reserved: Option<Resource>,
}

/// The first in line of a freed resource, whose process was found to be gone when it was woken.
#[derive(Clone, Debug)]
pub(super) struct Unheard {
    pub(super) resource: Resource,
    pub(super) lease_id: LeaseId,
    pub(super) address: Address,
}

/// What a transaction leaves to be done.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) rings: Vec<Ring>,
    /// The latest expiry granted; 0 for none.
    pub(super) horizon_us: u64,
    /// True when something was decided that must survive the machine and is not on its disk yet.
    pub(super) must_last: bool,
}

/// Fixed facts of the coordinator whose requests are applied.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) namespace: leasehold_core::Namespace,
    pub(super) place: String,
    /// The longest TTL that the client was told about by its URL.
    pub(super) told_max_ttl: Option<Ttl>,
    pub(super) own: Address,
}

/// One transaction.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) connection: &'a Connection,
    pub(super) clocks: &'a mut Clocks,
    pub(super) ringer: &'a Ringer,
    pub(super) setting: &'a Setting,
    pub(super) effects: Effects,
    pub(super) memo: &'a mut Memo,
    pub(super) space: Lookup,
}

impl<'a> Step<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        clocks: &'a mut Clocks,
        ringer: &'a Ringer,
        setting: &'a Setting,
        memo: &'a mut Memo,
    ) -> Self {
        Self {
            connection,
            clocks,
            ringer,
            setting,
            effects: Effects::default(),
            memo,
            space: Lookup::Pending,
        }
    }

    /// True in a transaction that writes.
    pub(super) fn writes(&self) -> bool {
        matches!(self.connection.transaction_state(Some("main")), Ok(rusqlite::TransactionState::Write))
    }

    /// Reads a resource. Its times are this process's.
    pub(super) fn load(&mut self, resource: &str, now: Now) -> Result<(Slot, Cell), Failure> {
        let space = self.space()?;
        let found = match space {
            Some(space) => row::load(self.connection, space.id, resource)?,
            None => None,
        };
        let Some((mut slot, mut cell)) = found else {
            let slot = Slot { last_token: space.and_then(|space| space.token_floor), ..Slot::default() };
            let stamp = Stamp { boot: NO_BOOT, at_us: 0, span_us: 0 };
            return Ok((
                slot,
                Cell { id: None, waiting: 0, stamp, wake: None, promised: false, heir: None, ends: 0 },
            ));
        };
        let observe = self.writes();
        self.clocks.translate(self.connection, &mut slot, &mut cell, now, observe)?;
        Ok((slot, cell))
    }

    /// Lets `decide` change a resource, and writes what it changed.
    fn change<T>(
        &mut self,
        (resource, asking): (&Resource, Option<LeaseId>),
        now: Now,
        decide: impl FnOnce(&mut Slot, &mut SqlLine<'_>) -> Result<T, Fault<Failure>>,
    ) -> Outcome<(T, Option<Ring>)> {
        let space = self.space_id()?.unwrap_or_default();
        let name = resource.encode();
        let (mut slot, mut cell) = self.load(&name, now)?;
        let (before, waited) = (slot.clone(), cell.waiting);
        let mut line = SqlLine {
            connection: self.connection,
            clocks: self.clocks,
            ringer: self.ringer,
            own: self.setting.own,
            space,
            resource: &name,
            cell: &mut cell,
            now,
            head: None,
            head_label: Label::default(),
            promoted: Vec::new(),
        };
        let decided = decide(&mut slot, &mut line);
        let ring =
            line.head.map(|(lease_id, address)| Ring { address, lease_id, reserved: Some(resource.clone()) });
        // Whoever asks now knows already; the others learn that they are at the front.
        let promoted = line.promoted.into_iter().filter(|(lease_id, _)| Some(*lease_id) != asking);
        let told = promoted.map(|(lease_id, address)| Ring { address, lease_id, reserved: None });
        self.effects.rings.extend(told);
        let answer = match decided {
            Ok(answer) => Ok((answer, ring)),
            Err(Fault::Line(failure)) => return Err(failure),
            Err(Fault::Token(reason)) => {
                slot = before.clone();
                Err(rules::no_token(reason).on(resource))
            }
        };
        self.save(space, &name, (&before, waited), &slot, &mut cell, now)?;
        Ok(answer)
    }

    fn save(
        &mut self,
        space: i64,
        name: &str,
        (before, waited): (&Slot, u32),
        slot: &Slot,
        cell: &mut Cell,
        now: Now,
    ) -> Result<(), Failure> {
        // What another clock wrote may last longer, as far as we can tell, than what was promised now. It must all the same be
        // written anew: those who live by that clock, or observe it, would see a silent holder.
        let foreign = cell.promised && cell.stamp.boot != self.clocks.my_id(self.connection)?;
        if before == slot && waited == cell.waiting && !foreign {
            return Ok(());
        }
        let (at_us, was_us) = (time_of(slot), time_of(before));
        if foreign
            || at_us != was_us
            || slot.held.is_some() != before.held.is_some()
            || cell.stamp.boot == NO_BOOT
        {
            let span_us = if slot.held.is_some() { at_us.saturating_sub(now.clock_us) } else { 0 };
            cell.stamp = Stamp { boot: self.clocks.my_id(self.connection)?, at_us, span_us };
        }
        if let Some(held) = &slot.held {
            self.effects.horizon_us = self.effects.horizon_us.max(held.expires_us);
            if before.held.as_ref().is_none_or(|old| old.lease_id != held.lease_id) {
                cell.wake = Some(self.setting.own);
            }
        }
        let ended = slot.ended(before.held.as_ref());
        cell.ends += i64::from(ended.is_some());
        let id = match cell.id {
            Some(id) if waited == cell.waiting && only_renewed(before, slot) => {
                let ttl = slot.held.as_ref().map_or(Ttl::MIN, |held| held.ttl);
                return row::save_renewal(self.connection, id, ttl, cell.stamp, now);
            }
            Some(id) => id,
            None => row::insert(self.connection, space, name, now)?,
        };
        if let Some(ended) = ended {
            past::note(self.connection, id, cell.ends, &ended)?;
        }
        row::save(self.connection, id, slot, cell, now)
    }

    pub(super) fn acquire(&mut self, claim: &Claim, now: Now) -> Outcome<Acquired> {
        let space = self.claimed_space()?;
        if let Err(error) = self.agree(space).and_then(|()| rules::check_claim(claim, space.max_ttl)) {
            return Ok(Err(error.on(&claim.resource)));
        }
        let quarantined = self.quarantine(now)?;
        let mut inherited = false;
        let freed = self.change((&claim.resource, Some(claim.lease_id)), now, |slot, line| {
            let mut answer = slot.acquire(line, claim, quarantined, now)?;
            line.cell.promised = matches!(answer, Acquired::Granted(_));
            inherited = heir::inherit(slot, line.cell, claim, &mut answer);
            let wake = slot.wake_after(line, &answer, now)?;
            Ok(Freed { answer, wake })
        })?;
        let answer = freed.map(|freed| self.freed(freed));
        let waits = matches!(&answer, Ok(Acquired::Busy(_) | Acquired::Queued(_)));
        self.effects.must_last |= !(inherited && space.settled || waits);
        if matches!(&answer, Ok(Acquired::Granted(_))) {
            self.settle(space)?;
        }
        Ok(answer)
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, now: Now) -> Outcome<Renewed> {
        let (space, max_ttl) = self.space()?.map_or((0, Ttl::MAX), |space| (space.id, space.max_ttl));
        let name = renewal.resource.encode();
        // Within bounds that need no look at the grant, which is the rule.
        if renewal.ttl <= max_ttl && renewal.lock_delay <= MAX_LOCK_DELAY {
            let at_us = expiry(renewal.ttl, renewal.lock_delay, now);
            let span_us = at_us.saturating_sub(now.clock_us);
            let stamp = Stamp { boot: self.clocks.my_id(self.connection)?, at_us, span_us };
            if row::renew_at_once(self.connection, (space, &name), renewal, stamp, now)? {
                self.effects.horizon_us = self.effects.horizon_us.max(at_us);
                return Ok(Ok(Renewed::Extended { ttl: renewal.ttl }));
            }
        }
        let (mut slot, mut cell) = self.load(&name, now)?;
        if let Err(error) = rules::check_renewal(renewal, &slot, max_ttl) {
            return Ok(Err(error));
        }
        let before = slot.clone();
        let answer = match slot.renew(renewal, now) {
            Renewed::Gone(gone) => Renewed::Gone(heir::as_granted(gone, &slot, &cell, Some(renewal.token))),
            extended => extended,
        };
        cell.promised = matches!(answer, Renewed::Extended { .. });
        let waited = cell.waiting;
        self.save(space, &name, (&before, waited), &slot, &mut cell, now)?;
        Ok(Ok(answer))
    }

    pub(super) fn release(&mut self, release: &Release, now: Now) -> Outcome<Released> {
        let freed = self.change((&release.resource, Some(release.lease_id)), now, |slot, line| {
            let mut freed = slot.release(line, release, now)?;
            if let Released::NotHeld(gone) = freed.answer {
                freed.answer = Released::NotHeld(heir::as_granted(gone, slot, line.cell, release.token));
            }
            heir::set_aside(slot, line, freed.wake);
            Ok(freed)
        })?;
        Ok(freed.map(|freed| self.freed(freed)))
    }

    pub(super) fn revoke(&mut self, revocation: &Revocation, now: Now) -> Outcome<Revoked> {
        let wake = self.load(&revocation.resource.encode(), now)?.1.wake;
        let freed = self.change((&revocation.resource, None), now, |slot, line| {
            let freed = slot.revoke(line, revocation, now)?;
            heir::set_aside(slot, line, freed.wake);
            Ok(freed)
        })?;
        Ok(freed.map(|freed| {
            if let (Revoked::Ended { record, .. }, Some(address)) = (&freed.0.answer, wake) {
                let ring = Ring { address, lease_id: record.lease_id, reserved: None };
                self.effects.rings.push(ring);
            }
            self.freed(freed)
        }))
    }

    /// Goes on to the next waiter after the first in line turned out to be dead. Its place is given up here, whatever else
    /// shows whether it is alive: each time there is one waiter less, or nothing is done and nobody is woken.
    pub(super) fn pass_over(&mut self, unheard: &Unheard, now: Now) -> Outcome<()> {
        let freed = self.change((&unheard.resource, None), now, |slot, line| {
            let buried = line.bury(unheard.lease_id, &unheard.address).map_err(Fault::Line)?;
            let wake = if buried && slot.is_free(now) { slot.reserve(line, now)? } else { None };
            heir::set_aside(slot, line, wake);
            Ok(Freed { answer: (), wake })
        })?;
        Ok(freed.map(|freed| self.freed(freed)))
    }

    fn freed<T>(&mut self, (freed, ring): (Freed<T>, Option<Ring>)) -> T {
        self.effects.rings.extend(ring.filter(|ring| freed.wake == Some(ring.lease_id)));
        freed.answer
    }
}

fn time_of(slot: &Slot) -> u64 {
    slot.held.as_ref().map_or(slot.free_since_us, |held| held.expires_us)
}

/// True when nothing but the term of the lease differs.
fn only_renewed(before: &Slot, after: &Slot) -> bool {
    let (Some(old), Some(new)) = (&before.held, &after.held) else { return false };
    old.lease_id == new.lease_id
        && old.revoked == new.revoked
        && before.last_token == after.last_token
        && before.last_end == after.last_end
        && before.last_success_us == after.last_success_us
}

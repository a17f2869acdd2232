//! An engine that runs the contract's own rules: one atomic step per request over [`leasehold_core::slot::Slot`], with a
//! queue, wakes and a quarantine. It stands for memory, SQLite, one Redis and PostgreSQL by the server's clock; they differ
//! in which clock they judge by, in what a restart leaves, and in whether a token is set aside for whoever comes next; all
//! of which is given.

use std::collections::BTreeMap;

use leasehold_core::{
    Kind, LeaseId, Resource, Token,
    line::MemoryLine,
    record::{Acquired, Gone, Inspection, Released, Renewed, Revoked},
    request::{Claim, Release, Renewal, Revocation},
    slot::{Freed, Held, Now, Slot},
};

use super::{
    Answer, FakeEngine, Fault, Memory, Quarantine, Reply, Request, Setup,
    lazy_line::{self, LazyLine},
    next_token,
};
use crate::{
    reference::{self, Rules as _, Sound},
    sim::Mutant,
};

#[derive(Clone, Debug, Default)]
struct Seat {
    slot: Slot,
    line: MemoryLine,
    heir: Option<Heir>,
}

/// The first in line when the resource became free, and the token that is its own should it be the next to hold.
#[derive(Clone, Copy, Debug)]
struct Heir {
    lease_id: LeaseId,
    token: Token,
}

impl Seat {
    /// Sets the next token aside for the waiter that is woken, where the resource became free just now.
    fn set_aside(&mut self, setup: Setup, wake: Option<LeaseId>, now: Now) {
        let fresh = self.slot.held.is_none() && self.slot.free_since_us == now.clock_us;
        let Some(lease_id) = wake.filter(|_| fresh && setup.sets_tokens_aside) else { return };
        let highest = self.slot.last_token.max(self.heir.map(|heir| heir.token));
        self.heir = next_token(setup, highest, None, now).map(|token| Heir { lease_id, token });
    }

    /// Settles which token a new grant has: the heir's own, or one above what was set aside for somebody else.
    fn inherit(&mut self, setup: Setup, claim: &Claim, answer: &mut Acquired, now: Now) {
        let Acquired::Granted(grant) = answer else { return };
        let Some(heir) = self.heir.take_if(|_| !grant.adopted) else { return };
        let is_heirs =
            heir.lease_id == claim.lease_id && !grant.after_lapse && claim.floor < Some(heir.token);
        let token =
            if is_heirs { Some(heir.token) } else { next_token(setup, Some(heir.token), claim.floor, now) };
        let Some(token) = token.filter(|token| is_heirs || *token > grant.token) else { return };
        grant.token = token;
        self.slot.last_token = Some(token);
        self.slot.held.as_mut().into_iter().for_each(|held| held.token = token);
    }
}

#[derive(Clone, Debug, Default)]
struct Store {
    seats: BTreeMap<Resource, Seat>,
    quarantine: Quarantine,
}

/// The contract's own rules, one atomic step per request.
#[derive(Clone, Debug)]
pub struct SlotEngine {
    setup: Setup,
    store: Store,
    snapshot: Store,
}

impl SlotEngine {
    /// An engine that was prepared and remembers nothing yet.
    pub fn new(setup: Setup) -> Self {
        Self { setup, store: Store::default(), snapshot: Store::default() }
    }

    /// What it shows of a resource.
    pub fn inspect(&self, now: Now, resource: &Resource) -> Inspection {
        let Seat { slot, line, .. } = self.store.seats.get(resource).cloned().unwrap_or_default();
        Sound.inspect(resource, &reference::Seat { slot, line, past: Vec::new() }, now)
    }

    fn acquire(&mut self, now: Now, claim: &Claim) -> Answer {
        if claim.ttl > self.setup.max_ttl {
            return Reply::Failed(Kind::Invalid).into();
        }
        let quarantined = self.store.quarantine.left(now);
        let seat = self.store.seats.entry(claim.resource.clone()).or_default();
        let Seat { slot, line, .. } = seat;
        let kept = slot.clone();
        let line = &mut LazyLine { line, after: self.setup.refreshes_after };
        let Ok(mut answer) = slot.acquire(line, claim, quarantined, now) else {
            // What a refused step changed is thrown away.
            if !self.setup.refused_claims_tell {
                *slot = kept;
            }
            return Reply::Failed(Kind::Invalid).into();
        };
        if let (Some(Mutant::NoFloor), Acquired::Granted(grant)) = (self.setup.mutant, &mut answer)
            && !grant.adopted
            && let Some(token) = next_token(self.setup, kept.last_token, None, now)
        {
            grant.token = token;
            slot.last_token = Some(token);
            slot.held.as_mut().into_iter().for_each(|held| held.token = token);
        }
        seat.inherit(self.setup, claim, &mut answer, now);
        let Seat { slot, line, .. } = seat;
        let wakes = slot.wake_after(line, &answer, now).ok().flatten().into_iter().collect();
        Answer { reply: Reply::Acquired(answer), wakes }
    }

    fn renew(&mut self, now: Now, renewal: &Renewal) -> Renewed {
        let Some(Seat { slot, .. }) = self.store.seats.get_mut(&renewal.resource) else {
            return Renewed::Gone(Gone::Absent);
        };
        match (&slot.held, self.setup.mutant) {
            // The label of the renewing host is that of the standing grant: good enough for this one.
            (Some(held), Some(Mutant::RenewByLabel)) if same_host(held, renewal.lease_id) => {
                let standing = Renewal { lease_id: held.lease_id, token: held.token, ..renewal.clone() };
                slot.renew(&standing, now)
            }
            _ => slot.renew(renewal, now),
        }
    }

    fn release(&mut self, now: Now, release: &Release) -> Answer {
        let Some(seat) = self.store.seats.get_mut(&release.resource) else {
            return Reply::Released(Released::NotHeld(Gone::Absent)).into();
        };
        let Seat { slot, line, .. } = seat;
        let by_name = match (&slot.held, self.setup.mutant) {
            (Some(held), Some(Mutant::ReleaseByName)) => {
                Some(Release { lease_id: held.lease_id, token: Some(held.token), ..release.clone() })
            }
            _ => None,
        };
        match slot.release(line, by_name.as_ref().unwrap_or(release), now) {
            Ok(Freed { answer, wake }) => {
                seat.set_aside(self.setup, wake, now);
                Answer { reply: Reply::Released(answer), wakes: wake.into_iter().collect() }
            }
            Err(_) => Reply::Failed(Kind::Unavailable).into(),
        }
    }

    fn revoke(&mut self, now: Now, revocation: &Revocation) -> Answer {
        let Some(seat) = self.store.seats.get_mut(&revocation.resource) else {
            return Reply::Revoked(Revoked::NotHeld(None)).into();
        };
        let Seat { slot, line, .. } = seat;
        let holder = slot.held.as_ref().map(|held| held.lease_id);
        match slot.revoke(line, revocation, now) {
            Ok(Freed { answer, wake }) => {
                seat.set_aside(self.setup, wake, now);
                Answer { reply: Reply::Revoked(answer), wakes: holder.into_iter().chain(wake).collect() }
            }
            Err(_) => Reply::Failed(Kind::Unavailable).into(),
        }
    }
}

/// The simulator gives every lease id of a node the same first byte.
fn same_host(held: &Held, lease_id: LeaseId) -> bool {
    held.lease_id.as_bytes()[0] == lease_id.as_bytes()[0]
}

impl FakeEngine for SlotEngine {
    fn handle(&mut self, now: Now, request: &Request) -> Answer {
        if let Some(after) = self.setup.lines_vanish_after {
            self.store.seats.values_mut().for_each(|seat| lazy_line::vanish(&mut seat.line, after, now));
        }
        match request {
            Request::Acquire(claim) => self.acquire(now, claim),
            Request::Renew(renewals) => {
                let answers = renewals.iter().map(|renewal| self.renew(now, renewal)).collect();
                Reply::Renewed(answers).into()
            }
            Request::Release(release) => self.release(now, release),
            Request::Revoke(revocation) => self.revoke(now, revocation),
            _ => Reply::Failed(Kind::Unsupported).into(),
        }
    }

    fn fault(&mut self, now: Now, fault: Fault) -> bool {
        let forgot = match fault {
            Fault::Snapshot => {
                self.snapshot = self.store.clone();
                return false;
            }
            Fault::LeaderChange => return false,
            Fault::Restart(Memory::Kept) => false,
            Fault::Restart(Memory::Lost) => {
                self.store = Store::default();
                true
            }
            Fault::Restart(Memory::Stale) => {
                self.store = self.snapshot.clone();
                true
            }
        };
        if forgot || self.setup.doubts_every_start {
            // What was set aside before may have been taken, and that be forgotten: nobody inherits it, as after a reboot.
            for Seat { slot, heir, .. } in self.store.seats.values_mut() {
                slot.last_token = slot.last_token.max(heir.take().map(|heir| heir.token));
            }
            self.store.quarantine.begin(self.setup, now);
            return true;
        }
        false
    }

    fn standing(&self, now: Now, resource: &Resource) -> Option<(LeaseId, Token)> {
        let slot = &self.store.seats.get(resource)?.slot;
        let held = slot.held.as_ref().filter(|_| !slot.is_free(now))?;
        Some((held.lease_id, held.token))
    }

    fn grants(&self, now: Now) -> bool {
        self.store.quarantine.left(now).is_none()
    }

    fn promoted(&self, now: Now) -> Option<Box<dyn FakeEngine>> {
        let mut store = self.snapshot.clone();
        store.quarantine.begin(self.setup, now);
        Some(Box::new(Self { setup: self.setup, store, snapshot: Store::default() }))
    }
}

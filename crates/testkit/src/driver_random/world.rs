//! The engine, the actors and the clock of one run.

use std::time::Duration;

use leasehold_core::{
    HolderId, Label, LeaseId, Resource, Token, Ttl,
    line::ENTRY_LIFE,
    record::{Acquired, Grant, Released, Renewed},
    request::{Claim, Release, Renewal, Revocation},
    slot::Now,
};

use super::{
    ACTORS, Op, RESOURCES,
    actor::{Actor, Belief, window_us},
};
use crate::{
    check::{Event, History, What},
    reference::{Rules, Seat},
};

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the actors saw.
    pub history: History,
    /// What was wrong and the history cannot show.
    pub complaints: Vec<String>,
}

/// 2027 or so.
const EPOCH_US: u64 = 1_800_000_000_000_000;

struct World<'a> {
    rules: &'a dyn Rules,
    clock_us: u64,
    names: Vec<Resource>,
    seats: Vec<Seat>,
    fences: Vec<Option<Token>>,
    versions: Vec<u64>,
    actors: Vec<Actor>,
    claims: u64,
    events: Vec<Event>,
    complaints: Vec<String>,
}

/// Runs the operations against the rules of an engine.
pub fn run(rules: &dyn Rules, ops: &[Op]) -> Run {
    let mut world = World {
        rules,
        clock_us: 1_000_000,
        names: (0..RESOURCES).filter_map(|at| Resource::new(&format!("r{at}")).ok()).collect(),
        seats: vec![Seat::default(); usize::from(RESOURCES)],
        fences: vec![None; usize::from(RESOURCES)],
        versions: vec![0; usize::from(RESOURCES)],
        actors: vec![Actor::default(); usize::from(ACTORS)],
        claims: 0,
        events: Vec::new(),
        complaints: Vec::new(),
    };
    for &op in ops {
        world.step(op);
    }
    world.everything_can_be_had();
    Run { history: History::new(world.events), complaints: world.complaints }
}

fn index(resource: &Resource) -> usize {
    resource.as_str()[1..].parse().unwrap_or_default()
}

fn ttl(ms: u16) -> Ttl {
    Ttl::from_millis(u64::from(ms)).unwrap_or(Ttl::MIN)
}

impl World<'_> {
    fn now(&self) -> Now {
        self.rules.clock(Now { clock_us: self.clock_us, unix_us: EPOCH_US + self.clock_us })
    }

    fn advance(&mut self, ms: u16) {
        self.clock_us += u64::from(ms) * 1_000;
        // Whoever's window is over stops believing, by its own clock.
        for actor in &mut self.actors {
            if let Some(over) = actor.held.take_if(|held| held.close_us <= self.clock_us) {
                actor.past = Some(over);
            }
        }
    }

    fn note(&mut self, actor: usize, claim: &Claim, what: What) {
        self.events.push(Event {
            at_ns: self.clock_us * 1_000,
            process: format!("actor-{actor}"),
            resource: claim.resource.as_str().to_owned(),
            lease_id: claim.lease_id,
            what,
        });
    }

    fn step(&mut self, op: Op) {
        let of = |actor: u8| usize::from(actor % ACTORS);
        match op {
            Op::Claim { actor, resource, ttl_ms, lock_delay_ms, queue, flight_ms } => {
                let actor = of(actor);
                if self.actors[actor].held.is_some() {
                    return;
                }
                let claim = self.actors[actor].waiting.clone().unwrap_or_else(|| {
                    let mut claim = self.new_claim(usize::from(resource % RESOURCES), ttl(ttl_ms));
                    claim.lock_delay = Duration::from_millis(u64::from(lock_delay_ms));
                    claim.queue = queue;
                    claim
                });
                self.ask(actor, &claim, flight_ms);
            }
            Op::Duplicate { actor } => self.duplicate(of(actor)),
            Op::Renew { actor, ttl_ms, flight_ms } => self.renew(of(actor), ttl(ttl_ms), flight_ms),
            Op::LateRenewal { actor } => {
                if let Some(past) = self.actors[of(actor)].past.clone() {
                    let _ignored = self.send_renewal(&past.renewal());
                }
            }
            Op::Release { actor, succeeded } => self.release(of(actor), succeeded),
            Op::LateRelease { actor } => {
                if let Some(past) = self.actors[of(actor)].past.clone() {
                    let _ignored = self.send_release(&past.release(true));
                }
            }
            Op::Revoke { resource, now } => self.revoke(usize::from(resource % RESOURCES), now),
            Op::Write { actor } => {
                if let Some(held) = self.actors[of(actor)].held.clone() {
                    self.note(of(actor), &held.claim, What::Held { token: held.token });
                    self.write(of(actor), &held);
                }
            }
            Op::LateWrite { actor } => {
                if let Some(past) = self.actors[of(actor)].past.clone() {
                    self.write(of(actor), &past);
                }
            }
            Op::Advance { ms } => self.advance(ms),
            Op::Crash { actor } => self.actors[of(actor)] = Actor::default(),
        }
    }

    fn new_claim(&mut self, resource: usize, ttl: Ttl) -> Claim {
        self.claims += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.claims.to_le_bytes());
        Claim {
            resource: self.names[resource].clone(),
            lease_id: LeaseId::from_bytes(id),
            holder_id: HolderId::from_bytes(id),
            label: Label::default(),
            ttl,
            lock_delay: Duration::ZERO,
            floor: None,
            queue: false,
            once_per: None,
        }
    }

    fn send_claim(&mut self, claim: &Claim) -> Option<Acquired> {
        let now = self.now();
        let seat = &mut self.seats[index(&claim.resource)];
        match self.rules.acquire(seat, claim, None, now) {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.complaints.push(format!("a claim failed: {error}"));
                None
            }
        }
    }

    fn send_renewal(&mut self, renewal: &Renewal) -> Renewed {
        let now = self.now();
        self.rules.renew(&mut self.seats[index(&renewal.resource)], renewal, None, now)
    }

    fn send_release(&mut self, release: &Release) -> Released {
        let now = self.now();
        self.rules.release(&mut self.seats[index(&release.resource)], release, now).answer
    }

    fn take_back(&mut self, claim: &Claim) -> Released {
        let release = Release {
            resource: claim.resource.clone(),
            lease_id: claim.lease_id,
            token: None,
            succeeded: false,
        };
        self.send_release(&release)
    }

    fn ask(&mut self, actor: usize, claim: &Claim, flight_ms: u16) {
        if self.actors[actor].waiting.is_none() {
            self.note(actor, claim, What::Attempt);
        }
        self.actors[actor].last = Some(claim.clone());
        let sent_us = self.clock_us;
        self.advance(flight_ms);
        let answer = self.send_claim(claim);
        self.advance(flight_ms);
        self.actors[actor].waiting = None;
        match answer {
            Some(Acquired::Granted(grant)) => self.believe(actor, claim, grant.token, sent_us),
            Some(Acquired::Spent(_)) => self.note(actor, claim, What::GaveUp),
            Some(_) if claim.queue => self.actors[actor].waiting = Some(claim.clone()),
            _ => self.note(actor, claim, What::GaveUp),
        }
    }

    fn believe(&mut self, actor: usize, claim: &Claim, token: Token, sent_us: u64) {
        let close_us = sent_us + window_us(claim.ttl);
        if close_us <= self.clock_us {
            self.note(actor, claim, What::GaveUp);
            let _ignored = self.take_back(claim);
            return;
        }
        let what = What::Granted {
            token,
            sent_ns: Some(sent_us * 1_000),
            open_ns: self.clock_us * 1_000,
            close_ns: close_us * 1_000,
            ttl_ms: Some(claim.ttl.as_millis()),
        };
        self.note(actor, claim, what);
        self.actors[actor].held = Some(Belief { claim: claim.clone(), token, close_us, revoked: false });
    }

    /// The answer goes nowhere, as after a retry whose first attempt was answered meanwhile.
    fn duplicate(&mut self, actor: usize) {
        let Some(claim) = self.actors[actor].last.clone() else { return };
        let believed =
            self.actors[actor].held.as_ref().map(|held| (held.claim.lease_id, held.token, held.revoked));
        let slot = &self.seats[index(&claim.resource)].slot;
        // An engine remembers how the last grant ended, and no more: only that claim is spent for certain.
        let now = self.now();
        let spent =
            slot.is_free(now) && slot.previous_end(now).is_some_and(|end| end.lease_id == claim.lease_id);
        let answer = self.send_claim(&claim);
        match (believed, answer) {
            (Some((id, token, false)), answer) if id == claim.lease_id => {
                let adopted = |grant: &Grant| grant.token == token && grant.adopted;
                match &answer {
                    Some(Acquired::Granted(grant)) if adopted(grant) => {}
                    _ => {
                        self.complaints.push(format!("a repeat of a standing grant was answered {answer:?}"));
                    }
                }
            }
            // A grant that nobody knows of would stand until its TTL: its claimant takes it back.
            (_, Some(Acquired::Granted(_))) => {
                if spent {
                    self.complaints.push(format!("claim {} was spent and is granted again", claim.lease_id));
                }
                let _ignored = self.take_back(&claim);
            }
            _ => {}
        }
    }

    fn renew(&mut self, actor: usize, ttl: Ttl, flight_ms: u16) {
        let Some(held) = self.actors[actor].held.clone() else { return };
        let sent_us = self.clock_us;
        self.advance(flight_ms);
        // Whether its window stood when the request arrived.
        let stood = held.close_us > self.clock_us;
        let answer = self.send_renewal(&Renewal { ttl, ..held.renewal() });
        self.advance(flight_ms);
        let stands = self.actors[actor].held.is_some();
        match answer {
            Renewed::Extended { .. } if stands => {
                let close_us = held.close_us.max(sent_us + window_us(ttl));
                let what = What::Extended { token: held.token, sent_ns: None, close_ns: close_us * 1_000 };
                self.note(actor, &held.claim, what);
                if let Some(held) = &mut self.actors[actor].held {
                    held.close_us = close_us;
                }
            }
            Renewed::Extended { .. } => {}
            gone => {
                if stood && !held.revoked {
                    self.complaints.push(format!("a renewal inside the window was refused: {gone:?}"));
                }
                if stands {
                    self.lose(actor);
                }
            }
        }
    }

    fn lose(&mut self, actor: usize) {
        if let Some(held) = self.actors[actor].held.take() {
            self.note(actor, &held.claim, What::Lost { token: held.token });
            self.actors[actor].past = Some(held);
        }
    }

    fn release(&mut self, actor: usize, succeeded: bool) {
        if let Some(held) = self.actors[actor].held.take() {
            self.note(actor, &held.claim, What::Released { token: held.token });
            let answer = self.send_release(&held.release(succeeded));
            if answer != Released::Ended {
                self.complaints.push(format!("a release inside the window ended nothing: {answer:?}"));
            }
            self.actors[actor].past = Some(held);
        } else if let Some(claim) = self.actors[actor].waiting.take() {
            self.note(actor, &claim, What::GaveUp);
            let _ignored = self.take_back(&claim);
        }
    }

    fn revoke(&mut self, resource: usize, at_once: bool) {
        let now = self.now();
        let seat = &mut self.seats[resource];
        let Some(record) = seat.slot.record(now) else { return };
        let revocation = Revocation {
            resource: self.names[resource].clone(),
            token: record.token,
            by: Label::default(),
            reason: Label::default(),
            now: at_once,
        };
        let _ignored = self.rules.revoke(seat, &revocation, now);
        let holds =
            |actor: &Actor| actor.held.as_ref().is_some_and(|held| held.claim.lease_id == record.lease_id);
        let holder = self.actors.iter().position(holds);
        if let Some(held) = holder.and_then(|holder| self.actors[holder].held.as_mut()) {
            held.revoked = true;
        }
        if !at_once {
            return;
        }
        // Freed at once: windows are off, by the operator's word, also that of an actor which has crashed.
        match holder {
            Some(holder) => self.lose(holder),
            None => self.events.push(Event {
                at_ns: self.clock_us * 1_000,
                process: "operator".to_owned(),
                resource: self.names[resource].as_str().to_owned(),
                lease_id: record.lease_id,
                what: What::Lost { token: record.token },
            }),
        }
    }

    fn write(&mut self, actor: usize, belief: &Belief) {
        let at = index(&belief.claim.resource);
        let admitted = self.fences[at].is_none_or(|fence| fence <= belief.token);
        if admitted {
            self.fences[at] = Some(belief.token);
            self.versions[at] += 1;
        }
        let what = What::Write {
            token: belief.token,
            admitted,
            version: self.versions[at],
            op_seq: None,
            based_on: None,
        };
        self.note(actor, &belief.claim, what);
    }

    /// When everybody has gone and all that they left has run out, anybody can have anything, at the first try.
    fn everything_can_be_had(&mut self) {
        self.actors.iter_mut().for_each(|actor| *actor = Actor::default());
        let rest = ENTRY_LIFE + Duration::from_millis(2 * u64::from(u16::MAX));
        self.clock_us += u64::try_from(rest.as_micros()).unwrap_or_default();
        for resource in 0..usize::from(RESOURCES) {
            let claim = self.new_claim(resource, Ttl::DEFAULT);
            self.note(0, &claim, What::Attempt);
            match self.send_claim(&claim) {
                Some(Acquired::Granted(grant)) => self.believe(0, &claim, grant.token, self.clock_us),
                answer => {
                    self.complaints.push(format!("nobody can have {}: {answer:?}", self.names[resource]));
                }
            }
        }
    }
}

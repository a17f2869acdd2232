//! The engine's decisions against a second opinion: a model written from the contract's clauses alone, with lists and
//! plain numbers, run beside [`Slot`] under random requests and a clock that only goes forward.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use leasehold_core::{
    HolderId, Label, LeaseId, Resource, Token, Ttl,
    line::{ENTRY_LIFE, FORSAKEN, MemoryLine, RESERVATION},
    record::{Acquired, EndReason, Gone, Released, Renewed, Revoked},
    request::{Claim, Release, Renewal, Revocation},
    slot::{Now, Slot},
};
use proptest::prelude::*;

const MS: u64 = 1_000;

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Acquire { id: u8, ttl_ms: u64, delay_ms: u64, queue: bool, floor: bool },
    Renew { id: u8, ttl_ms: u64, right_token: bool },
    Release { id: u8, token: Which },
    Revoke { right_token: bool, now: bool },
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Right,
    Wrong,
    None,
}

/// What a grant is, to the model.
#[derive(Clone, Debug)]
struct Grant {
    id: u8,
    token: u64,
    end_us: u64,
    revoked: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Last {
    Released,
    Expired,
    Revoked,
}

#[derive(Default)]
struct Model {
    now_us: u64,
    highest: u64,
    grant: Option<Grant>,
    free_since_us: u64,
    last: Option<(u8, u64, Last)>,
    /// Who waits, in order, and when each last asked.
    line: Vec<(u8, u64)>,
}

#[derive(Debug, PartialEq)]
enum Said {
    Granted { adopted: bool },
    Busy { place: Option<usize> },
    Queued { place: Option<usize> },
    Spent,
}

impl Model {
    fn lapse(&mut self) {
        if let Some(grant) = self.grant.take_if(|grant| grant.end_us <= self.now_us) {
            self.free_since_us = grant.end_us;
            let how = if grant.revoked { Last::Revoked } else { Last::Expired };
            self.last = Some((grant.id, grant.token, how));
        }
    }

    fn bury(&mut self) {
        let life = u64::try_from(ENTRY_LIFE.as_micros()).unwrap();
        let now_us = self.now_us;
        // Only the dead at the front are in anybody's way.
        while self.line.first().is_some_and(|(_, asked_us)| now_us - asked_us >= life) {
            self.line.remove(0);
        }
    }

    fn place(&self, id: u8) -> Option<usize> {
        self.line.iter().position(|(other, _)| *other == id)
    }

    fn stand(&mut self, id: u8, queue: bool) -> Option<usize> {
        if !queue {
            return None;
        }
        match self.place(id) {
            Some(place) => self.line[place].1 = self.now_us,
            None => self.line.push((id, self.now_us)),
        }
        self.place(id)
    }

    fn acquire(&mut self, id: u8, span_us: u64, queue: bool) -> Said {
        self.lapse();
        if let Some(grant) = self.grant.as_mut().filter(|grant| grant.id == id && !grant.revoked) {
            grant.end_us = grant.end_us.max(self.now_us + span_us);
            return Said::Granted { adopted: true };
        }
        if self.last.as_ref().is_some_and(|(last, _, _)| *last == id) {
            return Said::Spent;
        }
        if let Some(grant) = &self.grant {
            let own = grant.id == id;
            return Said::Busy { place: if own { None } else { self.stand(id, queue) } };
        }
        self.bury();
        let first = self.line.first().map(|(first, _)| *first);
        let reserved = self.now_us < self.free_since_us + u64::try_from(RESERVATION.as_micros()).unwrap();
        let forsaken = self.now_us >= self.free_since_us + u64::try_from(FORSAKEN.as_micros()).unwrap();
        if !forsaken && first.is_some_and(|first| first != id) && (reserved || self.place(id).is_none()) {
            return Said::Queued { place: self.stand(id, queue) };
        }
        self.line.retain(|(other, _)| *other != id);
        Said::Granted { adopted: false }
    }

    fn free(&mut self, how: Last) -> Option<u8> {
        let grant = self.grant.take().unwrap();
        self.last = Some((grant.id, grant.token, how));
        self.free_since_us = self.now_us;
        self.bury();
        self.line.first().map(|(first, _)| *first)
    }
}

fn id(n: u8) -> LeaseId {
    LeaseId::from_bytes([n; 16])
}

fn resource() -> Resource {
    Resource::new("r").unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

struct Pair {
    model: Model,
    slot: Slot,
    line: MemoryLine,
}

impl Pair {
    fn now(&self) -> Now {
        // The wall clock stands still: tokens must rise all the same.
        Now { clock_us: self.model.now_us, unix_us: 1_000 }
    }

    fn token(&self, id: u8) -> u64 {
        let held = self.model.grant.as_ref().filter(|grant| grant.id == id).map(|grant| grant.token);
        let last = self.model.last.as_ref().filter(|(last, _, _)| *last == id).map(|(_, token, _)| *token);
        held.or(last).unwrap_or(1)
    }

    fn acquire(&mut self, n: u8, ttl_ms: u64, delay_ms: u64, queue: bool, floor: bool) {
        let floor = floor.then(|| Token::new(self.model.highest + 7).unwrap());
        let claim = Claim {
            resource: resource(),
            lease_id: id(n),
            holder_id: HolderId::from_bytes([n; 16]),
            label: Label::default(),
            ttl: ttl(ttl_ms),
            lock_delay: Duration::from_millis(delay_ms),
            floor,
            queue,
            once_per: None,
        };
        let now = self.now();
        let said = self.slot.acquire(&mut self.line, &claim, None, now).unwrap();
        let span_us = (ttl_ms + delay_ms) * MS;
        let expected = self.model.acquire(n, span_us, queue);
        let got = match &said {
            Acquired::Granted(grant) => Said::Granted { adopted: grant.adopted },
            Acquired::Busy(busy) => Said::Busy { place: busy.position.map(|place| place as usize) },
            Acquired::Queued(queued) => Said::Queued { place: queued.position.map(|place| place as usize) },
            Acquired::Spent(_) => Said::Spent,
            other => panic!("{other:?}"),
        };
        assert_eq!(got, expected, "claim {n}");
        if let Acquired::Granted(grant) = said {
            let token = grant.token.get();
            if grant.adopted {
                assert_eq!(token, self.model.highest, "a repeated claim has its first token");
            } else {
                assert!(token > self.model.highest, "tokens rise");
                assert!(floor.is_none_or(|floor| grant.token > floor), "above the floor");
                self.model.highest = token;
                let end_us = self.model.now_us + span_us;
                self.model.grant = Some(Grant { id: n, token, end_us, revoked: false });
            }
        }
    }

    fn renew(&mut self, n: u8, ttl_ms: u64, right_token: bool) {
        let token = if right_token { self.token(n) } else { self.token(n) + 1 };
        let renewal = Renewal {
            resource: resource(),
            lease_id: id(n),
            token: Token::new(token).unwrap(),
            ttl: ttl(ttl_ms),
            lock_delay: Duration::ZERO,
        };
        let before = self.slot.clone();
        let said = self.slot.renew(&renewal, self.now());
        let now_us = self.model.now_us;
        let matches = |grant: &&mut Grant| {
            grant.id == n && grant.token == token && grant.end_us > now_us && !grant.revoked
        };
        if let Some(grant) = self.model.grant.as_mut().filter(matches) {
            assert!(matches!(said, Renewed::Extended { .. }), "{said:?}");
            grant.end_us = grant.end_us.max(now_us + ttl_ms * MS);
            return;
        }
        let Renewed::Gone(gone) = said else { panic!("renewed what is gone: {said:?}") };
        assert_eq!(self.slot, before, "a refused renewal changes nothing");
        let settled = self.model.last.as_ref().filter(|_| self.model.grant.is_none() && right_token);
        match settled.filter(|(last, _, _)| *last == n).map(|(_, _, how)| how) {
            Some(Last::Released) => assert_eq!(gone, Gone::Released),
            Some(Last::Expired) => assert_eq!(gone, Gone::Expired),
            Some(Last::Revoked) => assert!(matches!(gone, Gone::Revoked { .. })),
            None => {}
        }
    }

    fn release(&mut self, n: u8, which: Which) {
        let token = match which {
            Which::Right => Some(self.token(n)),
            Which::Wrong => Some(self.token(n) + 1),
            Which::None => None,
        };
        let release = Release {
            resource: resource(),
            lease_id: id(n),
            token: token.map(|token| Token::new(token).unwrap()),
            succeeded: false,
        };
        let now = self.now();
        let freed = self.slot.release(&mut self.line, &release, now).unwrap();
        let waited = self.model.place(n).is_some() && token.is_none();
        if token.is_none() {
            self.model.line.retain(|(other, _)| *other != n);
        }
        let now_us = self.model.now_us;
        let holds = self.model.grant.as_ref().is_some_and(|grant| {
            grant.id == n && token.is_none_or(|token| token == grant.token) && grant.end_us > now_us
        });
        if holds {
            let how = if self.model.grant.as_ref().unwrap().revoked { Last::Revoked } else { Last::Released };
            let next = self.model.free(how);
            assert_eq!((freed.answer, freed.wake), (Released::Ended, next.map(id)));
        } else if waited {
            assert_eq!(freed.answer, Released::LeftQueue);
            let free = self.model.grant.as_ref().is_none_or(|grant| grant.end_us <= now_us);
            if free {
                self.model.bury();
            }
            let next = self.model.line.first().filter(|_| free).map(|(first, _)| id(*first));
            assert_eq!(freed.wake, next, "the next in line is told");
        } else {
            assert!(matches!(freed.answer, Released::NotHeld(_)), "{:?}", freed.answer);
            assert_eq!(freed.wake, None);
        }
    }

    fn revoke(&mut self, right_token: bool, at_once: bool) {
        self.model.lapse();
        let token = self.model.grant.as_ref().map_or(1, |grant| grant.token) + u64::from(!right_token);
        let revocation = Revocation {
            resource: resource(),
            token: Token::new(token).unwrap(),
            by: Label::new("operator").unwrap(),
            reason: Label::default(),
            now: at_once,
        };
        let now = self.now();
        let freed = self.slot.revoke(&mut self.line, &revocation, now).unwrap();
        let Some(grant) = &mut self.model.grant else {
            return assert!(matches!(freed.answer, Revoked::NotHeld(_)));
        };
        if !right_token {
            return assert!(matches!(freed.answer, Revoked::OtherToken(_)));
        }
        grant.revoked = true;
        let left_us = grant.end_us - self.model.now_us;
        let Revoked::Ended { busy_for, .. } = freed.answer else { panic!("{:?}", freed.answer) };
        let next = if at_once { self.model.free(Last::Revoked) } else { None };
        assert_eq!(busy_for, Duration::from_micros(if at_once { 0 } else { left_us }));
        assert_eq!(freed.wake, next.map(id));
    }

    /// What both know must agree after every step.
    fn agree(&self) {
        let now = self.now();
        let live = self.model.grant.as_ref().filter(|grant| grant.end_us > self.model.now_us);
        let record = self.slot.record(now);
        assert_eq!(record.as_ref().map(|record| record.token.get()), live.map(|grant| grant.token));
        assert_eq!(record.as_ref().map(|record| record.lease_id), live.map(|grant| id(grant.id)));
        let left = live.map(|grant| Duration::from_micros(grant.end_us - self.model.now_us));
        assert_eq!(
            record.map(|record| record.remaining),
            left,
            "at least the TTL, and never less than before"
        );
        assert_eq!(self.slot.is_free(now), live.is_none());
        assert_eq!(self.slot.last_token.map_or(0, Token::get), self.model.highest);
        let waiting: Vec<LeaseId> = self.line.entries().map(|entry| entry.lease_id).collect();
        assert_eq!(waiting, self.model.line.iter().map(|(n, _)| id(*n)).collect::<Vec<_>>());
        if let Some(end) = self.slot.previous_end(now).filter(|_| live.is_none()) {
            let how = match end.reason {
                EndReason::Released => Last::Released,
                EndReason::Expired => Last::Expired,
                _ => Last::Revoked,
            };
            let mut settled = Model { now_us: self.model.now_us, ..Model::default() };
            (settled.grant, settled.last) = (self.model.grant.clone(), self.model.last.clone());
            settled.lapse();
            assert_eq!(
                settled.last.map(|(n, token, how)| (id(n), token, how)),
                Some((end.lease_id, end.token.get(), how))
            );
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Pass(us) => self.model.now_us += us,
            Step::Acquire { id, ttl_ms, delay_ms, queue, floor } => {
                self.acquire(id, ttl_ms, delay_ms, queue, floor);
            }
            Step::Renew { id, ttl_ms, right_token } => self.renew(id, ttl_ms, right_token),
            Step::Release { id, token } => self.release(id, token),
            Step::Revoke { right_token, now } => self.revoke(right_token, now),
        }
        self.agree();
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0u8..6;
    let ttl_ms = prop_oneof![Just(50u64), Just(400), Just(1_000), Just(60_000)];
    let pass = prop_oneof![
        Just(1u64),
        Just(49_999),
        Just(50 * MS),
        Just(400 * MS),
        Just(499_999),
        Just(500 * MS),
        Just(1_000 * MS),
        Just(44_999 * MS),
        Just(45_000 * MS),
        0..2_000 * MS
    ];
    let which = prop_oneof![3 => Just(Which::Right), 1 => Just(Which::Wrong), 1 => Just(Which::None)];
    let delay = prop_oneof![3 => Just(0u64), 1 => Just(300)];
    let step = prop_oneof![
        4 => pass.prop_map(Step::Pass),
        6 => (who.clone(), ttl_ms.clone(), delay, prop::bool::weighted(0.7), prop::bool::weighted(0.2))
            .prop_map(|(id, ttl_ms, delay_ms, queue, floor)| Step::Acquire { id, ttl_ms, delay_ms, queue, floor }),
        2 => (who.clone(), ttl_ms, prop::bool::weighted(0.8))
            .prop_map(|(id, ttl_ms, right_token)| Step::Renew { id, ttl_ms, right_token }),
        3 => (who, which).prop_map(|(id, token)| Step::Release { id, token }),
        1 => (prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(right_token, now)| Step::Revoke { right_token, now }),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_slot_decides_as_the_clauses_say(steps in steps()) {
        let model = Model { now_us: 1_000_000_000, ..Model::default() };
        let mut pair = Pair { model, slot: Slot::default(), line: MemoryLine::default() };
        for step in &steps {
            pair.run(step);
        }
    }
}

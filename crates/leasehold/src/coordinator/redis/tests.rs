//! The script against the slot: the same random requests to both, and every answer compared, at the server's own time.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    HolderId, Label, LeaseId, Namespace, Resource, Token, Ttl,
    line::MemoryLine,
    record::{Acquired, Inspection, Released, Renewed, Revoked},
    request::{Claim, Preparation, Release, Renewal, Revocation},
    slot::{Fault, Now, Slot},
};
use leasehold_testkit::{
    random::{Choices, seed},
    server::{Redis, RedisSetup},
};
use redis::Value;

use super::{
    answer::{self, Asked},
    dial::Login,
    node::Node,
    op::Op,
    space::{Layout, Space},
    target::Target,
};
use crate::{address::Host, coordinator::rules};

const STEPS: u32 = 700;
const RESOURCES: u64 = 2;
const CLAIMS: u64 = 5;
/// How long the keys of a line outlive its last refresh, as `join.lua` says.
const LINE_LIFE_US: u64 = 3 * 45_000_000;

/// A server, and the slots that say what it should answer.
struct Pair {
    server: Redis,
    node: Node,
    space: Arc<Space>,
    slots: Vec<(Resource, Slot, MemoryLine)>,
    claims: Vec<Claim>,
    quarantine_until_us: u64,
    choices: Choices,
}

fn now(us: u64) -> Now {
    Now { clock_us: us, unix_us: us }
}

const ASKED: Asked<'_> = Asked { ttl: Ttl::MIN, told: None, namespace: "ns" };

async fn node(server: &Redis) -> Node {
    let address = server.address();
    let host = Host { name: address.ip().to_string(), port: Some(address.port()) };
    let login = Login { user: None, password: None, database: 0, tls: None };
    Node::open(Target::Fixed(host, login), None).await.unwrap()
}

impl Pair {
    async fn new(seed: u64, fresh: bool) -> Self {
        let server = RedisSetup::new().with_clock().start().unwrap();
        let node = node(&server).await;
        let space = Arc::clone(&Layout::whole(&Namespace::new("ns").unwrap(), None).shards()[0]);
        let slots = (0..RESOURCES)
            .map(|at| (Resource::new(&format!("r/{at}")).unwrap(), Slot::default(), MemoryLine::default()))
            .collect();
        let mut pair = Self {
            server,
            node,
            space,
            slots,
            claims: Vec::new(),
            quarantine_until_us: 0,
            choices: Choices::new(seed),
        };
        let (at, made) = pair.ask(Op::prepare(Preparation { fresh, max_ttl: None })).await;
        let made = answer::prepared(made, &ASKED).unwrap();
        pair.quarantine_until_us =
            made.quarantine.map_or(0, |left| at + u64::try_from(left.as_micros()).unwrap());
        for _ in 0..CLAIMS {
            let claim = pair.new_claim();
            pair.claims.push(claim);
        }
        pair
    }

    async fn ask(&self, op: Op) -> (u64, Value) {
        self.node.timed(&self.space, op).await.unwrap()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.choices.below(bound)
    }

    fn new_claim(&mut self) -> Claim {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.below(u64::MAX).to_be_bytes());
        let at = usize::try_from(self.below(RESOURCES)).unwrap();
        let last = self.slots[at].1.last_token;
        Claim {
            resource: self.slots[at].0.clone(),
            lease_id: LeaseId::from_bytes(id),
            holder_id: HolderId::from_bytes(id),
            label: Label::from_lossy(
                ["", "host:1:a", "\u{1f980} \u{e9}"][usize::try_from(self.below(3)).unwrap()],
            ),
            ttl: Ttl::from_millis([50, 400, 5_000, 30_000][usize::try_from(self.below(4)).unwrap()]).unwrap(),
            lock_delay: Duration::from_millis([0, 0, 0, 700][usize::try_from(self.below(4)).unwrap()]),
            floor: last
                .filter(|_| self.choices.one_in(4))
                .map(|token| Token::new(token.get() + 1_000_000).unwrap()),
            queue: self.choices.one_in(2),
            once_per: self.choices.one_in(6).then_some(Duration::from_secs(10)),
        }
    }

    fn slot(&mut self, resource: &Resource) -> &mut (Resource, Slot, MemoryLine) {
        self.slots.iter_mut().find(|(name, _, _)| name == resource).unwrap()
    }

    async fn step(&mut self) {
        match self.below(20) {
            0..=8 => self.acquire().await,
            9..=11 => self.renew().await,
            12..=15 => self.release().await,
            16 => self.revoke().await,
            _ => {
                let ms = [1, 40, 300, 450, 600, 2_950, 3_100, 31_000, 46_000]
                    [usize::try_from(self.below(9)).unwrap()];
                self.server.clock().forward(Duration::from_millis(ms)).unwrap();
                self.vanish().await;
            }
        }
        for at in 0..self.slots.len() {
            self.compare(at).await;
        }
    }

    /// A line that nobody has refreshed for long vanishes by itself; the model keeps its dead.
    async fn vanish(&mut self) {
        let (us, _) = self.ask(Op::look()).await;
        let quarantined = self.quarantine_until_us;
        for (_, _, line) in &mut self.slots {
            let last = line.entries().map(|entry| entry.refreshed_us.max(quarantined)).max();
            if last.is_some_and(|last| us >= last + LINE_LIFE_US) {
                *line = MemoryLine::default();
            }
        }
    }

    async fn acquire(&mut self) {
        let at = usize::try_from(self.below(CLAIMS)).unwrap();
        let claim = self.claims[at].clone();
        let op = Op::acquire(&self.space, &claim.resource.encode(), &claim, [7; 8]);
        let (us, value) = self.ask(op).await;
        let got = answer::acquired(value, &ASKED).map(|claimed| claimed.answer);
        let quarantined = rules::left(self.quarantine_until_us, now(us));
        let (_, slot, line) = self.slot(&claim.resource);
        let (before, queue) = (slot.clone(), line.clone());
        let expected = match slot.acquire(line, &claim, quarantined, now(us)) {
            Ok(answer) => Ok(answer),
            Err(Fault::Token(reason)) => {
                (*slot, *line) = (before, queue);
                Err(rules::no_token(reason))
            }
            Err(Fault::Line(never)) => match never {},
        };
        assert_eq!(got, expected, "{claim:?}");
        // Mostly the same claim goes on; when it is over, another one takes its turn.
        if matches!(expected, Ok(Acquired::Spent(_) | Acquired::AlreadyDone { .. })) || self.choices.one_in(8)
        {
            self.claims[at] = self.new_claim();
        }
    }

    /// The token of a claim, or one near it.
    fn token(&mut self, claim: &Claim) -> Token {
        let slot = &self.slot(&claim.resource).1;
        let last = slot.last_token.map_or(5, Token::get);
        let near = [last, last, last, last - 1, last + 1][usize::try_from(self.below(5)).unwrap()];
        Token::new(near).unwrap()
    }

    /// A claim that may hold: the holder's own, more often than not.
    fn likely(&mut self) -> Claim {
        let at = usize::try_from(self.below(CLAIMS)).unwrap();
        let claim = self.claims[at].clone();
        let holder = self.slot(&claim.resource).1.held.as_ref().map(|held| held.lease_id);
        let held = self.claims.iter().find(|other| Some(other.lease_id) == holder).cloned();
        held.filter(|_| !self.choices.one_in(4)).unwrap_or(claim)
    }

    async fn renew(&mut self) {
        let claim = self.likely();
        let token = self.token(&claim);
        let ttl =
            Ttl::from_millis([50, 400, 5_000, 30_000][usize::try_from(self.below(4)).unwrap()]).unwrap();
        let renewal = Renewal {
            resource: claim.resource.clone(),
            lease_id: claim.lease_id,
            token,
            ttl,
            lock_delay: claim.lock_delay,
        };
        let (us, value) = self.ask(Op::renew(&self.space, &claim.resource.encode(), &renewal)).await;
        let got: Renewed = answer::renewed(value, &Asked { ttl, ..ASKED }).unwrap();
        let expected = self.slot(&claim.resource).1.renew(&renewal, now(us));
        assert_eq!(got, expected, "{renewal:?}");
    }

    async fn release(&mut self) {
        let claim = self.likely();
        let token = Some(self.token(&claim)).filter(|_| !self.choices.one_in(3));
        let release = Release {
            resource: claim.resource.clone(),
            lease_id: claim.lease_id,
            token,
            succeeded: self.choices.one_in(3),
        };
        let (us, value) = self.ask(Op::release(&self.space, &claim.resource.encode(), &release)).await;
        let got: Released = answer::released(value).unwrap();
        let (_, slot, line) = self.slot(&claim.resource);
        let expected = slot.release(line, &release, now(us)).unwrap();
        assert_eq!(got, expected.answer, "{release:?}");
    }

    async fn revoke(&mut self) {
        let claim = self.likely();
        let revocation = Revocation {
            resource: claim.resource.clone(),
            token: self.token(&claim),
            by: Label::from_lossy("ann"),
            reason: Label::from_lossy("maintenance"),
            now: self.choices.one_in(2),
        };
        let (us, value) = self.ask(Op::revoke(&self.space, &claim.resource.encode(), &revocation)).await;
        let got: Revoked = answer::revoked(value).unwrap();
        let (_, slot, line) = self.slot(&claim.resource);
        let expected = slot.revoke(line, &revocation, now(us)).unwrap();
        assert_eq!(got, expected.answer, "{revocation:?}");
    }

    async fn compare(&mut self, at: usize) {
        let (resource, slot, line) = self.slots[at].clone();
        let op = Op::inspect(&self.space, &resource.encode(), Inspection::MAX_WAITERS);
        let (us, value) = self.ask(op).await;
        let seen = answer::seen(value).unwrap();
        let waiters: Vec<_> = line
            .entries()
            .filter(|entry| !entry.is_stale(us))
            .map(|entry| rules::waiter(entry, now(us)))
            .collect();
        assert_eq!(seen.record, slot.record(now(us)));
        assert_eq!(seen.last_token, slot.last_token);
        let (end, expected) = (seen.last_end, slot.previous_end(now(us)));
        assert_eq!(end, expected);
        assert_eq!(seen.last_success_us, slot.last_success_us);
        assert_eq!((seen.waiting as usize, &seen.waiters), (waiters.len(), &waiters));
    }
}

async fn run(fresh: bool) {
    let seed = seed();
    let mut pair = Pair::new(seed, fresh).await;
    for step in 0..STEPS {
        println!("seed {seed}, step {step}");
        pair.step().await;
    }
}

#[tokio::test]
async fn the_script_answers_as_the_slot_does() {
    run(true).await;
}

#[tokio::test]
async fn the_script_answers_as_the_slot_does_from_a_quarantine_on() {
    run(false).await;
}

//! Several holders against one engine record, on clocks that run at different rates, over a network that delays, loses
//! and reorders: at no moment of true time do two of them believe, a final state is final, tokens rise.
//!
//! A schedule is a list of steps; a failing one is shrunk by proptest to the shortest that still fails.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation
)]

use std::time::Duration;

use leasehold_core::{
    HolderId, Label, LeaseId, Resource, Token, Ttl,
    error::Kind,
    holder::{Holder, Identity, Loss, State, Transition},
    line::MemoryLine,
    policy::Policy,
    record::{Acquired, Released, Renewed},
    request::{Claim, Release, Renewal},
    slot::{Now, Slot},
    window::{ClockRule, Margin, Reading},
};
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestError, TestRng, TestRunner},
};

const CLIENTS: usize = 3;
const RHO_PPM: u32 = 50_000;
/// Every clock starts far from zero, at its own place.
const EPOCH: u64 = 1_000_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// True time passes, in 100 µs.
    Pass(u16),
    /// A client does what it would do next: claim, renew or look at the time.
    Act(usize),
    Release(usize),
    Drain(usize),
    Progress(usize),
    Poke(usize),
    /// From the next renewal on it asks for another TTL, in 100 ms.
    SetTtl(usize, u8),
    /// Another process of the same machine goes on with the lease.
    HandOver(usize),
    /// The n-th message under way arrives, or is lost.
    Deliver(usize),
    Lose(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u16..2_000).prop_map(Step::Pass),
        4 => (0..CLIENTS).prop_map(Step::Act),
        1 => (0..CLIENTS).prop_map(Step::Release),
        1 => (0..CLIENTS).prop_map(Step::Drain),
        1 => (0..CLIENTS).prop_map(Step::Progress),
        1 => (0..CLIENTS).prop_map(Step::Poke),
        1 => ((0..CLIENTS), 6u8..30).prop_map(|(client, tenths)| Step::SetTtl(client, tenths)),
        1 => (0..CLIENTS).prop_map(Step::HandOver),
        8 => (0usize..8).prop_map(Step::Deliver),
        1 => (0usize..8).prop_map(Step::Lose),
    ]
}

#[derive(Clone, Debug)]
enum Message {
    Claim(usize, Claim, Reading),
    Claimed(usize, Claim, Reading, Acquired),
    Renew(usize, Renewal, Reading),
    Renewed(usize, LeaseId, Reading, Renewed),
    Release(Release),
}

struct Client {
    holder: Option<Holder>,
    asking: Option<LeaseId>,
    /// The highest token it has seen.
    known: Option<Token>,
    /// When the process that holds took the lease over: answers to the one before do not reach it.
    since: Reading,
}

struct World {
    true_ns: u64,
    rates_ppm: Vec<i64>,
    clients: Vec<Client>,
    slot: Slot,
    line: MemoryLine,
    under_way: Vec<Message>,
    next_id: u128,
    tokens: Vec<Token>,
    policy: Policy,
}

/// The limits that a policy may have beside its TTL.
type Limits = (Option<Duration>, Option<Duration>);

const UNLIMITED: Limits = (None, None);

fn limits() -> impl Strategy<Value = Limits> {
    let limit = || proptest::option::of((2_000u64..6_000).prop_map(Duration::from_millis));
    (limit(), limit())
}

/// Only along the arrows of the diagram in `holder`.
fn follows(moved: Option<Transition>) {
    let Some(Transition { from, to }) = moved else { return };
    let allowed = match from {
        State::Held => matches!(to, State::Uncertain | State::Draining | State::Releasing | State::Lost(_)),
        State::Uncertain => matches!(to, State::Held | State::Draining | State::Releasing | State::Lost(_)),
        State::Draining => matches!(to, State::Releasing | State::Lost(_)),
        State::Releasing => to == State::Released,
        State::Released | State::Lost(_) => false,
    };
    assert!(allowed, "no arrow leads from {from:?} to {to:?}");
}

impl World {
    fn new(rates_ppm: Vec<i64>, (max_hold, progress_timeout): Limits) -> Self {
        let margin = Margin::new(RHO_PPM, Duration::ZERO).unwrap();
        let policy = Policy::builder(Ttl::from_millis(1_000).unwrap())
            .margin(margin)
            .max_hold(max_hold)
            .progress_timeout(progress_timeout)
            .build()
            .unwrap();
        Self {
            true_ns: 0,
            rates_ppm,
            clients: (0..CLIENTS)
                .map(|_| Client { holder: None, asking: None, known: None, since: Reading::all(0) })
                .collect(),
            slot: Slot::default(),
            line: MemoryLine::default(),
            under_way: Vec::new(),
            next_id: 0,
            tokens: Vec::new(),
            policy,
        }
    }

    /// What a clock with this rate error shows.
    fn clock(&self, which: usize) -> u64 {
        let shown = i128::from(self.true_ns) * i128::from(1_000_000 + self.rates_ppm[which]) / 1_000_000;
        EPOCH * (which as u64 + 1) + u64::try_from(shown).unwrap()
    }

    fn reading(&self, client: usize) -> Reading {
        Reading::all(self.clock(client))
    }

    /// The engine's clocks; its wall clock stands still, so that tokens rise by their counter alone.
    fn engine(&self) -> Now {
        Now { clock_us: self.clock(CLIENTS) / 1_000, unix_us: 1 }
    }

    fn act(&mut self, client: usize) {
        let now = self.reading(client);
        let me = &mut self.clients[client];
        if let Some(holder) = &mut me.holder {
            follows(holder.tick(now));
            if holder.wants_renewal(now, Duration::ZERO) {
                let renewal = holder.begin_renewal(now);
                self.under_way.push(Message::Renew(client, renewal, now));
            } else if holder.state().is_final() {
                me.holder = None;
            }
        } else {
            let lease_id = *me.asking.get_or_insert_with(|| {
                self.next_id += 1;
                LeaseId::from_bytes(self.next_id.to_be_bytes())
            });
            let claim = Claim {
                resource: Resource::new("r").unwrap(),
                lease_id,
                holder_id: HolderId::from_bytes([client as u8; 16]),
                label: Label::default(),
                ttl: self.policy.ttl(),
                lock_delay: Duration::ZERO,
                floor: me.known,
                queue: client == 0,
                once_per: None,
            };
            self.under_way.push(Message::Claim(client, claim, now));
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Claim(client, claim, sent) => {
                let now = self.engine();
                let answer = self.slot.acquire(&mut self.line, &claim, None, now).unwrap();
                if let Acquired::Granted(grant) = &answer
                    && !grant.adopted
                {
                    self.tokens.push(grant.token);
                }
                self.under_way.push(Message::Claimed(client, claim, sent, answer));
            }
            Message::Claimed(client, claim, sent, answer) => self.claimed(client, claim, sent, answer),
            Message::Renew(client, renewal, sent) => {
                let answer = self.slot.renew(&renewal, self.engine());
                self.under_way.push(Message::Renewed(client, renewal.lease_id, sent, answer));
            }
            Message::Renewed(client, lease_id, sent, answer) => {
                let (now, since) = (self.reading(client), self.clients[client].since);
                if let Some(holder) = &mut self.clients[client].holder
                    && holder.identity().lease_id == lease_id
                    && sent.boot_ns >= since.boot_ns
                {
                    let was_final = holder.state().is_final();
                    follows(holder.renewal_answered(
                        sent,
                        answer,
                        now,
                        self.true_ns.wrapping_mul(0x9E37_79B9),
                    ));
                    assert!(!was_final || holder.state().is_final(), "a final state was left");
                }
            }
            Message::Release(release) => {
                let now = self.engine();
                let freed = self.slot.release(&mut self.line, &release, now).unwrap();
                if freed.answer == Released::Ended {
                    assert_eq!(Some(release.lease_id), self.slot.last_end.as_ref().map(|end| end.lease_id));
                }
            }
        }
    }

    fn claimed(&mut self, client: usize, claim: Claim, sent: Reading, answer: Acquired) {
        let now = self.reading(client);
        let me = &mut self.clients[client];
        if me.asking != Some(claim.lease_id) {
            return;
        }
        match answer {
            Acquired::Granted(grant) => {
                let identity = Identity {
                    resource: claim.resource.clone(),
                    lease_id: claim.lease_id,
                    token: grant.token,
                };
                let random = self.true_ns.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let known = me.known;
                match Holder::granted(
                    identity,
                    &grant,
                    self.policy,
                    ClockRule::LargestOfThree,
                    known,
                    sent,
                    now,
                    random,
                ) {
                    Ok(holder) => {
                        me.known = me.known.max(Some(grant.token));
                        me.holder = Some(holder);
                    }
                    Err(_) => self.under_way.push(Message::Release(Release {
                        resource: claim.resource,
                        lease_id: claim.lease_id,
                        token: Some(grant.token),
                        succeeded: false,
                    })),
                }
                me.asking = None;
            }
            Acquired::Spent(_) => me.asking = None,
            _ => {}
        }
    }

    fn end(&mut self, client: usize) {
        let now = self.reading(client);
        if let Some(holder) = &mut self.clients[client].holder {
            follows(holder.begin_release(now));
            if *holder.state() == State::Releasing {
                self.under_way.push(Message::Release(holder.release_request(true)));
                follows(holder.released());
            }
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Pass(tenths) => self.true_ns += u64::from(tenths) * 100_000,
            Step::Act(client) => self.act(client),
            Step::Release(client) => self.end(client),
            Step::Drain(client) => {
                let now = self.reading(client);
                if let Some(holder) = &mut self.clients[client].holder {
                    follows(holder.drain(now));
                }
            }
            Step::Progress(client) => {
                let now = self.reading(client);
                if let Some(holder) = &mut self.clients[client].holder {
                    holder.progress(now);
                }
            }
            Step::Poke(client) => {
                if let Some(holder) = &mut self.clients[client].holder {
                    holder.poke();
                }
            }
            Step::SetTtl(client, tenths) => {
                if let Some(holder) = &mut self.clients[client].holder {
                    // Refused where the limits leave no room for it.
                    let _ = holder.set_ttl(Ttl::from_millis(u64::from(tenths) * 100).unwrap());
                }
            }
            Step::HandOver(client) => self.hand_over(client),
            Step::Deliver(n) if n < self.under_way.len() => {
                let message = self.under_way.remove(n);
                self.deliver(message);
            }
            Step::Lose(n) if n < self.under_way.len() => {
                if let Message::Renew(client, ..) | Message::Renewed(client, ..) = self.under_way.remove(n) {
                    let now = self.reading(client);
                    if let Some(holder) = &mut self.clients[client].holder {
                        follows(holder.renewal_failed(Kind::Unknown, now, self.true_ns));
                    }
                }
            }
            Step::Deliver(_) | Step::Lose(_) => {}
        }
    }

    fn hand_over(&mut self, client: usize) {
        let (now, policy) = (self.reading(client), self.policy);
        let me = &mut self.clients[client];
        let Some(mut holder) = me.holder.take_if(|holder| holder.state().may_work()) else { return };
        let belief = holder.belief();
        follows(holder.lose(Loss::HandedOff));
        assert!(!holder.state().may_work(), "the first one is done with it");
        // Too near the end it is left to run out.
        me.holder = Holder::resumed(belief, policy, ClockRule::LargestOfThree, now).ok();
        me.since = now;
    }

    /// Those who would answer "yes, still mine" at this very moment, without having been told the time first.
    fn believers(&self) -> Vec<(usize, &Identity)> {
        let mut believers = Vec::new();
        for (client, me) in self.clients.iter().enumerate() {
            if let Some(holder) = &me.holder
                && holder.state().may_work()
                && !holder.window().is_closed(self.reading(client))
            {
                believers.push((client, holder.identity()));
            }
        }
        believers
    }

    /// What must hold after every step; otherwise what does not.
    fn check(&self) -> Result<(), String> {
        let believers = self.believers();
        if believers.len() > 1 {
            return Err(format!("two windows are open at once: {believers:?}"));
        }
        if let Some((_, identity)) = believers.first() {
            let record = self.slot.record(self.engine()).ok_or("one believes and the engine has no grant")?;
            if (record.lease_id, record.token) != (identity.lease_id, identity.token) {
                return Err(format!("{identity:?} believes and the engine has {record:?}"));
            }
        }
        if self.tokens.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(format!("tokens out of order: {:?}", self.tokens));
        }
        Ok(())
    }
}

/// Runs a schedule up to the first step after which something does not hold.
fn run(mut world: World, steps: &[Step]) -> Result<(), String> {
    steps.iter().try_for_each(|step| {
        world.apply(*step);
        world.check()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn at_no_moment_do_two_holders_believe(
        steps in proptest::collection::vec(step(), 1..250),
        rates in proptest::collection::vec(-i64::from(RHO_PPM)..=i64::from(RHO_PPM), CLIENTS + 1),
        limits in limits(),
    ) {
        run(World::new(rates, limits), &steps).map_err(TestCaseError::fail)?;
    }
}

/// The first client's clock runs at half the true rate, far outside the bound.
fn slow_clock() -> World {
    World::new(vec![-500_000, 0, 0, 0], UNLIMITED)
}

/// The same world with a clock outside the bound must fail: otherwise the test above proves nothing.
#[test]
fn a_holder_whose_clock_is_too_slow_is_caught() {
    let steps = [
        Step::Act(0),
        Step::Deliver(0),
        Step::Deliver(0),
        Step::Pass(12_000),
        Step::Act(1),
        Step::Deliver(0),
        Step::Deliver(0),
    ];
    assert!(run(slow_clock(), &steps).is_err());
}

/// Leaves out, one by one, every step without which it fails all the same, until none is left.
fn shortest(mut steps: Vec<Step>) -> Vec<Step> {
    let mut place = 0;
    while place < steps.len() {
        let without = [&steps[..place], &steps[place + 1..]].concat();
        if run(slow_clock(), &without).is_err() {
            (steps, place) = (without, 0);
        } else {
            place += 1;
        }
    }
    steps
}

/// The driver finds that fault by itself, and what it reports is short.
#[test]
fn a_clock_outside_the_bound_is_found_and_shrunk() {
    // From a fixed seed: how short a schedule becomes depends on where the shrinking began.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config = ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&proptest::collection::vec(step(), 1..250), |steps| {
        run(slow_clock(), &steps).map_err(TestCaseError::fail)
    });
    let Err(TestError::Fail(_, found)) = outcome else { panic!("not found") };
    let shortest = shortest(found);
    // Each of two grants needs a claim and two messages, some are lost on the way; the rest is time that passes until the
    // engine, and not the holder, sees the end of the first.
    let acts = shortest.iter().filter(|step| !matches!(step, Step::Pass(_))).count();
    assert!((3..=12).contains(&acts) && shortest.len() < 40, "{shortest:?}");
}

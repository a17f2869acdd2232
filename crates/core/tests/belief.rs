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
    holder::{Holder, Identity, State},
    line::MemoryLine,
    policy::Policy,
    record::{Acquired, Released, Renewed},
    request::{Claim, Release, Renewal},
    slot::{Now, Slot},
    window::{ClockRule, Margin, Reading},
};
use proptest::prelude::*;

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

#[derive(Default)]
struct Client {
    holder: Option<Holder>,
    asking: Option<LeaseId>,
    /// The highest token it has seen.
    known: Option<Token>,
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

impl World {
    fn new(rates_ppm: Vec<i64>) -> Self {
        let margin = Margin::new(RHO_PPM, Duration::ZERO).unwrap();
        let policy = Policy::builder(Ttl::from_millis(1_000).unwrap()).margin(margin).build().unwrap();
        Self {
            true_ns: 0,
            rates_ppm,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
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
            let _ = holder.tick(now);
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
                let now = self.reading(client);
                if let Some(holder) = &mut self.clients[client].holder
                    && holder.identity().lease_id == lease_id
                {
                    let was_final = holder.state().is_final();
                    let _ =
                        holder.renewal_answered(sent, answer, now, self.true_ns.wrapping_mul(0x9E37_79B9));
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
            let _ = holder.begin_release(now);
            if *holder.state() == State::Releasing {
                self.under_way.push(Message::Release(holder.release_request(true)));
                let _ = holder.released();
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
                    let _ = holder.drain(now);
                }
            }
            Step::Deliver(n) if n < self.under_way.len() => {
                let message = self.under_way.remove(n);
                self.deliver(message);
            }
            Step::Lose(n) if n < self.under_way.len() => {
                if let Message::Renew(client, ..) | Message::Renewed(client, ..) = self.under_way.remove(n) {
                    let now = self.reading(client);
                    if let Some(holder) = &mut self.clients[client].holder {
                        let _ = holder.renewal_failed(Kind::Unknown, now, self.true_ns);
                    }
                }
            }
            Step::Deliver(_) | Step::Lose(_) => {}
        }
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

    fn check(&self) {
        let believers = self.believers();
        assert!(believers.len() <= 1, "two windows are open at once: {believers:?}");
        if let Some((_, identity)) = believers.first() {
            let record =
                self.slot.record(self.engine()).expect("a holder believes and the engine has no grant");
            assert_eq!((record.lease_id, record.token), (identity.lease_id, identity.token));
        }
        assert!(
            self.tokens.windows(2).all(|pair| pair[0] < pair[1]),
            "tokens out of order: {:?}",
            self.tokens
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn at_no_moment_do_two_holders_believe(
        steps in proptest::collection::vec(step(), 1..250),
        rates in proptest::collection::vec(-i64::from(RHO_PPM)..=i64::from(RHO_PPM), CLIENTS + 1),
    ) {
        let mut world = World::new(rates);
        for step in steps {
            world.apply(step);
            world.check();
        }
    }
}

/// The same world with a clock outside the bound must fail: otherwise the test above proves nothing.
#[test]
fn a_holder_whose_clock_is_too_slow_is_caught() {
    let mut world = World::new(vec![-500_000, 0, 0, 0]);
    let outcome = std::panic::catch_unwind(move || {
        for step in [
            Step::Act(0),
            Step::Deliver(0),
            Step::Deliver(0),
            Step::Pass(12_000),
            Step::Act(1),
            Step::Deliver(0),
            Step::Deliver(0),
        ] {
            world.apply(step);
            world.check();
        }
    });
    assert!(outcome.is_err());
}

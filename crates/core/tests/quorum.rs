//! The rules of [`leasehold_core::quorum`] in a world of their own: nodes with clocks that differ, messages that come late, out
//! of order or never, nodes that forget, and claimants that give up. Exclusion and the order of tokens must hold; and each rule,
//! left out, must be missed.
#![allow(missing_docs, clippy::unwrap_used)]

use leasehold_core::{
    Token,
    quorum::{Choice, Offer, Quorum},
};

/// The chance of this world: the `SplitMix64` sequence.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

const NODES: usize = 5;
const TTL: u64 = 400;
/// Clocks differ by up to this much.
const APART: u64 = 150;
/// How much earlier than the TTL a holder stops: here every clock runs alike.
const MARGIN: u64 = 1;
const START: u64 = 1_000_000;

/// A rule that is left out, to see that it is missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Without {
    Nothing,
    /// The highest offer is the token, and nobody stores it.
    SecondPhase,
    /// A node that forgot grants at once.
    Quarantine,
    /// The window counts from the answer.
    EarlyWindow,
    /// One node less than a majority decides.
    Majority,
}

#[derive(Clone, Copy, Default)]
struct Node {
    ahead: u64,
    /// The claim that it has, under which token, until when by its clock; settled unless it is an offer of its own.
    held: Option<(u64, u64, u64, bool)>,
    counter: u64,
    quarantined_until: u64,
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Offer { proposed: u64 },
    Confirm { token: u64 },
    Release,
}

/// One claim on its way.
#[derive(Clone)]
struct Claim {
    id: u64,
    began: u64,
    proposed: u64,
    offers: Vec<Offer>,
    chosen: Option<u64>,
    stored: usize,
    over: bool,
}

struct Grant {
    open: u64,
    close: u64,
    token: u64,
}

struct World {
    now: u64,
    nodes: Vec<Node>,
    quorum: Quorum,
    without: Without,
    chance: Chance,
    /// When, to which node (or back from it), which claim, what.
    post: Vec<(u64, usize, u64, Message)>,
    back: Vec<(u64, u64, Reply)>,
    claims: Vec<Claim>,
    grants: Vec<Grant>,
}

#[derive(Clone, Copy)]
enum Reply {
    Offered(Offer),
    Stored(u64),
}

impl World {
    fn new(seed: u64, without: Without) -> Self {
        let mut chance = Chance(seed);
        let nodes = (0..NODES).map(|_| Node { ahead: chance.below(APART), ..Node::default() }).collect();
        let (post, back, claims, grants) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            now: START,
            nodes,
            quorum: Quorum::of(NODES).unwrap(),
            without,
            chance,
            post,
            back,
            claims,
            grants,
        }
    }

    fn send(&mut self, id: u64, message: Message) {
        for node in 0..NODES {
            // A message takes a while, sometimes a long one, and may be lost.
            if !self.chance.one_in(12) {
                let slow = if self.chance.one_in(10) { 300 } else { 8 };
                let delay = 1 + self.chance.below(slow);
                self.post.push((self.now + delay, node, id, message));
            }
        }
    }

    fn arrive(&mut self, at: usize, id: u64, message: Message) -> Option<Reply> {
        let quarantine =
            if self.without == Without::Quarantine { 0 } else { self.nodes[at].quarantined_until };
        let node = &mut self.nodes[at];
        let clock = self.now + node.ahead;
        if node.held.is_some_and(|(_, _, until, _)| clock >= until) {
            node.held = None;
        }
        match message {
            Message::Offer { proposed } => {
                if node.held.is_some() || clock < quarantine {
                    return None;
                }
                let own = (node.counter + 1).max(clock);
                let settled = proposed >= own;
                let token = if settled { proposed } else { own };
                node.held = Some((id, token, clock + TTL, settled));
                node.counter = token;
                Some(Reply::Offered(Offer { token: Token::new(token).unwrap(), settled }))
            }
            Message::Confirm { token } => {
                let (holder, had, until, _) = node.held?;
                if holder != id || token < had {
                    return None;
                }
                node.held = Some((id, token, until, true));
                node.counter = node.counter.max(token);
                Some(Reply::Stored(token))
            }
            Message::Release => {
                if node.held.is_some_and(|(holder, ..)| holder == id) {
                    node.held = None;
                }
                None
            }
        }
    }

    fn choose(&self, offers: &[Offer]) -> Choice {
        if self.without == Without::SecondPhase {
            let highest = offers.iter().map(|offer| offer.token).max();
            return match highest {
                Some(token) if offers.len() >= self.quorum.majority() => Choice::Stands(token),
                _ => Choice::TooFew,
            };
        }
        if self.without == Without::Majority && offers.len() >= self.quorum.minority() {
            let highest = offers.iter().map(|offer| offer.token).max();
            return highest.map_or(Choice::TooFew, Choice::Stands);
        }
        self.quorum.choose(offers).unwrap()
    }

    fn hear(&mut self, id: u64, reply: Reply) {
        let Some(at) = self.claims.iter().position(|claim| claim.id == id && !claim.over) else { return };
        match reply {
            Reply::Offered(offer) if self.claims[at].chosen.is_none() => {
                self.claims[at].offers.push(offer);
                let choice = self.choose(&self.claims[at].offers);
                match choice {
                    Choice::TooFew => {}
                    Choice::Stands(token) => self.grant(at, token.get()),
                    Choice::Raise(token) => {
                        self.claims[at].chosen = Some(token.get());
                        self.send(id, Message::Confirm { token: token.get() });
                    }
                }
            }
            Reply::Stored(token) if self.claims[at].chosen == Some(token) => {
                self.claims[at].stored += 1;
                if self.claims[at].stored >= self.quorum.majority() {
                    self.grant(at, token);
                }
            }
            _ => {}
        }
    }

    fn grant(&mut self, at: usize, token: u64) {
        self.claims[at].over = true;
        let (id, began) = (self.claims[at].id, self.claims[at].began);
        let counted = if self.without == Without::EarlyWindow { self.now } else { began };
        let close = counted + TTL - MARGIN;
        if close <= self.now {
            self.send(id, Message::Release);
            return;
        }
        // Some release early, some are never heard of again.
        let mut ends = close;
        if !self.chance.one_in(3) {
            ends = close.min(self.now + 1 + self.chance.below(20));
        }
        self.grants.push(Grant { open: self.now, close: ends, token });
        if ends < close {
            let mut later = Vec::new();
            std::mem::swap(&mut self.post, &mut later);
            self.send(id, Message::Release);
            let wait = ends - self.now;
            self.post.iter_mut().for_each(|message| message.0 += wait);
            self.post.extend(later);
        }
    }

    fn step(&mut self) {
        self.now += 1;
        let now = self.now;
        let due: Vec<_> = self.post.iter().filter(|message| message.0 <= now).copied().collect();
        self.post.retain(|message| message.0 > now);
        for (_, node, id, message) in due {
            if let Some(reply) = self.arrive(node, id, message)
                && !self.chance.one_in(12)
            {
                let delay = 1 + self.chance.below(8);
                self.back.push((now + delay, id, reply));
            }
        }
        let heard: Vec<_> = self.back.iter().filter(|reply| reply.0 <= now).copied().collect();
        self.back.retain(|reply| reply.0 > now);
        for (_, id, reply) in heard {
            self.hear(id, reply);
        }
        // Whoever waits for too long takes its claim back.
        let tired: Vec<usize> = (0..self.claims.len())
            .filter(|&at| !self.claims[at].over && now > self.claims[at].began + 40)
            .collect();
        for at in tired {
            self.claims[at].over = true;
            self.send(self.claims[at].id, Message::Release);
        }
        self.claims.retain(|claim| !claim.over || claim.began + 2 * TTL > now);
        if self.chance.one_in(15) {
            self.claim();
        }
        if self.chance.one_in(1_500) {
            // A node loses its memory.
            let at = usize::try_from(self.chance.below(NODES as u64)).unwrap();
            let ahead = self.nodes[at].ahead;
            self.nodes[at] = Node { ahead, quarantined_until: now + ahead + TTL, ..Node::default() };
        }
    }

    fn claim(&mut self) {
        let id = self.chance.below(u64::MAX);
        let proposed = self.now + self.chance.below(APART / 2);
        let (offers, chosen, stored) = (Vec::new(), None, 0);
        self.claims.push(Claim { id, began: self.now, proposed, offers, chosen, stored, over: false });
        let proposed = self.claims.last().map_or(0, |claim| claim.proposed);
        self.send(id, Message::Offer { proposed });
    }

    /// How many pairs of grants overlap, and how many tokens are not above the one before.
    fn faults(&self) -> (usize, usize) {
        let mut grants: Vec<&Grant> = self.grants.iter().collect();
        grants.sort_by_key(|grant| grant.open);
        let pairs = grants.windows(2);
        let overlaps = pairs.clone().filter(|pair| pair[1].open < pair[0].close).count();
        (overlaps, pairs.filter(|pair| pair[1].token <= pair[0].token).count())
    }
}

fn run(without: Without, seeds: u64) -> (usize, usize, usize) {
    let mut sum = (0, 0, 0);
    for seed in 0..seeds {
        let mut world = World::new(seed, without);
        while world.now < START + 20_000 {
            world.step();
        }
        let (overlaps, orders) = world.faults();
        sum = (sum.0 + world.grants.len(), sum.1 + overlaps, sum.2 + orders);
    }
    sum
}

#[test]
fn no_two_windows_overlap_and_tokens_rise() {
    let (grants, overlaps, orders) = run(Without::Nothing, 60);
    assert!(grants > 500, "too few grants to mean anything: {grants}");
    assert_eq!((overlaps, orders), (0, 0), "of {grants} grants");
}

#[test]
fn without_the_second_phase_tokens_fall() {
    let (grants, _, orders) = run(Without::SecondPhase, 60);
    assert!(orders > 0, "the control found nothing in {grants} grants");
}

#[test]
fn without_the_quarantine_windows_overlap() {
    let (grants, overlaps, _) = run(Without::Quarantine, 60);
    assert!(overlaps > 0, "the control found nothing in {grants} grants");
}

#[test]
fn with_windows_from_the_answer_they_overlap() {
    let (grants, overlaps, _) = run(Without::EarlyWindow, 60);
    assert!(overlaps > 0, "the control found nothing in {grants} grants");
}

#[test]
fn without_a_majority_windows_overlap() {
    let (grants, overlaps, _) = run(Without::Majority, 60);
    assert!(overlaps > 0, "the control found nothing in {grants} grants");
}

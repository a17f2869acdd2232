//! A claim: one round trip where a majority takes the proposed token, two where it does not, and a short contest where several
//! claims have met.
//!
//! ```text
//!             all nodes: offer                      majority: (lease id, token)
//!   ASKED ───────────────────────▶ a majority ─────────────────────────────────▶ GRANTED
//!     ▲  \                          \   took the proposal          ▲
//!     │   \ none has a majority      \ tokens of their own         │ a majority has stored it
//!     │    ▼                          ▼                            │
//!     └─ CONTEST (insist, or         CONFIRM: a token above all ───┘
//!        give way and ask again)
//! ```
//!
//! A claim that comes to nothing is taken back everywhere, also where no answer came, and leaves no trace: it may be made again
//! under its lease id. Only where a majority may have granted it without our knowing is it left as it is, because then the
//! claimant has to know: the outcome is unknown, and repeating the claim (or taking it back) under its lease id settles it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use leasehold_core::{
    Error, Kind, Token, Ttl,
    record::{Acquired, Grant},
    request::{Claim, Renewal},
};
use tokio::time::sleep;

use super::{
    circle::{Circle, Gathering, News, Patience, no_majority},
    lead::Proposal,
    member::{Reply, Told, Weight},
    votes::{Circumstances, Verdict, Vote, Votes},
};
use crate::{
    clock,
    coordinator::{
        redis::{
            answer::{self, Claimed},
            op::Op,
        },
        rules,
    },
};

/// So often a claim asks when others claim at the same time. Each round has a winner among those who insist, unless claims of
/// the dead are in the way.
const MAX_ROUNDS: u32 = 8;
/// The bounds of the pause between two of them: about a round trip.
const PAUSE: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(20)];

/// One call under way.
pub(super) struct Attempt {
    circle: Arc<Circle>,
    claim: Claim,
    name: String,
    proposal: Proposal,
    taken_back: Vec<Token>,
    votes: Votes,
    round: u32,
    /// The grant before: its token, and whether it ended otherwise than by its TTL. A node that missed that end, or that grant,
    /// knows an older one or a worse end.
    before: (u64, bool),
    /// True when the claim's grant was there before this call.
    stood_before: bool,
    /// What a round took.
    took: Duration,
}

impl Attempt {
    pub(super) fn new(circle: Arc<Circle>, claim: Claim) -> Result<Self, Error> {
        let proposal = circle.lead.propose(claim.floor).map_err(rules::no_token)?;
        let (name, votes) = (Circle::name(&claim.resource), Votes::new(circle.quorum));
        let taken_back = circle.taken_back(claim.lease_id);
        let took = Duration::ZERO;
        Ok(Self {
            circle,
            claim,
            name,
            proposal,
            taken_back,
            votes,
            round: 0,
            before: (0, true),
            stood_before: false,
            took,
        })
    }

    /// Asks until it is clear.
    pub(super) async fn run(mut self) -> Result<Acquired, Error> {
        loop {
            match self.ask().await? {
                Verdict::Take(token) => return Ok(self.granted(token)),
                Verdict::Confirm(token) => match self.confirm(token).await? {
                    Some(answer) => return Ok(answer),
                    None => sleep(self.pause(false)).await,
                },
                Verdict::Answer(answer) => {
                    self.take_back(None);
                    return Ok(answer);
                }
                Verdict::Fail { error, standing } => {
                    if !standing {
                        self.take_back(None);
                    }
                    return Err(error);
                }
                Verdict::Contend { ahead, instead } => {
                    let last = self.round >= MAX_ROUNDS;
                    if last || !ahead {
                        self.take_back(None);
                        // Whoever insists keeps the proposal that some nodes have taken.
                        self.proposal =
                            self.circle.lead.propose(self.claim.floor).map_err(rules::no_token)?;
                    }
                    if last {
                        return Ok(Acquired::Busy(instead));
                    }
                    sleep(self.pause(ahead)).await;
                }
                // `ask` waits.
                Verdict::Wait => {}
            }
        }
    }

    /// One round of the first phase.
    async fn ask(&mut self) -> Result<Verdict, Error> {
        self.votes = Votes::new(self.circle.quorum);
        let begun_us = clock::boot_us();
        let (circle, token) = (Arc::clone(&self.circle), self.proposal.token);
        let op = Op::offer(&circle.space, &self.name, &self.claim, circle.address, token);
        let mut asked = circle.ask(&[op], Weight::Claim, Patience::of(self.claim.ttl));
        let mut known = Circumstances {
            proposed: token,
            lease_id: self.claim.lease_id,
            taken_back: self.taken_back.clone(),
            first_round: self.round == 0,
            late: false,
            stopped: Vec::new(),
            over: false,
            unix_us: clock::unix_us(),
        };
        let verdict = loop {
            match asked.next().await {
                News::From(at, reply) => {
                    let (vote, after) = vote(&circle, self.claim.ttl, self.proposal, reply);
                    if let Vote::Granted(Grant { adopted: false, after_lapse, .. }) = vote {
                        self.before = self.before.max((after, !after_lapse));
                    }
                    self.votes.each[at] = vote;
                }
                News::Late => (known.late, known.stopped) = (true, circle.stopped()),
                News::Over | News::Silence => known.over = true,
            }
            match self.votes.verdict(&known) {
                Verdict::Wait if !known.over => {}
                verdict => break verdict,
            }
        };
        self.stood_before |= self.round == 0 && self.votes.stood_before();
        self.round += 1;
        self.took = Duration::from_micros(clock::boot_us().saturating_sub(begun_us));
        self.see_off(asked, &verdict);
        Ok(verdict)
    }

    /// Those who have not answered yet. When it is granted they are to have it too, and all under the same token.
    fn see_off(&self, asked: Gathering, verdict: &Verdict) {
        let Verdict::Take(token) = *verdict else { return self.circle.linger(asked) };
        let confirm = Op::confirm(&self.circle.space, &self.name, &self.grant(token), self.dated(token));
        let differ = self.nodes(
            |vote| matches!(vote, Vote::Granted(grant) if grant.token != token || grant.granted_us == 0),
        );
        if !differ.is_empty() {
            self.circle.tell(differ, &confirm);
        }
        let (circle, ttl, proposal) = (Arc::clone(&self.circle), self.claim.ttl, self.proposal);
        self.circle.runtime.spawn(asked.drain(move |at, reply| {
            if matches!(vote(&circle, ttl, proposal, reply).0, Vote::Granted(grant) if grant.token != token) {
                circle.tell([at], &confirm);
            }
        }));
    }

    fn grant(&self, token: Token) -> Renewal {
        let Claim { resource, lease_id, ttl, lock_delay, .. } = &self.claim;
        Renewal { resource: resource.clone(), lease_id: *lease_id, token, ttl: *ttl, lock_delay: *lock_delay }
    }

    fn nodes(&self, which: impl Fn(&Vote) -> bool) -> Vec<usize> {
        let chosen = self.votes.each.iter().enumerate().filter(|(_, vote)| which(vote));
        chosen.map(|(at, _)| at).collect()
    }

    /// When a grant under this token began, as all nodes are to say.
    fn dated(&self, token: Token) -> u64 {
        let stood = self.votes.grants().filter(|grant| grant.adopted && grant.granted_us > 0);
        if let Some(dated) = stood.map(|grant| grant.granted_us).min() {
            return dated;
        }
        if token == self.proposal.token {
            return token.get();
        }
        self.votes.grants().map(|grant| grant.granted_us).max().unwrap_or_default()
    }

    fn granted(&self, token: Token) -> Acquired {
        for member in &self.circle.members {
            member.bell().expect(self.claim.lease_id);
        }
        Acquired::Granted(Grant {
            token,
            ttl: self.claim.ttl,
            granted_us: self.dated(token),
            adopted: self.stood_before,
            after_lapse: !self.before.1,
        })
    }

    /// The second phase: granted when a majority has stored the token. `None` when it certainly has not and the claim may be
    /// made again.
    async fn confirm(&mut self, token: Token) -> Result<Option<Acquired>, Error> {
        let (circle, majority) = (Arc::clone(&self.circle), self.circle.quorum.majority());
        let op = Op::confirm(&circle.space, &self.name, &self.grant(token), self.dated(token));
        let whom = self.nodes(|vote| matches!(vote, Vote::Granted(_) | Vote::Waiting | Vote::Lost(_)));
        let mut open = whom.len();
        let mut asked =
            circle.ask_some(whom, Weight::Rest, Patience::of(self.claim.ttl), |_| vec![op.clone()]);
        let (mut stored, mut lost, mut failures) = (0, 0, Vec::new());
        while stored < majority && stored + lost + open >= majority && open > 0 {
            match asked.next().await {
                News::From(_, reply) => {
                    open -= 1;
                    match reply.and_then(answer_word) {
                        Ok(word) if word == "confirmed" => stored += 1,
                        Ok(_) => {}
                        Err(error) => {
                            lost += usize::from(error.kind() == Kind::Unknown);
                            failures.push(error);
                        }
                    }
                }
                News::Late => {}
                News::Over | News::Silence => break,
            }
        }
        circle.linger(asked);
        if stored >= majority {
            return Ok(Some(self.granted(token)));
        }
        let error = no_majority(circle.quorum, stored, &failures);
        if stored + lost + open >= majority || self.stood_before {
            return Err(error.unknown());
        }
        self.take_back(Some(token));
        let again = failures.len() <= circle.quorum.minority() && self.round < MAX_ROUNDS;
        self.proposal = self.circle.lead.propose(self.claim.floor).map_err(rules::no_token)?;
        if again { Ok(None) } else { Err(error) }
    }

    /// Takes back what this call left, wherever it may have left something.
    fn take_back(&mut self, agreed: Option<Token>) {
        if self.stood_before {
            // It is not this call's to end.
            return;
        }
        let whom = self.nodes(|vote| matches!(vote, Vote::Granted(_) | Vote::Waiting | Vote::Lost(_)));
        if whom.is_empty() {
            return;
        }
        let tokens = [self.proposal.token, agreed.unwrap_or(self.proposal.token)];
        self.taken_back.extend(tokens);
        self.circle.remember_taken_back(self.claim.lease_id, &self.taken_back);
        self.circle.tell(whom, &Op::retract(&self.circle.space, &self.name, &self.claim, tokens));
    }

    /// Before it asks again: those who give way leave time to those who insist.
    fn pause(&self, ahead: bool) -> Duration {
        let trip = self.took.clamp(PAUSE[0], PAUSE[1]);
        if ahead {
            trip / 2 + self.circle.share(trip)
        } else {
            trip + self.circle.share(trip * (self.round + 1))
        }
    }
}

/// Reads a node's answer; and the token of the grant that ended there last.
fn vote(circle: &Circle, ttl: Ttl, proposal: Proposal, reply: Reply) -> (Vote, u64) {
    let told = match reply {
        Ok(told) => told,
        Err(error) if error.kind() == Kind::Unknown => return (Vote::Lost(error), 0),
        Err(error) => return (Vote::Unsent(error), 0),
    };
    let value = told.answers.into_iter().next().unwrap_or(redis::Value::Nil);
    let (answer, new, after) = match answer::acquired(value, &circle.asked(ttl)) {
        Ok(Claimed { answer, new, after }) => (Ok(answer), new, after),
        Err(error) => (Err(error), false, 0),
    };
    let vote = match answer {
        Ok(Acquired::Granted(grant)) => {
            if new {
                circle.grown.fetch_add(1, Ordering::Relaxed);
            }
            if !grant.adopted && grant.token.get() == grant.granted_us {
                circle.lead.behind(proposal, grant.granted_us);
            }
            Vote::Granted(grant)
        }
        Ok(Acquired::Busy(busy)) => Vote::Busy(Box::new(busy)),
        Ok(Acquired::Quarantined { remaining, .. }) => Vote::Quarantined(remaining),
        Ok(Acquired::AlreadyDone { started_us, due_in }) => Vote::Done(started_us, due_in),
        Ok(Acquired::Spent(end)) => Vote::Spent(Box::new(end)),
        Ok(_) => Vote::Refused(Error::new(Kind::Corrupt, "a node keeps a queue, and is to keep none")),
        Err(error) if error.kind() == Kind::Unknown => Vote::Lost(error),
        Err(error) if error.kind() == Kind::Unavailable => Vote::Unsent(error),
        Err(error) => Vote::Refused(error),
    };
    (vote, after)
}

/// The first word of a node's answer.
fn answer_word(told: Told) -> Result<String, Error> {
    let value = told.answers.into_iter().next().unwrap_or(redis::Value::Nil);
    answer::Parts::open(value).map(|(word, _)| word)
}

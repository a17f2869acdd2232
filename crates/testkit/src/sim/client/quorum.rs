//! For several independent engines: everything goes to all of them at once, and a majority decides. A grant takes a second
//! step, which settles on a token above those of the majority, so that tokens rise from grant to grant although each
//! engine draws its own.

use std::collections::BTreeMap;

use core::time::Duration;

use leasehold_core::{
    Kind, LeaseId, Token, Ttl,
    quorum::{Choice, Offer, Quorum as Rule},
    record::{Acquired, Gone, Released, Renewed},
    request::{Claim, Release},
    window::Reading,
};

use super::{Answer, Call, Client, Order, busy, failed, grant};
use crate::sim::{
    Mutant,
    engine::{MemberAnswer, MemberAsk, Reply, Request},
};

/// A member that has not answered within this, or a twentieth of the TTL, is not waited for.
const PATIENCE: Duration = Duration::from_millis(50);
/// How far ahead of its clock a claimant proposes.
const LEAD_US: u64 = 20_000;

enum Stage {
    Keeping { kept: Vec<(usize, Offer)>, busy: Vec<Other>, quarantine: Duration },
    Settling { token: Token, settled: usize },
    Renewing { yes: Vec<usize>, no: Vec<usize>, lacking: Vec<usize> },
    Releasing { was: bool },
}

/// Who has it, as a member says.
#[derive(Clone, Copy)]
struct Other {
    lease_id: LeaseId,
    token: Token,
    ttl: Ttl,
    remaining: Duration,
}

/// Whom most members name, under the token that most have: one that missed the second step has another.
fn most_named(others: &[Other]) -> Option<Other> {
    let same = |one: &Other| {
        others.iter().filter(|other| (other.lease_id, other.token) == (one.lease_id, one.token)).count()
    };
    others.iter().max_by_key(|one| (same(one), one.token)).copied()
}

struct Under {
    call: Call,
    attempt: u32,
    /// The token that this attempt has proposed: a grant under another one that a majority has settled on was there before.
    proposed: Option<Token>,
    stage: Stage,
    heard: Vec<bool>,
}

pub(in crate::sim) struct Quorum {
    members: usize,
    rule: Option<Rule>,
    mutant: Option<Mutant>,
    calls: BTreeMap<u64, Under>,
    /// Attempts made so far: what gives one up must not hit the next, which bears the same lease id.
    attempts: u32,
}

impl Quorum {
    pub(super) fn new(members: usize, mutant: Option<Mutant>) -> Self {
        Self { members, rule: Rule::of(members).ok(), mutant, calls: BTreeMap::new(), attempts: 0 }
    }

    const fn majority(&self) -> usize {
        self.members / 2 + 1
    }

    fn to_all(&self, ask: &MemberAsk, orders: &mut Vec<Order>) {
        orders.extend((0..self.members).map(|at| Order::Send(at, Request::Member(ask.clone()))));
    }

    fn patience(call: &Call) -> Duration {
        let ttl = match call {
            Call::Acquire(claim) => claim.ttl,
            Call::Renew(renewals) => renewals.iter().map(|renewal| renewal.ttl).min().unwrap_or_default(),
            Call::Release(_) => Ttl::DEFAULT,
        };
        PATIENCE.min(ttl.as_duration() / 20)
    }

    /// A token that every member can take at once: by this machine's wall clock, and ahead of it by what a request takes to
    /// arrive and the members' clocks may be ahead.
    fn propose(&self, now: Reading) -> Option<Token> {
        let proposed = Token::new(now.real_ns / 1_000 + LEAD_US).ok()?;
        (self.mutant != Some(Mutant::RedlockOnePhase)).then_some(proposed)
    }

    /// No majority: what was kept is given back everywhere, also where nothing was heard.
    fn withdraw(&self, claim: &Claim, attempt: u32, orders: &mut Vec<Order>) {
        let release = Release {
            resource: claim.resource.clone(),
            lease_id: claim.lease_id,
            token: None,
            succeeded: false,
        };
        self.to_all(&MemberAsk::Release(release, attempt), orders);
    }

    /// Decides, when it can be decided; when `over`, nobody else is waited for.
    fn judge(&mut self, id: u64, over: bool, orders: &mut Vec<Order>) -> Option<Answer> {
        let majority = self.majority();
        let under = self.calls.get_mut(&id)?;
        let all = over || under.heard.iter().all(|&heard| heard);
        let answer = match (&mut under.stage, &under.call) {
            (Stage::Keeping { kept, busy: met, quarantine }, Call::Acquire(claim)) => {
                if kept.len() >= majority {
                    return self.settle(id, orders);
                }
                if !all {
                    return None;
                }
                let answer = match (most_named(met), quarantine) {
                    (Some(Other { lease_id, token, ttl, remaining }), _) => {
                        busy(claim, lease_id, token, ttl, remaining)
                    }
                    (None, quarantine) if !quarantine.is_zero() => {
                        Answer::Acquired(Acquired::Quarantined { remaining: *quarantine, position: None })
                    }
                    _ => failed(Kind::Unknown),
                };
                let (claim, attempt) = (claim.clone(), under.attempt);
                self.withdraw(&claim, attempt, orders);
                answer
            }
            (Stage::Settling { token, settled, .. }, Call::Acquire(claim)) => {
                if *settled >= majority {
                    grant(*token, claim.ttl, false)
                } else if all {
                    let (claim, attempt) = (claim.clone(), under.attempt);
                    self.withdraw(&claim, attempt, orders);
                    failed(Kind::Unknown)
                } else {
                    return None;
                }
            }
            (Stage::Renewing { yes, no, lacking }, Call::Renew(renewals)) => {
                let answers: Vec<_> = (yes.iter().zip(&*no))
                    .zip(renewals)
                    .map(|((&yes, &no), renewal)| {
                        if yes >= majority {
                            Some(Ok(Renewed::Extended { ttl: renewal.ttl }))
                        } else if no >= majority {
                            Some(Ok(Renewed::Gone(Gone::Absent)))
                        } else {
                            all.then(|| Err(leasehold_core::Error::new(Kind::Unknown, "")))
                        }
                    })
                    .collect();
                let answers = answers.into_iter().collect::<Option<Vec<_>>>()?;
                // One renewal a call on this engine.
                if yes.iter().all(|&yes| yes >= majority) {
                    let plant = |at: &usize| {
                        Order::Send(*at, Request::Member(MemberAsk::Replant(renewals[0].clone())))
                    };
                    orders.extend(lacking.iter().map(plant));
                }
                Answer::Renewed(answers)
            }
            (Stage::Releasing { was }, _) => {
                let heard = under.heard.iter().filter(|&&heard| heard).count();
                if heard >= majority {
                    Answer::Released(if *was { Released::Ended } else { Released::NotHeld(Gone::Absent) })
                } else if over {
                    failed(Kind::Unknown)
                } else {
                    return None;
                }
            }
            _ => return None,
        };
        self.calls.remove(&id);
        Some(answer)
    }

    fn settle(&mut self, id: u64, orders: &mut Vec<Order>) -> Option<Answer> {
        let mutant = self.mutant;
        let under = self.calls.get_mut(&id)?;
        let (Stage::Keeping { kept, .. }, Call::Acquire(claim)) = (&under.stage, &under.call) else {
            return None;
        };
        let offers: Vec<Offer> = kept.iter().map(|(_, offer)| *offer).collect();
        let highest = offers.iter().map(|offer| offer.token).max()?;
        if mutant == Some(Mutant::RedlockOnePhase) {
            let answer = grant(highest, claim.ttl, false);
            self.calls.remove(&id);
            return Some(answer);
        }
        let token = match self.rule?.choose(&offers) {
            Ok(Choice::Raise(token)) => token,
            Ok(Choice::Stands(token)) => {
                let answer = grant(token, claim.ttl, under.proposed != Some(token));
                self.calls.remove(&id);
                return Some(answer);
            }
            Ok(Choice::TooFew) => return None,
            Err(_) => return Some(failed(Kind::Invalid)),
        };
        let (resource, lease_id) = (claim.resource.clone(), claim.lease_id);
        let kept: Vec<usize> = kept.iter().map(|(at, _)| *at).collect();
        for &at in &kept {
            let ask = MemberAsk::Settle { resource: resource.clone(), lease_id, token };
            orders.push(Order::Send(at, Request::Member(ask)));
        }
        orders.push(Order::Alarm(Self::patience(&under.call)));
        under.heard = (0..under.heard.len()).map(|at| !kept.contains(&at)).collect();
        under.stage = Stage::Settling { token, settled: 0 };
        None
    }
}

impl Client for Quorum {
    fn begin(&mut self, id: u64, call: &Call, now: Reading, orders: &mut Vec<Order>) -> Option<Answer> {
        self.attempts += 1;
        let attempt = self.attempts;
        let proposed = self.propose(now);
        let stage = match call {
            Call::Acquire(claim) => {
                self.to_all(&MemberAsk::Keep(claim.clone(), attempt, proposed), orders);
                Stage::Keeping { kept: Vec::new(), busy: Vec::new(), quarantine: Duration::ZERO }
            }
            Call::Renew(renewals) => {
                for renewal in renewals {
                    self.to_all(&MemberAsk::Renew(renewal.clone()), orders);
                }
                let (yes, no) = (vec![0; renewals.len()], vec![0; renewals.len()]);
                Stage::Renewing { yes, no, lacking: Vec::new() }
            }
            Call::Release(release) => {
                self.to_all(&MemberAsk::Release(release.clone(), u32::MAX), orders);
                Stage::Releasing { was: false }
            }
        };
        orders.push(Order::Alarm(Self::patience(call)));
        let heard = vec![false; self.members];
        self.calls.insert(id, Under { call: call.clone(), attempt, proposed, stage, heard });
        None
    }

    fn replied(
        &mut self,
        id: u64,
        server: usize,
        reply: Reply,
        _now: Reading,
        orders: &mut Vec<Order>,
    ) -> Option<Answer> {
        let under = self.calls.get_mut(&id)?;
        let reply = match reply {
            Reply::Member(reply) => Some(reply),
            _ => None,
        };
        match (&mut under.stage, reply) {
            (Stage::Keeping { kept, .. }, Some(MemberAnswer::Kept(offer))) if !under.heard[server] => {
                kept.push((server, offer));
            }
            (Stage::Keeping { busy, .. }, Some(MemberAnswer::Busy { lease_id, token, ttl, remaining })) => {
                busy.push(Other { lease_id, token, ttl, remaining });
            }
            (Stage::Keeping { quarantine, .. }, Some(MemberAnswer::Quarantined(left))) => {
                *quarantine = (*quarantine).max(left);
            }
            // A duplicate of the first step's answer is no answer to the second.
            (Stage::Settling { .. }, Some(MemberAnswer::Kept(_) | MemberAnswer::Busy { .. })) => return None,
            (Stage::Settling { settled, .. }, Some(MemberAnswer::Yes)) if !under.heard[server] => {
                *settled += 1;
            }
            (Stage::Renewing { yes, no, lacking }, Some(answer)) if !under.heard[server] => {
                // One renewal a call on this engine: answers carry no number.
                let extended = matches!(answer, MemberAnswer::Yes);
                for count in if extended { yes } else { no } {
                    *count += 1;
                }
                lacking.extend((!extended).then_some(server));
            }
            (Stage::Releasing { was }, Some(MemberAnswer::Yes)) => *was = true,
            _ => {}
        }
        under.heard[server] = true;
        self.judge(id, false, orders)
    }

    fn alarm(&mut self, id: u64, _now: Reading, orders: &mut Vec<Order>) -> Option<Answer> {
        self.judge(id, true, orders)
    }

    fn batch(&self) -> usize {
        1
    }

    fn dropped(&mut self, id: u64) {
        self.calls.remove(&id);
    }
}

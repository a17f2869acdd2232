//! For a store of keys and leases: a grant is two requests, a lease and then a key that lives with it. Each attempt makes a
//! lease of its own. When an earlier attempt of the same claim turns out to have made the key, that attempt's lease is
//! extended, so that the window may count from this attempt.

use std::collections::BTreeMap;

use core::time::Duration;

use leasehold_core::{
    Kind, LeaseId, Token, Ttl,
    record::{Gone, Released, Renewed},
    request::{Claim, Renewal},
    window::Reading,
};

use super::{Answer, Call, Client, Order, busy, failed, grant};
use crate::sim::engine::{EtcdAnswer, EtcdAsk, Reply, Request};

enum Under {
    Leasing { claim: Claim, lease: LeaseId },
    Making { claim: Claim, lease: LeaseId, ttl_s: u64 },
    Rearming { claim: Claim, token: Token },
    Renewing { renewals: Vec<Renewal>, answers: Vec<Renewed> },
    Releasing,
}

#[derive(Default)]
pub(in crate::sim) struct Etcd {
    calls: BTreeMap<u64, Under>,
    /// The lease that keeps the key of each claim that was granted.
    leases: BTreeMap<LeaseId, LeaseId>,
    attempts: u64,
}

fn ask(orders: &mut Vec<Order>, ask: EtcdAsk) {
    orders.push(Order::Send(0, Request::Etcd(ask)));
}

fn seconds(ttl: Ttl, lock_delay: Duration) -> u64 {
    (ttl.as_duration() + lock_delay).as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX)
}

/// What the engine's whole seconds leave for the window, after the lock-delay.
fn real_ttl(ttl_s: u64, lock_delay: Duration, asked: Ttl) -> Ttl {
    Ttl::new(Duration::from_secs(ttl_s).saturating_sub(lock_delay)).map_or(asked, |real| real.max(asked))
}

impl Etcd {
    /// A lease for one more attempt of a claim.
    fn fresh(&mut self, claim: LeaseId) -> LeaseId {
        self.attempts += 1;
        let mut bytes = *claim.as_bytes();
        for (byte, mixed) in bytes[8..].iter_mut().zip(self.attempts.to_be_bytes()) {
            *byte ^= mixed;
        }
        LeaseId::from_bytes(bytes)
    }

    fn keep_alive(&self, claim: LeaseId, orders: &mut Vec<Order>) {
        ask(orders, EtcdAsk::KeepAlive(self.leases.get(&claim).copied().unwrap_or(claim)));
    }

    fn made(
        &mut self,
        id: u64,
        claim: Claim,
        ttl_s: u64,
        answer: EtcdAnswer,
        lease: LeaseId,
        orders: &mut Vec<Order>,
    ) -> Option<Answer> {
        let EtcdAnswer::Key { value, id: keeper, token, ttl_s: theirs_s, made } = answer else {
            return Some(failed(Kind::Unavailable));
        };
        if made {
            self.leases.insert(claim.lease_id, lease);
            return Some(grant(token, real_ttl(ttl_s, claim.lock_delay, claim.ttl), false));
        }
        // A request that was applied twice finds its own key, under its own lease.
        if keeper != lease {
            ask(orders, EtcdAsk::Revoke(lease));
        }
        if value == claim.lease_id {
            self.leases.insert(claim.lease_id, keeper);
            ask(orders, EtcdAsk::KeepAlive(keeper));
            self.calls.insert(id, Under::Rearming { claim, token });
            return None;
        }
        let ttl = Ttl::new(Duration::from_secs(theirs_s)).unwrap_or_default();
        Some(busy(&claim, value, token, ttl, ttl.as_duration()))
    }
}

impl Client for Etcd {
    fn begin(&mut self, id: u64, call: &Call, _now: Reading, orders: &mut Vec<Order>) -> Option<Answer> {
        let under = match call {
            Call::Acquire(claim) => {
                let lease = self.fresh(claim.lease_id);
                ask(orders, EtcdAsk::Grant { id: lease, ttl_s: seconds(claim.ttl, claim.lock_delay) });
                Under::Leasing { claim: claim.clone(), lease }
            }
            Call::Renew(renewals) => {
                self.keep_alive(renewals.first()?.lease_id, orders);
                Under::Renewing { renewals: renewals.clone(), answers: Vec::new() }
            }
            Call::Release(release) => {
                let (resource, value) = (release.resource.clone(), release.lease_id);
                ask(orders, EtcdAsk::Delete { resource, value });
                Under::Releasing
            }
        };
        self.calls.insert(id, under);
        None
    }

    fn replied(
        &mut self,
        id: u64,
        _server: usize,
        reply: Reply,
        _now: Reading,
        orders: &mut Vec<Order>,
    ) -> Option<Answer> {
        let answer = match reply {
            Reply::Etcd(answer) => answer,
            Reply::Failed(kind) => {
                self.calls.remove(&id)?;
                return Some(failed(kind));
            }
            _ => return None,
        };
        match (self.calls.remove(&id)?, answer) {
            (Under::Leasing { claim, lease }, EtcdAnswer::Ttl(ttl_s)) => {
                let (resource, value) = (claim.resource.clone(), claim.lease_id);
                ask(orders, EtcdAsk::Create { resource, id: lease, value });
                self.calls.insert(id, Under::Making { claim, lease, ttl_s });
                None
            }
            (
                Under::Making { claim, lease, ttl_s },
                answer @ (EtcdAnswer::Key { .. } | EtcdAnswer::NoLease),
            ) => self.made(id, claim, ttl_s, answer, lease, orders),
            // The first attempt's lease ran out between the two requests.
            (Under::Rearming { .. }, EtcdAnswer::Ttl(0)) => Some(failed(Kind::Unavailable)),
            (Under::Rearming { claim, token }, EtcdAnswer::Ttl(ttl_s)) => {
                Some(grant(token, real_ttl(ttl_s, claim.lock_delay, claim.ttl), true))
            }
            (Under::Renewing { renewals, mut answers }, EtcdAnswer::Ttl(ttl_s)) => {
                let renewal = &renewals[answers.len()];
                answers.push(match ttl_s {
                    0 => Renewed::Gone(Gone::Absent),
                    _ => Renewed::Extended { ttl: real_ttl(ttl_s, renewal.lock_delay, renewal.ttl) },
                });
                if answers.len() == renewals.len() {
                    return Some(Answer::Renewed(answers.into_iter().map(Ok).collect()));
                }
                self.keep_alive(renewals[answers.len()].lease_id, orders);
                self.calls.insert(id, Under::Renewing { renewals, answers });
                None
            }
            (Under::Releasing, EtcdAnswer::Done { was }) => {
                Some(Answer::Released(if was { Released::Ended } else { Released::NotHeld(Gone::Absent) }))
            }
            // The answer to giving an attempt's lease up, which nobody waits for.
            (under, _) => {
                self.calls.insert(id, under);
                None
            }
        }
    }

    fn dropped(&mut self, id: u64) {
        self.calls.remove(&id);
    }
}

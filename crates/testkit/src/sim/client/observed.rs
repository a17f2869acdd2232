//! For a table that judges no time: look, and take what is free, or what has stood still in this client's sight for its
//! whole TTL and the allowance for two clocks. The client's memory of what it saw, and since when, is all the expiry there
//! is; it counts from the *reply* to the look, which is later than the look itself.

use std::collections::BTreeMap;

use core::time::Duration;

use leasehold_core::{
    Kind, Resource, Token,
    record::{Acquired, Gone, Released, Renewed},
    request::{Claim, Renewal},
    window::{ClockRule, Margin, Reading},
};

use super::{Answer, Call, Client, Order, busy, failed, grant};
use crate::sim::engine::{ObservedAnswer, ObservedAsk, Reply, Request, Row};

enum Under {
    Looking(Claim),
    Taking(Claim),
    Renewing { renewals: Vec<Renewal>, answers: Vec<Renewed> },
    Releasing,
}

/// A row, and when this client first saw it so.
#[derive(Clone, Copy)]
struct Sight {
    token: Token,
    renewals: u64,
    since: Reading,
}

#[derive(Default)]
pub(in crate::sim) struct Observed {
    calls: BTreeMap<u64, Under>,
    sights: BTreeMap<Resource, Sight>,
}

fn ask(orders: &mut Vec<Order>, ask: ObservedAsk) {
    orders.push(Order::Send(0, Request::Observed(ask)));
}

impl Observed {
    /// How long the row must still stand still before it may be taken.
    fn left(&mut self, resource: &Resource, row: Row, now: Reading) -> Duration {
        let sight = self.sights.entry(resource.clone()).or_insert(Sight {
            token: row.token,
            renewals: row.renewals,
            since: now,
        });
        if (sight.token, sight.renewals) != (row.token, row.renewals) {
            *sight = Sight { token: row.token, renewals: row.renewals, since: now };
        }
        // This clock may run fast by the drift, and so may the holder's run slow; the margin's constant covers the rest.
        let margin = Margin::DEFAULT;
        let stands = Duration::from_millis(row.stands_ms);
        let whole = stands + stands * 2 * margin.drift_ppm() / 1_000_000 + margin.epsilon();
        whole.saturating_sub(ClockRule::Boot.elapsed(sight.since, now))
    }

    fn looked(
        &mut self,
        id: u64,
        claim: Claim,
        row: Option<Row>,
        now: Reading,
        orders: &mut Vec<Order>,
    ) -> Option<Answer> {
        let mut seen = None;
        if let Some(row) = row {
            if row.lease_id == Some(claim.lease_id) {
                // An earlier attempt was applied. To re-arm it, it is renewed like any other grant, and then adopted.
                let renewal = Renewal {
                    resource: claim.resource.clone(),
                    lease_id: claim.lease_id,
                    token: row.token,
                    ttl: claim.ttl,
                    lock_delay: claim.lock_delay,
                };
                ask(orders, ObservedAsk::Adopt(renewal));
                self.calls.insert(id, Under::Taking(claim));
                return None;
            }
            if let Some(lease_id) = row.lease_id {
                let left = self.left(&claim.resource, row, now);
                if !left.is_zero() {
                    return Some(busy(&claim, lease_id, row.token, row.ttl, left));
                }
            }
            seen = Some((row.token, row.renewals));
        }
        ask(orders, ObservedAsk::Take { claim: claim.clone(), seen });
        self.calls.insert(id, Under::Taking(claim));
        None
    }

    fn not_taken(&mut self, claim: &Claim, row: Option<Row>, now: Reading) -> Answer {
        match row {
            Some(row) => {
                let left = self.left(&claim.resource, row, now);
                busy(claim, row.lease_id.unwrap_or(claim.lease_id), row.token, row.ttl, left)
            }
            None => failed(Kind::Unavailable),
        }
    }
}

impl Client for Observed {
    fn begin(&mut self, id: u64, call: &Call, _now: Reading, orders: &mut Vec<Order>) -> Option<Answer> {
        let under = match call {
            Call::Acquire(claim) => {
                ask(orders, ObservedAsk::Look(claim.resource.clone()));
                Under::Looking(claim.clone())
            }
            Call::Renew(renewals) => {
                ask(orders, ObservedAsk::Renew(renewals.first()?.clone()));
                Under::Renewing { renewals: renewals.clone(), answers: Vec::new() }
            }
            Call::Release(release) => {
                ask(orders, ObservedAsk::Release(release.clone()));
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
        now: Reading,
        orders: &mut Vec<Order>,
    ) -> Option<Answer> {
        let under = self.calls.remove(&id)?;
        let answer = match reply {
            Reply::Observed(answer) => answer,
            Reply::Failed(kind) => return Some(failed(kind)),
            _ => return None,
        };
        match (under, answer) {
            (Under::Looking(claim), ObservedAnswer::Row(row)) => self.looked(id, claim, row, now, orders),
            (Under::Taking(claim), ObservedAnswer::Yes(row)) => {
                Some(grant(row.token, claim.ttl, row.renewals > 0))
            }
            (Under::Taking(claim), ObservedAnswer::No(row)) => Some(self.not_taken(&claim, row, now)),
            (Under::Taking(_), ObservedAnswer::Quarantined(left_us)) => {
                let remaining = Duration::from_micros(left_us);
                Some(Answer::Acquired(Acquired::Quarantined { remaining, position: None }))
            }
            (Under::Renewing { renewals, mut answers }, ObservedAnswer::Yes(_) | ObservedAnswer::No(_)) => {
                let renewal = &renewals[answers.len()];
                answers.push(match answer {
                    ObservedAnswer::Yes(_) => Renewed::Extended { ttl: renewal.ttl },
                    _ => Renewed::Gone(Gone::Absent),
                });
                if answers.len() == renewals.len() {
                    return Some(Answer::Renewed(answers.into_iter().map(Ok).collect()));
                }
                ask(orders, ObservedAsk::Renew(renewals[answers.len()].clone()));
                self.calls.insert(id, Under::Renewing { renewals, answers });
                None
            }
            (Under::Releasing, ObservedAnswer::Yes(_)) => Some(Answer::Released(Released::Ended)),
            (Under::Releasing, ObservedAnswer::No(_)) => {
                Some(Answer::Released(Released::NotHeld(Gone::Absent)))
            }
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

//! One of several independent engines that grant by majority (Redlock). A grant is made in two steps: first the member keeps
//! the resource and draws a token of its own; then the claimant, who knows the tokens of a majority, settles on one above
//! all of them. A renewal writes the settled token where the first step was all that arrived; a member that lacks what a majority
//! has just extended is given it.

use std::collections::BTreeMap;

use core::time::Duration;

use leasehold_core::{
    Kind, LeaseId, Resource, Token, Ttl,
    quorum::Offer,
    request::{Claim, Release, Renewal},
    slot::{Now, expiry},
};

use super::{Answer, FakeEngine, Fault, Memory, Quarantine, Reply, Request, Setup, next_token};

/// What a member is asked.
#[derive(Clone, Debug)]
pub enum MemberAsk {
    /// The first step of the attempt of this number. The member takes the proposed token, where it can: a majority that has
    /// taken the same one needs no second step.
    Keep(Claim, u32, Option<Token>),
    /// The second step.
    Settle {
        /// Of what.
        resource: Resource,
        /// Whose grant.
        lease_id: LeaseId,
        /// The token that the majority's tokens are all below.
        token: Token,
    },
    /// Extend.
    Renew(Renewal),
    /// Have what a majority has just extended, and this member lacks.
    Replant(Renewal),
    /// End what attempts up to this number have kept, and nothing of a later one: a request that gives up an attempt may
    /// arrive after the next attempt has begun.
    Release(Release, u32),
}

/// What it answers.
#[derive(Clone, Debug)]
pub enum MemberAnswer {
    /// Kept, under this token: a proposed or settled one, or one of this member's.
    Kept(Offer),
    /// Another has it.
    Busy {
        /// The other.
        lease_id: LeaseId,
        /// Its token here.
        token: Token,
        /// Its TTL.
        ttl: Ttl,
        /// What is left of it.
        remaining: Duration,
    },
    /// In quarantine for so long.
    Quarantined(Duration),
    /// The second step is done; or the renewal.
    Yes,
    /// It is not; nothing of this grant is here.
    No,
}

#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_field_names, reason = "a lease id is called so everywhere")]
struct Lease {
    lease_id: LeaseId,
    token: Token,
    ttl: Ttl,
    expires_us: u64,
    attempt: u32,
    settled: bool,
}

impl Lease {
    /// True for the grant of this lease id under this token. A member that missed the second step has it under an older token, or
    /// under one of its own.
    fn is(&self, lease_id: LeaseId, token: Token) -> bool {
        self.lease_id == lease_id && (!self.settled || self.token <= token)
    }
}

#[derive(Clone, Debug, Default)]
struct Store {
    leases: BTreeMap<Resource, Lease>,
    tokens: BTreeMap<Resource, Token>,
    quarantine: Quarantine,
}

/// One member of a quorum.
#[derive(Debug)]
pub struct Member {
    setup: Setup,
    store: Store,
    snapshot: Store,
}

impl Member {
    /// A member that was prepared and remembers nothing yet.
    pub fn new(setup: Setup) -> Self {
        Self { setup, store: Store::default(), snapshot: Store::default() }
    }

    fn live(&self, now: Now, resource: &Resource) -> Option<Lease> {
        self.store.leases.get(resource).filter(|lease| lease.expires_us > now.clock_us).copied()
    }

    fn put(
        &mut self,
        now: Now,
        resource: &Resource,
        lease: (LeaseId, u32),
        offer: Offer,
        terms: (Ttl, Duration),
    ) {
        let Offer { token, settled } = offer;
        let expires_us = expiry(terms.0, terms.1, now);
        let (lease_id, attempt) = lease;
        let lease = Lease { lease_id, token, ttl: terms.0, expires_us, attempt, settled };
        self.store.leases.insert(resource.clone(), lease);
        let stored = self.store.tokens.entry(resource.clone()).or_insert(token);
        *stored = (*stored).max(token);
    }

    fn keep(&mut self, now: Now, claim: &Claim, attempt: u32, proposal: Option<Token>) -> MemberAnswer {
        let terms = (claim.ttl, claim.lock_delay);
        match self.live(now, &claim.resource) {
            Some(Lease { lease_id, token, attempt: before, settled, .. }) if lease_id == claim.lease_id => {
                // Adopting is granting: what was forgotten may be that this grant ended and another followed.
                if let Some(left) = self.store.quarantine.left(now) {
                    return MemberAnswer::Quarantined(left);
                }
                let offer = Offer { token, settled };
                self.put(now, &claim.resource, (lease_id, attempt.max(before)), offer, terms);
                return MemberAnswer::Kept(offer);
            }
            Some(Lease { lease_id, token, ttl, expires_us, .. }) => {
                let remaining = Duration::from_micros(expires_us - now.clock_us);
                return MemberAnswer::Busy { lease_id, token, ttl, remaining };
            }
            None => {}
        }
        if let Some(left) = self.store.quarantine.left(now) {
            return MemberAnswer::Quarantined(left);
        }
        let stored = self.store.tokens.get(&claim.resource).copied();
        let Some(token) = next_token(self.setup, stored, claim.floor, now) else { return MemberAnswer::No };
        let offer = match proposal {
            Some(proposal) if proposal >= token && within_reach(proposal, now) => {
                Offer { token: proposal, settled: true }
            }
            _ => Offer { token, settled: false },
        };
        self.put(now, &claim.resource, (claim.lease_id, attempt), offer, terms);
        MemberAnswer::Kept(offer)
    }

    fn settle(&mut self, now: Now, resource: &Resource, lease_id: LeaseId, token: Token) -> bool {
        let Some(lease) = self.live(now, resource).filter(|lease| lease.lease_id == lease_id) else {
            return false;
        };
        // A late second step of an earlier attempt must not lower what a later one wrote.
        let token = token.max(lease.token);
        self.store.leases.insert(resource.clone(), Lease { token, settled: true, ..lease });
        let stored = self.store.tokens.entry(resource.clone()).or_insert(token);
        *stored = (*stored).max(token);
        true
    }

    fn renew(&mut self, now: Now, renewal: &Renewal) -> bool {
        let Renewal { resource, lease_id, token, ttl, lock_delay } = renewal;
        let live = self.live(now, resource);
        let Some(before) = live.filter(|lease| lease.is(*lease_id, *token)) else { return false };
        let settled = Offer { token: *token, settled: true };
        self.put(now, resource, (*lease_id, u32::MAX), settled, (*ttl, *lock_delay));
        if let Some(lease) = self.store.leases.get_mut(resource) {
            lease.expires_us = lease.expires_us.max(before.expires_us);
        }
        true
    }

    /// What has no majority any more is not brought back: the claimant asks for this only when a majority has just extended it.
    fn replant(&mut self, now: Now, renewal: &Renewal) -> bool {
        let Renewal { resource, lease_id, token, ttl, lock_delay } = renewal;
        let newer = self.store.tokens.get(resource).is_some_and(|stored| stored > token);
        if newer || self.live(now, resource).is_some() {
            return false;
        }
        let settled = Offer { token: *token, settled: true };
        self.put(now, resource, (*lease_id, u32::MAX), settled, (*ttl, *lock_delay));
        true
    }

    fn release(&mut self, now: Now, release: &Release, attempt: u32) -> bool {
        let is = |lease: &Lease| release.token.is_none_or(|token| lease.is(release.lease_id, token));
        let mine = self.live(now, &release.resource).is_some_and(|lease| {
            lease.lease_id == release.lease_id && lease.attempt <= attempt && is(&lease)
        });
        if mine {
            self.store.leases.remove(&release.resource);
        }
        mine
    }
}

/// A proposal may be ahead of this member's clock by less than a quarantine lasts: else a member that forgets could give
/// lower tokens after it.
const MAX_LEAD_US: u64 = 1_000_000;

const fn within_reach(proposal: Token, now: Now) -> bool {
    proposal.get() <= now.unix_us.saturating_add(MAX_LEAD_US)
}

impl FakeEngine for Member {
    fn handle(&mut self, now: Now, request: &Request) -> Answer {
        let Request::Member(ask) = request else { return Reply::Failed(Kind::Unsupported).into() };
        let said = |yes| if yes { MemberAnswer::Yes } else { MemberAnswer::No };
        Reply::Member(match ask {
            MemberAsk::Keep(claim, attempt, proposal) => self.keep(now, claim, *attempt, *proposal),
            MemberAsk::Settle { resource, lease_id, token } => {
                said(self.settle(now, resource, *lease_id, *token))
            }
            MemberAsk::Renew(renewal) => said(self.renew(now, renewal)),
            MemberAsk::Replant(renewal) => said(self.replant(now, renewal)),
            MemberAsk::Release(release, attempt) => said(self.release(now, release, *attempt)),
        })
        .into()
    }

    fn fault(&mut self, now: Now, fault: Fault) -> bool {
        let forgot = match fault {
            Fault::Snapshot => {
                self.snapshot = self.store.clone();
                return false;
            }
            Fault::LeaderChange => return false,
            Fault::Restart(Memory::Kept) => false,
            Fault::Restart(Memory::Lost) => {
                self.store = Store::default();
                true
            }
            Fault::Restart(Memory::Stale) => {
                self.store = self.snapshot.clone();
                true
            }
        };
        if forgot || self.setup.doubts_every_start {
            self.store.quarantine.begin(self.setup, now);
        }
        // One member's loss is no loss of the whole: a majority remembers.
        false
    }

    fn standing(&self, _now: Now, _resource: &Resource) -> Option<(LeaseId, Token)> {
        None
    }

    fn grants(&self, now: Now) -> bool {
        self.store.quarantine.left(now).is_none()
    }
}

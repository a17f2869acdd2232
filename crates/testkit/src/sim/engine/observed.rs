//! A table whose server judges no time at all (PostgreSQL with `expiry=observed`): a row names the grant and counts its
//! renewals, and whoever has seen a row stand still for longer than its TTL, on a clock of its own, may take it by
//! comparing and setting.

use std::collections::BTreeMap;

use leasehold_core::{
    Kind, LeaseId, Resource, Token, Ttl,
    request::{Claim, Release, Renewal},
    slot::Now,
};

use super::{Answer, FakeEngine, Fault, Memory, Quarantine, Reply, Request, Setup, next_token};

/// What is known of one resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The highest token given.
    pub token: Token,
    /// Rises with every renewal.
    pub renewals: u64,
    /// Whose it is; `None` when it was released.
    pub lease_id: Option<LeaseId>,
    /// TTL and lock-delay together, in milliseconds.
    pub stands_ms: u64,
    /// The TTL.
    pub ttl: Ttl,
}

/// What it is asked.
#[derive(Clone, Debug)]
pub enum ObservedAsk {
    /// What does the row say?
    Look(Resource),
    /// Take the row, if it still says what was seen.
    Take {
        /// For this claim.
        claim: Claim,
        /// Token and renewals as seen; `None` when there was no row.
        seen: Option<(Token, u64)>,
    },
    /// Count one more renewal.
    Renew(Renewal),
    /// The same for a claimant who does not hold yet: an earlier attempt of its claim was applied. Not in quarantine: what
    /// was forgotten may be that the row was taken by another since.
    Adopt(Renewal),
    /// Empty the row.
    Release(Release),
}

/// What it answers.
#[derive(Clone, Copy, Debug)]
pub enum ObservedAnswer {
    /// The row as it is now; `None` when there is none.
    Row(Option<Row>),
    /// In quarantine for so long, in microseconds.
    Quarantined(u64),
    /// It was taken, renewed or released.
    Yes(Row),
    /// It was not.
    No(Option<Row>),
}

#[derive(Clone, Debug, Default)]
struct Store {
    rows: BTreeMap<Resource, Row>,
    quarantine: Quarantine,
}

/// A table whose rows are judged by whoever looks at them.
#[derive(Debug)]
pub struct Observed {
    setup: Setup,
    store: Store,
    snapshot: Store,
}

impl Observed {
    /// A table that was prepared and is empty.
    pub fn new(setup: Setup) -> Self {
        Self { setup, store: Store::default(), snapshot: Store::default() }
    }

    fn take(&mut self, now: Now, claim: &Claim, seen: Option<(Token, u64)>) -> ObservedAnswer {
        let row = self.store.rows.get(&claim.resource).copied();
        let same = row.map(|row| (row.token, row.renewals)) == seen;
        if !same {
            return ObservedAnswer::No(row);
        }
        if let Some(left) = self.store.quarantine.left(now) {
            return ObservedAnswer::Quarantined(u64::try_from(left.as_micros()).unwrap_or(u64::MAX));
        }
        let Some(token) = next_token(self.setup, row.map(|row| row.token), claim.floor, now) else {
            return ObservedAnswer::No(row);
        };
        let delay_ms = u64::try_from(claim.lock_delay.as_millis()).unwrap_or(u64::MAX);
        let row = Row {
            token,
            renewals: 0,
            lease_id: Some(claim.lease_id),
            stands_ms: claim.ttl.as_millis() + delay_ms,
            ttl: claim.ttl,
        };
        self.store.rows.insert(claim.resource.clone(), row);
        ObservedAnswer::Yes(row)
    }

    fn change(
        &mut self,
        resource: &Resource,
        lease_id: LeaseId,
        token: Option<Token>,
        change: impl FnOnce(&mut Row),
    ) -> ObservedAnswer {
        match self.store.rows.get_mut(resource) {
            Some(row) if row.lease_id == Some(lease_id) && token.is_none_or(|token| token == row.token) => {
                change(row);
                ObservedAnswer::Yes(*row)
            }
            row => ObservedAnswer::No(row.copied()),
        }
    }
}

impl FakeEngine for Observed {
    fn handle(&mut self, now: Now, request: &Request) -> Answer {
        let Request::Observed(ask) = request else { return Reply::Failed(Kind::Unsupported).into() };
        Reply::Observed(match ask {
            ObservedAsk::Look(resource) => ObservedAnswer::Row(self.store.rows.get(resource).copied()),
            ObservedAsk::Take { claim, seen } => self.take(now, claim, *seen),
            ObservedAsk::Adopt(_) if self.store.quarantine.left(now).is_some() => {
                let left = self.store.quarantine.left(now).unwrap_or_default();
                ObservedAnswer::Quarantined(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
            }
            ObservedAsk::Renew(renewal) | ObservedAsk::Adopt(renewal) => {
                self.change(&renewal.resource, renewal.lease_id, Some(renewal.token), |row| row.renewals += 1)
            }
            ObservedAsk::Release(release) => {
                self.change(&release.resource, release.lease_id, release.token, |row| row.lease_id = None)
            }
        })
        .into()
    }

    fn fault(&mut self, now: Now, fault: Fault) -> bool {
        let forgot = match fault {
            Fault::Snapshot => {
                self.snapshot = self.store.clone();
                return false;
            }
            Fault::LeaderChange | Fault::Restart(Memory::Kept) => return false,
            Fault::Restart(Memory::Lost) => {
                self.store = Store::default();
                true
            }
            Fault::Restart(Memory::Stale) => {
                self.store = self.snapshot.clone();
                true
            }
        };
        self.store.quarantine.begin(self.setup, now);
        forgot
    }

    fn standing(&self, _now: Now, _resource: &Resource) -> Option<(LeaseId, Token)> {
        None
    }

    fn grants(&self, now: Now) -> bool {
        self.store.quarantine.left(now).is_none()
    }
}

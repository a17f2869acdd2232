//! The client's half of an engine: turns one call of the coordinator's contract into requests to servers, and their replies
//! into one answer. Without I/O, and without retries, as the contract asks.

mod direct;
mod etcd;
mod observed;
mod quorum;

use core::time::Duration;

use leasehold_core::{
    Error, Kind, Ttl,
    record::{Acquired, Busy, Grant, Record, Released, Renewed},
    request::{Claim, Release, Renewal},
    window::Reading,
};

use super::{
    Mutant,
    engine::{self, FakeEngine, Reply, Request, Setup, SlotEngine},
};

pub(super) use direct::Direct;
pub(super) use etcd::Etcd;
pub(super) use observed::Observed;
pub(super) use quorum::Quorum;

/// One call of the contract.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Acquire(Claim),
    Renew(Vec<Renewal>),
    Release(Release),
}

/// Its answer.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Acquired(Acquired),
    Renewed(Vec<Result<Renewed, Error>>),
    Released(Released),
    Failed(Error),
}

/// What a client wants done.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// Send this to a server.
    Send(usize, Request),
    /// Ring after this long.
    Alarm(Duration),
}

/// A coordinator, as values.
pub(super) trait Client {
    /// A call begins.
    fn begin(&mut self, id: u64, call: &Call, now: Reading, orders: &mut Vec<Order>) -> Option<Answer>;

    /// A server replied to a request of this call.
    fn replied(
        &mut self,
        id: u64,
        server: usize,
        reply: Reply,
        now: Reading,
        orders: &mut Vec<Order>,
    ) -> Option<Answer>;

    /// The alarm of this call rings.
    fn alarm(&mut self, id: u64, now: Reading, orders: &mut Vec<Order>) -> Option<Answer> {
        let _ = (id, now, orders);
        None
    }

    /// The caller dropped this call.
    fn dropped(&mut self, id: u64);

    /// How many renewals one call may carry.
    fn batch(&self) -> usize {
        1_000
    }
}

fn failed(kind: Kind) -> Answer {
    Answer::Failed(Error::new(kind, ""))
}

fn grant(token: leasehold_core::Token, ttl: Ttl, adopted: bool) -> Answer {
    Answer::Acquired(Acquired::Granted(Grant { token, ttl, granted_us: 0, adopted, after_lapse: false }))
}

fn busy(
    claim: &Claim,
    lease_id: leasehold_core::LeaseId,
    token: leasehold_core::Token,
    ttl: Ttl,
    remaining: Duration,
) -> Answer {
    let holder = Record {
        lease_id,
        token,
        ttl,
        remaining,
        granted_us: 0,
        holder_id: claim.holder_id,
        label: claim.label.clone(),
        revoked: None,
    };
    Answer::Acquired(Acquired::Busy(Busy { holder, position: None, recheck: remaining }))
}

/// Which engine the clients of a run speak to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kindred {
    /// One server that decides by itself, on the clock of the clients' own machine.
    Local,
    /// One server that decides by itself, on the wall clock of its machine.
    Server,
    /// So many independent servers and a majority.
    Quorum(usize),
    /// Keys and leases on a clock that does not step.
    Etcd,
    /// A table, and expiry by observation.
    Observed,
}

impl Kindred {
    pub(super) fn client(self, server: usize, mutant: Option<Mutant>) -> Box<dyn Client> {
        match self {
            Self::Local | Self::Server => Box::new(Direct { server }),
            Self::Quorum(members) => Box::new(Quorum::new(members, mutant)),
            Self::Etcd => Box::new(Etcd::default()),
            Self::Observed => Box::new(Observed::default()),
        }
    }
    pub(super) fn server(self, setup: Setup) -> Box<dyn FakeEngine> {
        match self {
            Self::Local | Self::Server => Box::new(SlotEngine::new(setup)),
            Self::Quorum(_) => Box::new(engine::Member::new(setup)),
            Self::Etcd => Box::new(engine::Etcd::new(setup)),
            Self::Observed => Box::new(engine::Observed::new(setup)),
        }
    }

    pub(super) const fn servers(self) -> usize {
        match self {
            Self::Quorum(members) => members,
            _ => 1,
        }
    }
}

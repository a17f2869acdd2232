//! Fake engines: what a server does with one request, as a value without I/O. Each has a file of its own; each can be held
//! against the real thing, because the same requests can be sent to both.

mod etcd;
mod lazy_line;
mod observed;
mod quorum;
mod slot;

use core::time::Duration;

use leasehold_core::{
    Kind, LeaseId, Resource, Token, Ttl,
    record::{Acquired, Released, Renewed, Revoked},
    request::{Claim, Release, Renewal, Revocation},
    slot::Now,
};

pub use etcd::{Etcd, EtcdAnswer, EtcdAsk};
pub use observed::{Observed, ObservedAnswer, ObservedAsk, Row};
pub use quorum::{Member, MemberAnswer, MemberAsk};
pub use slot::SlotEngine;

/// What a client sends to a server.
#[derive(Clone, Debug)]
pub enum Request {
    /// To an engine that decides by itself.
    Acquire(Claim),
    /// As above.
    Renew(Vec<Renewal>),
    /// As above.
    Release(Release),
    /// As above.
    Revoke(Revocation),
    /// To one of several independent engines.
    Member(MemberAsk),
    /// To a store of keys and leases.
    Etcd(EtcdAsk),
    /// To a table whose clients judge expiry.
    Observed(ObservedAsk),
}

/// What a server sends back.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To a claim.
    Acquired(Acquired),
    /// To renewals, in order.
    Renewed(Vec<Renewed>),
    /// To a release.
    Released(Released),
    /// To a revocation.
    Revoked(Revoked),
    /// See [`Request::Member`].
    Member(MemberAnswer),
    /// See [`Request::Etcd`].
    Etcd(EtcdAnswer),
    /// See [`Request::Observed`].
    Observed(ObservedAnswer),
    /// It did not do it.
    Failed(Kind),
}

/// A reply, and whom to wake.
#[derive(Clone, Debug)]
pub struct Answer {
    /// To whoever asked.
    pub reply: Reply,
    /// Claims and grants that should look.
    pub wakes: Vec<LeaseId>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply, wakes: Vec::new() }
    }
}

/// What is left of a server's memory after it was started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Everything that was answered.
    Kept,
    /// Nothing.
    Lost,
    /// What it was at the last snapshot: a replica without the last writes, or a backup.
    Stale,
}

/// What can happen to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Its state is copied, to be returned to.
    Snapshot,
    /// It starts again with this memory.
    Restart(Memory),
    /// Another member leads now.
    LeaderChange,
}

/// One server.
pub trait FakeEngine {
    /// Applies one request in one atomic step.
    fn handle(&mut self, now: Now, request: &Request) -> Answer;

    /// Suffers a fault. True when it may have forgotten grants from here on.
    fn fault(&mut self, now: Now, fault: Fault) -> bool;

    /// The grant that stands by its own record, for the judge. Engines that cannot tell say `None`.
    fn standing(&self, now: Now, resource: &Resource) -> Option<(LeaseId, Token)>;

    /// True when it would grant a free resource.
    fn grants(&self, now: Now) -> bool;

    /// A second engine that begins as this one was at its last snapshot, as a promoted replica does.
    fn promoted(&self, now: Now) -> Option<Box<dyn FakeEngine>> {
        let _ = now;
        None
    }
}

/// How a server is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The longest TTL of the namespace.
    pub max_ttl: Ttl,
    /// Every start counts as a loss of memory, also one that lost nothing (an engine that cannot tell).
    pub doubts_every_start: bool,
    /// Whoever frees a resource sets the next token aside for the first in line, as SQLite does.
    pub sets_tokens_aside: bool,
    /// That somebody in line has asked again is written down once this has passed since it last was, as PostgreSQL does; nothing
    /// where it always is.
    pub refreshes_after: Duration,
    /// A line in which nobody has asked for so long vanishes as a whole, as on Redis; never where this is nothing.
    pub lines_vanish_after: Option<Duration>,
    /// A claim that is refused (for a floor that is not believed) leaves what it found written down, as on PostgreSQL: that the
    /// grant before had ended.
    pub refused_claims_tell: bool,
    /// What is broken on purpose.
    pub mutant: Option<super::Mutant>,
}

/// A quarantine and what it is about: the same for every engine that may forget.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quarantine {
    until_us: u64,
}

impl Quarantine {
    pub(super) const fn begin(&mut self, setup: Setup, now: Now) {
        if !matches!(setup.mutant, Some(super::Mutant::NoQuarantine)) {
            self.until_us = now.clock_us + setup.max_ttl.as_micros();
        }
    }

    pub(super) const fn left(self, now: Now) -> Option<Duration> {
        match self.until_us.saturating_sub(now.clock_us) {
            0 => None,
            left => Some(Duration::from_micros(left)),
        }
    }
}

/// The next token, by the contract's rule or without its time floor.
pub(super) fn next_token(
    setup: Setup,
    stored: Option<Token>,
    floor: Option<Token>,
    now: Now,
) -> Option<Token> {
    if setup.mutant == Some(super::Mutant::NoFloor) {
        return Token::next(stored, None, 0).ok();
    }
    Token::next(stored, floor, now.unix_us).ok()
}

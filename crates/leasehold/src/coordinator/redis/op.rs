//! The operations, as the scripts read them. What the fields mean stands there.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    LeaseId, Token, Ttl,
    record::Record,
    request::{Claim, Preparation, Release, Renewal, Revocation},
};

use super::{pack::Packed, script::Kind, space::Space, wake::Address};

/// One operation. Cheap to copy: several servers may be asked the same.
#[derive(Clone, Debug)]
pub(crate) struct Op(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    kind: Kind,
    keys: Vec<String>,
    body: Vec<u8>,
}

impl Op {
    fn new(kind: Kind, keys: Vec<String>, packed: Packed) -> Self {
        debug_assert_eq!(keys.len(), kind.keys());
        Self(Arc::new(Parts { kind, keys, body: packed.finish() }))
    }

    /// What it does.
    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The keys it touches, besides those of the shard.
    pub(crate) fn keys(&self) -> &[String] {
        &self.0.keys
    }

    /// Its arguments.
    pub(crate) fn body(&self) -> &[u8] {
        &self.0.body
    }

    /// Asks for a grant. `name` is the resource's, encoded; `wake` is where the claimant is woken.
    pub(crate) fn acquire(space: &Space, name: &str, claim: &Claim, wake: Address) -> Self {
        Self::new(Kind::Acquire, changing(space, name), claim_of(name, claim, wake))
    }

    /// Asks one of several independent nodes: it takes the proposed token if it may, and makes nobody wait for others.
    pub(crate) fn offer(space: &Space, name: &str, claim: &Claim, wake: Address, proposal: Token) -> Self {
        let packed = claim_of(name, claim, wake).number(proposal.get());
        Self::new(Kind::Acquire, changing(space, name), packed)
    }

    /// The second phase of a claim to several nodes: what this one offered becomes this grant, its TTL running from here.
    pub(crate) fn confirm(space: &Space, name: &str, grant: &Renewal, granted_us: u64) -> Self {
        let packed = renewal_of(grant).number(granted_us);
        Self::new(Kind::Confirm, vec![space.record(name)], packed)
    }

    /// Takes back what an attempt left that found no majority, if it has one of these tokens or none that was agreed on.
    pub(crate) fn retract(space: &Space, name: &str, claim: &Claim, tokens: [Token; 2]) -> Self {
        let packed =
            Packed::new().bytes(claim.lease_id.as_bytes()).number(tokens[0].get()).number(tokens[1].get());
        Self::new(Kind::Retract, whole(space, name), packed)
    }

    /// Gives a node a grant that a majority has and has renewed when this node's clock showed `asked_us`.
    pub(crate) fn replant(
        space: &Space,
        name: &str,
        renewal: &Renewal,
        record: &Record,
        wake: Address,
        asked_us: u64,
    ) -> Self {
        let packed = renewal_of(renewal)
            .number(asked_us)
            .bytes(record.holder_id.as_bytes())
            .text(record.label.as_str())
            .bytes(&wake)
            .number(record.granted_us)
            .text(name);
        Self::new(Kind::Replant, vec![space.record(name)], packed)
    }

    /// Extends a grant.
    pub(crate) fn renew(space: &Space, name: &str, renewal: &Renewal) -> Self {
        Self::new(Kind::Renew, vec![space.record(name)], renewal_of(renewal))
    }

    /// Ends a grant or takes a claim back.
    pub(crate) fn release(space: &Space, name: &str, release: &Release) -> Self {
        Self::new(Kind::Release, changing(space, name), release_of(release))
    }

    /// Ends another's grant.
    pub(crate) fn revoke(space: &Space, name: &str, revocation: &Revocation) -> Self {
        let packed = Packed::new()
            .number(revocation.token.get())
            .text(revocation.by.as_str())
            .text(revocation.reason.as_str())
            .flag(revocation.now);
        Self::new(Kind::Revoke, changing(space, name), packed)
    }

    /// Reads a resource, and names so many of those who wait.
    pub(crate) fn inspect(space: &Space, name: &str, named: usize) -> Self {
        let packed = Packed::new().number(named as u64);
        Self::new(Kind::Inspect, whole(space, name), packed)
    }

    /// Reads the grants that have ended.
    pub(crate) fn history(space: &Space, name: &str) -> Self {
        Self::new(Kind::History, vec![space.record(name), space.past(name)], Packed::new())
    }

    /// Reads what the shard is, and so many of its names between two bounds.
    pub(crate) fn names(from: &str, to: &str, limit: u64) -> Self {
        Self::new(Kind::Names, Vec::new(), Packed::new().text(from).text(to).number(limit))
    }

    /// Reads what the shard is.
    pub(crate) fn look() -> Self {
        Self::names("-", "+", 0)
    }

    /// Picks so many names by chance.
    pub(crate) fn sample(count: u64) -> Self {
        Self::names("", "", count)
    }

    /// Forgets a name whose record has vanished.
    pub(crate) fn forget(space: &Space, name: &str) -> Self {
        Self::new(Kind::Forget, vec![space.record(name)], Packed::new().text(name))
    }

    /// Makes the shard, or changes its settings.
    pub(crate) fn prepare(preparation: Preparation) -> Self {
        let packed =
            Packed::new().flag(preparation.fresh).number(preparation.max_ttl.map_or(0, Ttl::as_millis));
        Self::new(Kind::Prepare, Vec::new(), packed)
    }
}

fn claim_of(name: &str, claim: &Claim, wake: Address) -> Packed {
    Packed::new()
        .bytes(claim.lease_id.as_bytes())
        .bytes(claim.holder_id.as_bytes())
        .text(claim.label.as_str())
        .number(claim.ttl.as_millis())
        .number(micros(claim.lock_delay))
        .number(claim.floor.map_or(0, Token::get))
        .flag(claim.queue)
        .number(claim.once_per.map_or(0, micros))
        .bytes(&wake)
        .text(name)
}

fn renewal_of(renewal: &Renewal) -> Packed {
    Packed::new()
        .bytes(renewal.lease_id.as_bytes())
        .number(renewal.token.get())
        .number(renewal.ttl.as_millis())
        .number(micros(renewal.lock_delay))
}

fn release_of(release: &Release) -> Packed {
    Packed::new()
        .bytes(release.lease_id.as_bytes())
        .number(release.token.map_or(0, Token::get))
        .flag(release.succeeded)
}

fn whole(space: &Space, name: &str) -> Vec<String> {
    vec![space.record(name), space.line(name), space.entries(name)]
}

fn changing(space: &Space, name: &str) -> Vec<String> {
    let mut keys = whole(space, name);
    keys.push(space.past(name));
    keys
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The lease id that a wake names.
pub(crate) fn lease_id(bytes: &[u8]) -> Option<LeaseId> {
    bytes.try_into().ok().map(LeaseId::from_bytes)
}

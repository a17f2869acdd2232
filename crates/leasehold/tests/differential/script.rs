//! Scripts: random requests to one engine, as data, so that a failing one can be shrunk and read.

use std::time::Duration;

use leasehold::{HolderId, Label, LeaseId, Resource, Token, Ttl};
use leasehold_core::request::{Claim, Release, Renewal, Revocation};
use leasehold_testkit::sim::engine::Request;
use proptest::prelude::*;

/// Who asks: few, so that they meet.
const IDS: u8 = 6;
/// Longer than most of what a script lets pass, and all that it takes.
const ONCE_PER: Duration = Duration::from_secs(600);
pub(crate) const RESOURCES: usize = 2;

/// What the script knows of the engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// The highest token of each resource.
    pub(crate) tokens: [Option<Token>; RESOURCES],
    /// How many grants each claimant has had that ended: a claim is made anew under another lease id. Where this stays 0, a claim
    /// that is spent is asked for again.
    pub(crate) ended: [u8; IDS as usize],
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Pass(u64),
    Acquire { id: u8, resource: u8, ttl_ms: u64, delay_ms: u64, queue: bool, ahead: Option<u64>, once: bool },
    Renew { ids: Vec<u8>, resource: u8, ttl_ms: u64, delay_ms: u64, off: u64 },
    Release { id: u8, resource: u8, token: bool, off: u64, succeeded: bool },
    Revoke { resource: u8, off: u64, now: bool },
}

/// What a script may contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// TTLs, in milliseconds, from and to.
    pub(crate) ttl_ms: (u64, u64),
    /// Time passes. Not where the engine's clock cannot be moved.
    pub(crate) time: bool,
    /// Claims may wait in line, ask for one run in a while, and be revoked: the contract in full.
    pub(crate) full: bool,
}

impl Scope {
    /// Everything, on an engine whose clock is ours.
    pub(crate) const FULL: Self = Self { ttl_ms: (50, 3_000), time: true, full: true };

    /// Steps.
    pub(crate) fn step(self) -> impl Strategy<Value = Step> {
        let (id, resource) = (0..IDS, 0u8..2);
        let (least, most) = self.ttl_ms;
        // Now and then one that no namespace allows.
        let wild = u32::from(self.full);
        let ttl_ms =
            prop_oneof![9 => least..most, 6 => Just(1_000.max(least)), wild => Just(Ttl::MAX.as_millis())];
        let renewed_ms = prop_oneof![3 => least..most, 2 => Just(1_000.max(least))];
        let delay_ms = prop_oneof![3 => Just(0u64), 1 => 0u64..900];
        // A token is usually the right one.
        let off = prop_oneof![6 => Just(0u64), 1 => 1u64..3];
        // Up to the bound of what is believed, and above it. Where the clocks are not the same, not near it.
        let (near, far) = match (self.time, self.full) {
            (true, _) => (0u64..2_000_000_000, 0u64..2_000_000_000),
            (false, true) => (0..500_000_000, 700_000_000..2_000_000_000),
            (false, false) => (0..500_000_000, 0..500_000_000),
        };
        let ahead = prop_oneof![16 => Just(None), 1 => near.prop_map(Some), 1 => far.prop_map(Some)];
        let (queue, once) = if self.full { (0.5, 0.1) } else { (0.0, 0.0) };
        let acquire = (
            id.clone(),
            resource.clone(),
            ttl_ms,
            delay_ms.clone(),
            prop::bool::weighted(queue),
            ahead,
            prop::bool::weighted(once),
        )
            .prop_map(|(id, resource, ttl_ms, delay_ms, queue, ahead, once)| Step::Acquire {
                id,
                resource,
                ttl_ms,
                delay_ms,
                queue,
                ahead,
                once,
            });
        let renew =
            (prop::collection::vec(id.clone(), 1..3), resource.clone(), renewed_ms, delay_ms, off.clone())
                .prop_map(|(ids, resource, ttl_ms, delay_ms, off)| Step::Renew {
                    ids,
                    resource,
                    ttl_ms,
                    delay_ms,
                    off,
                });
        let release = (id, resource.clone(), any::<bool>(), off.clone(), any::<bool>()).prop_map(
            |(id, resource, token, off, succeeded)| Step::Release { id, resource, token, off, succeeded },
        );
        let revoke = (resource, off, any::<bool>()).prop_map(|(resource, off, now)| Step::Revoke {
            resource,
            off,
            now,
        });
        let pass = prop_oneof![0u64..200, 0u64..3_000, Just(500), Just(4_000), Just(45_000), Just(600_000)]
            .prop_map(Step::Pass);
        prop_oneof![
            (if self.time { 4 } else { 0 }) => pass,
            8 => acquire,
            4 => renew,
            5 => release,
            u32::from(self.full) => revoke,
        ]
    }
}

fn lease_id(n: u8, known: &Known) -> LeaseId {
    let mut bytes = [n + 1; 16];
    bytes[15] ^= known.ended[usize::from(n)];
    LeaseId::from_bytes(bytes)
}

/// One of the resources.
pub(crate) fn name(n: usize) -> Resource {
    Resource::new(&format!("r{n}")).unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

impl Step {
    /// Whose claim or grant it is about, where it is about one.
    pub(crate) const fn claimant(&self) -> Option<u8> {
        match *self {
            Self::Acquire { id, .. } | Self::Release { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Which resource it is about.
    pub(crate) fn subject(&self) -> usize {
        match *self {
            Self::Pass(_) => 0,
            Self::Acquire { resource, .. }
            | Self::Renew { resource, .. }
            | Self::Release { resource, .. }
            | Self::Revoke { resource, .. } => usize::from(resource),
        }
    }

    /// The request, which may name a token that was given.
    pub(crate) fn request(&self, known: &Known, unix_us: u64) -> Option<Request> {
        let token_of = |resource: u8, off: u64| {
            let given = known.tokens[usize::from(resource)].map_or(1, Token::get);
            Token::new(given - off.min(given - 1)).unwrap()
        };
        let name = |resource: u8| name(usize::from(resource));
        Some(match *self {
            Self::Pass(_) => return None,
            Self::Acquire { id, resource, ttl_ms, delay_ms, queue, ahead, once } => Request::Acquire(Claim {
                resource: name(resource),
                lease_id: lease_id(id, known),
                holder_id: HolderId::from_bytes([id; 16]),
                label: Label::new(&format!("host:{id}")).unwrap(),
                ttl: ttl(ttl_ms),
                lock_delay: Duration::from_millis(delay_ms),
                floor: ahead.map(|ahead| Token::new(unix_us + ahead).unwrap()),
                queue,
                once_per: once.then_some(ONCE_PER),
            }),
            Self::Renew { ref ids, resource, ttl_ms, delay_ms, off } => Request::Renew(
                ids.iter()
                    .map(|&id| Renewal {
                        resource: name(resource),
                        lease_id: lease_id(id, known),
                        token: token_of(resource, off),
                        ttl: ttl(ttl_ms),
                        lock_delay: Duration::from_millis(delay_ms),
                    })
                    .collect(),
            ),
            Self::Release { id, resource, token, off, succeeded } => Request::Release(Release {
                resource: name(resource),
                lease_id: lease_id(id, known),
                token: token.then(|| token_of(resource, off)),
                succeeded,
            }),
            Self::Revoke { resource, off, now } => Request::Revoke(Revocation {
                resource: name(resource),
                token: token_of(resource, off),
                by: Label::new("operator").unwrap(),
                reason: Label::new("a test").unwrap(),
                now,
            }),
        })
    }
}

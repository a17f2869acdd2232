//! What an engine says about itself: its capabilities, and an honest label of what it guarantees.

use alloc::string::String;
use core::fmt;

use crate::{ttl::Ttl, window::ClockRule};

/// The description of one connected coordinator. Fixed once connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The engine's name, one lower-case word: `sqlite`, `memory`, `redis` …
    pub engine: &'static str,
    /// Where it is, for people: engine and address without any secret, e.g. `sqlite:/var/lib/leasehold/leases.db`.
    pub place: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Which clocks count for windows on it.
    pub clock: ClockRule,
    /// The longest TTL of this namespace. Longer claims are refused before they are sent.
    pub max_ttl: Ttl,
    /// What it guarantees.
    pub guarantee: Guarantee,
}

/// What an engine can do. Nothing is emulated: what is false here answers [`crate::Kind::Unsupported`], or is documented
/// to be absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Whether waiters are served in order.
    pub queue: QueueOrder,
    /// True when wakes are delivered. Without them waiting is timed re-checks alone.
    pub wakes: bool,
    /// True when the last successful run is recorded (`once_per`).
    pub once_per: bool,
    /// True when ended grants are remembered, at least the last [`crate::record::Past::KEPT`] of each resource.
    pub history: bool,
    /// The step in milliseconds to which this engine rounds a TTL up.
    pub ttl_step_ms: core::num::NonZeroU32,
}

/// Whether waiters are served in the order in which they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueOrder {
    /// First come, first served, as long as they are alive.
    Fifo,
    /// Random back-off; no order.
    Unordered,
}

/// The guarantee label: which promises hold here, under which assumptions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guarantee {
    /// No two windows of one resource overlap.
    pub windows: Promise,
    /// Tokens of one resource rise from grant to grant.
    pub tokens: Promise,
    /// What happens after the engine fails over or restarts, in a few words.
    pub after_failover: &'static str,
    /// What the reader must know, in one sentence.
    pub caveat: &'static str,
}

/// How far a promise goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// It holds under the assumptions named (A1 clock rates, A2 no clock step, A3 durability, A4 one store).
    Yes(&'static str),
    /// It holds only in the way described.
    Limited(&'static str),
    /// It does not hold.
    No,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes("") => f.write_str("yes"),
            Self::Yes(under) => write!(f, "yes ({under})"),
            Self::Limited(how) => f.write_str(how),
            Self::No => f.write_str("no"),
        }
    }
}

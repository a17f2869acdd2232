//! What a coordinator answers. Outcomes are values: "held by another" is as good an answer as "granted".

use alloc::{string::String, vec::Vec};
use core::time::Duration;

use crate::{
    id::{HolderId, Label, LeaseId},
    name::Resource,
    token::Token,
    ttl::Ttl,
};

/// The answer to a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Acquired {
    /// It is yours.
    Granted(Grant),
    /// Another holds it.
    Busy(Busy),
    /// Nobody holds it, but others wait in front.
    Queued(Queued),
    /// The engine may have forgotten grants (or the namespace is new on it) and makes no new one for a while.
    Quarantined {
        /// Time until it grants again.
        remaining: Duration,
        /// The claim's place in the queue, when it asked for one.
        position: Option<u32>,
    },
    /// The last successful run is recent enough; nothing needs doing.
    AlreadyDone {
        /// When that run started, µs since 1970 by the engine's clock.
        started_us: u64,
        /// Time until the period is over.
        due_in: Duration,
    },
    /// This very claim was granted before and that grant has ended: a late duplicate. Claim again under a new lease id.
    Spent(End),
}

/// A grant as its claimant learns of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The fencing token.
    pub token: Token,
    /// The TTL that the engine really gave: never less than asked, rounded up where its clock is coarse.
    pub ttl: Ttl,
    /// When it was granted, µs since 1970 by the engine's clock. For people; never compared.
    pub granted_us: u64,
    /// True when an earlier attempt of the same claim had been granted already and this answer only repeats it. The TTL
    /// then runs from this attempt.
    pub adopted: bool,
    /// True when the grant before this one ended by its TTL: its holder ended uncleanly. One grant says so, the next, whoever
    /// found the lapse; a grant that was revoked did not lapse.
    pub after_lapse: bool,
}

/// Somebody else holds the resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Busy {
    /// Who, since when, with which token.
    pub holder: Record,
    /// The claim's place in the queue (0 is next), when it asked for one and the engine keeps one.
    pub position: Option<u32>,
    /// Ask again no later than this, wake or no wake.
    pub recheck: Duration,
}

/// The resource is free but promised to those who wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queued {
    /// How many wait in front.
    pub ahead: u32,
    /// The claim's place in the queue, when it asked for one.
    pub position: Option<u32>,
    /// Ask again no later than this, wake or no wake.
    pub recheck: Duration,
}

/// The answer to one renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Renewed {
    /// Extended. The TTL runs from this request and is what the engine really gave.
    Extended {
        /// The TTL that now runs.
        ttl: Ttl,
    },
    /// Not yours any more; nothing was changed.
    Gone(Gone),
}

/// Why a grant is not there any more, as the engine sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Gone {
    /// The TTL ran out, whether or not somebody took the resource since.
    Expired,
    /// It ran out or was ended, and another grant followed.
    Superseded {
        /// The later grant's token.
        token: Token,
    },
    /// An operator ended it.
    Revoked {
        /// Who.
        by: Label,
        /// Why.
        reason: Label,
        /// How long the resource still stays busy for the old holder to stop in; zero when it was freed at once.
        remaining: Duration,
    },
    /// Its own holder released it.
    Released,
    /// The engine knows no such grant: it lost its memory, or the grant is from another engine or namespace.
    Absent,
}

/// The answer to a release.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Released {
    /// The grant has ended now.
    Ended,
    /// There was no grant to end, but a place in the queue was given up.
    LeftQueue,
    /// There was nothing to end; the success, if one was reported, was not recorded.
    NotHeld(Gone),
}

/// The answer to a revocation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Revoked {
    /// Renewals are refused from now on.
    Ended {
        /// The grant that was ended.
        record: Record,
        /// How long the resource stays busy at most; zero when it is free now.
        busy_for: Duration,
    },
    /// The resource is held under another token; nothing was changed.
    OtherToken(Record),
    /// Nobody holds the resource; nothing was changed.
    NotHeld(Option<End>),
}

/// The live record of a resource: one shape on every engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The grant's lease id.
    pub lease_id: LeaseId,
    /// Its token.
    pub token: Token,
    /// Its TTL.
    pub ttl: Ttl,
    /// Time until it expires unless renewed, by the engine's clock.
    pub remaining: Duration,
    /// When it was granted, µs since 1970 by the engine's clock. For people; never compared.
    pub granted_us: u64,
    /// The holding process run.
    pub holder_id: HolderId,
    /// What people call it.
    pub label: Label,
    /// Set once an operator has revoked it and the old end is awaited.
    pub revoked: Option<Notice>,
}

/// Who revoked, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Who.
    pub by: Label,
    /// Why.
    pub reason: Label,
}

/// How the previous grant of a resource ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// The grant that ended.
    pub lease_id: LeaseId,
    /// Its token.
    pub token: Token,
    /// The way it ended.
    pub reason: EndReason,
    /// Who ended it: the holder's label, or the operator's.
    pub by: Label,
    /// When, µs since 1970 by the engine's clock. For people; never compared.
    pub at_us: u64,
}

/// The ways a grant can end at the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EndReason {
    /// By its holder.
    Released,
    /// Its TTL ran out.
    Expired,
    /// By an operator, with the reason given.
    Revoked(Label),
}

impl EndReason {
    /// One stable lower-case word, for storage, logs and JSON.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Revoked(_) => "revoked",
        }
    }
}

/// A grant that has ended: one bar of a resource's ownership timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Past {
    /// The process run that held it.
    pub holder_id: HolderId,
    /// What people called it.
    pub label: Label,
    /// When it was granted, µs since 1970 by the engine's clock. For people; never compared.
    pub granted_us: u64,
    /// How it ended. For one that expired, the time is when that was found.
    pub end: End,
}

impl Past {
    /// How many ended grants of a resource an engine keeps at least, where it keeps them (ours: a screenful). It keeps them for as long as the resource's token counter.
    pub const KEPT: usize = 16;
}

/// Everything an engine knows about one resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// Which.
    pub resource: Resource,
    /// The live grant, if any. An expired one is not live, whether or not it has been swept up.
    pub record: Option<Record>,
    /// The highest token ever given, while it is remembered.
    pub last_token: Option<Token>,
    /// How the previous grant ended.
    pub last_end: Option<End>,
    /// When the last successful run started, µs since 1970 by the engine's clock.
    pub last_success_us: Option<u64>,
    /// Those who wait, in order, at most [`Inspection::MAX_WAITERS`] of them.
    pub waiters: Vec<WaiterInfo>,
    /// How many wait in all.
    pub waiting: u32,
}

impl Inspection {
    /// How many waiters an inspection names (ours: a screenful).
    pub const MAX_WAITERS: usize = 100;
}

/// One who waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaiterInfo {
    /// The claim's lease id.
    pub lease_id: LeaseId,
    /// What people call the claimant.
    pub label: Label,
    /// Time since it joined the queue, by the engine's clock.
    pub waited: Duration,
}

/// One page of resources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The resources, in the engine's order. Waiters are counted but not named.
    pub items: Vec<Inspection>,
    /// True when more follow: ask again after the last of these.
    pub more: bool,
    /// Time until the namespace's quarantine ends, while there is one.
    pub quarantine: Option<Duration>,
}

/// What one step of forgetting did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Purged {
    /// How many resources were looked at.
    pub looked_at: u64,
    /// Those that are forgotten now, or would be.
    pub idle: Vec<Resource>,
    /// Where to go on: the last resource of this step. `None` when there are no more.
    pub next: Option<Resource>,
}

/// What `init` found or made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// True when the namespace was made by this call.
    pub created: bool,
    /// The longest TTL it allows.
    pub max_ttl: Ttl,
    /// Time until it grants, while it is quarantined.
    pub quarantine: Option<Duration>,
    /// Where it lives, for people: no secrets.
    pub place: String,
}

/// A hint that asking again may now succeed (or, for a holder, that its grant was touched). May be false, may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wake {
    /// For the claim or grant with this lease id.
    Lease(LeaseId),
    /// For everybody: the event source was interrupted and something may have been missed.
    All,
}

//! The rule by which a resource decides whether a write counts.
//!
//! A lease cannot stop a holder that is paused between its last look at the clock and its write. The resource can: it
//! remembers the highest fencing token it has seen and refuses what is lower. This module is that rule as a value; the
//! fences of the library apply it in one atomic step with the write.
//!
//! | a write shows | the fence remembers | answer |
//! | --- | --- | --- |
//! | a higher token | a lower one | admitted, and remembered |
//! | the same token, lease id, and no or a higher [`OpSeq`] | the same | admitted |
//! | the same token and lease id, an `OpSeq` that is not higher | the same | stale: it was overtaken by its own grant |
//! | a lower token | a higher one | stale |
//! | the same token, another lease id | the same token | collision: two grants with one token |
//! | anything | nothing | no such resource, unless it [seals](Ask::Seal) |
//!
//! A write that shows no token at all is refused before it comes to this.

use alloc::boxed::Box;
use core::{fmt, num::NonZeroU64, str::FromStr};

use crate::{
    error::Invalid,
    id::{Label, LeaseId},
    name::{Namespace, Resource},
    ticket::{Ticket, TicketFault},
    token::Token,
};

/// How far a token may lie ahead of the fence's wall clock unless told otherwise (ours: ten minutes, the lead that an engine
/// allows its callers). Tokens are floored by time, so that no engine with a sane clock grants one beyond it.
pub const MAX_TOKEN_LEAD_US: u64 = 10 * 60 * 1_000_000;

/// The number of a write within its grant: 1 … 2^53−1, higher for each later one.
///
/// Needed where a holder sends a write before the one before it was answered: the token alone lets the two cross.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OpSeq(NonZeroU64);

impl OpSeq {
    /// Takes a number.
    ///
    /// # Errors
    /// [`Invalid`] when it is 0 or above [`Token::MAX`].
    pub const fn new(value: u64) -> Result<Self, Invalid> {
        match NonZeroU64::new(value) {
            Some(value) if value.get() <= Token::MAX => Ok(Self(value)),
            _ => Err(Invalid::new("op_seq", "must be a whole number from 1 to 9007199254740991")),
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for OpSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for OpSeq {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        // The same spelling as a token's: digits alone.
        Self::new(text.parse::<Token>().map_or(0, Token::get))
    }
}

/// What a write shows at a fence: for which resource, under which grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// The namespace in which the lease was granted.
    pub namespace: Namespace,
    /// The resource that is written to.
    pub resource: Resource,
    /// The grant's fencing token.
    pub token: Token,
    /// The grant's lease id.
    pub lease_id: LeaseId,
    /// The number of this write within the grant, where writes are not awaited one by one.
    pub op_seq: Option<OpSeq>,
    /// What people call the holder: for logs, never compared.
    pub holder: Label,
    /// The signature of whoever gave the token, for fences that ask for one.
    pub ticket: Option<Box<Ticket>>,
}

impl Pass {
    /// A pass without number, name and signature.
    pub fn new(namespace: Namespace, resource: Resource, token: Token, lease_id: LeaseId) -> Self {
        Self { namespace, resource, token, lease_id, op_seq: None, holder: Label::default(), ticket: None }
    }

    /// The same for the write with this number.
    #[must_use]
    pub fn numbered(mut self, op_seq: OpSeq) -> Self {
        self.op_seq = Some(op_seq);
        self
    }

    /// The same with the holder's name.
    #[must_use]
    pub fn held_by(mut self, holder: Label) -> Self {
        self.holder = holder;
        self
    }

    /// The same with a signed ticket. Whether it belongs to this pass is judged by the fence.
    #[must_use]
    pub fn with_ticket(mut self, ticket: Ticket) -> Self {
        self.ticket = Some(Box::new(ticket));
        self
    }
}

impl From<Ticket> for Pass {
    /// The pass that a ticket stands for.
    fn from(ticket: Ticket) -> Self {
        let Ticket { namespace, resource, token, lease_id, .. } = &ticket;
        Self::new(namespace.clone(), resource.clone(), *token, *lease_id).with_ticket(ticket)
    }
}

/// What a fence remembers of a resource. Its token never goes back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The highest token it has admitted.
    pub token: Token,
    /// The grant with that token; `None` when an operator has raised the token, until the grant comes.
    pub lease_id: Option<LeaseId>,
    /// The highest number of a write of that grant.
    pub op_seq: Option<OpSeq>,
    /// What people call that grant's holder, or the operator.
    pub holder: Label,
}

/// What is asked of a fence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ask {
    /// Remember this grant, and shut older ones out; asked once, before the new holder reads anything. A resource that the
    /// fence does not know becomes known. Numbers are not looked at.
    Seal,
    /// Let a write in. The resource must be known: a mistyped name, a missing seal and a fence that has lost its memory
    /// are told, not passed over.
    Write,
    /// Let a write in, and seal where nobody has: for resources whose writers cannot seal apart.
    Enter,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// The write counts.
    Admitted,
    /// It does not, and must have no effect.
    Refused(Refusal),
}

/// Why a write does not count.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The fence has seen a higher token, or a later write of the same grant.
    Stale {
        /// What it has seen.
        stored: Mark,
    },
    /// The fence knows this token from another grant. The coordinator has given one token twice.
    Collision {
        /// The other grant.
        stored: Mark,
    },
    /// The fence has never seen the resource.
    NoSuchResource,
    /// The lease itself has ended: told by fences that look at the coordinator's own record.
    NotHeld,
    /// The write shows no token.
    MissingToken,
    /// The write shows the token of another resource than the one it is about.
    WrongResource {
        /// The one it is about.
        expected: Resource,
    },
    /// The token is further ahead of the clock than any engine could have granted.
    TokenTooHigh {
        /// The highest token that is believed.
        limit: u64,
    },
    /// The fence asks for signed tokens, and this one is not signed as it should be.
    Ticket(TicketFault),
}

impl Refusal {
    /// One stable lower-case word, for logs, JSON and exit messages.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "stale",
            Self::Collision { .. } => "collision",
            Self::NoSuchResource => "no_such_resource",
            Self::NotHeld => "not_held",
            Self::MissingToken => "missing_token",
            Self::WrongResource { .. } => "wrong_resource",
            Self::TokenTooHigh { .. } => "token_too_high",
            Self::Ticket(fault) => fault.word(),
        }
    }

    /// What the fence remembers, where that is the reason.
    pub const fn stored(&self) -> Option<&Mark> {
        match self {
            Self::Stale { stored } | Self::Collision { stored } => Some(stored),
            _ => None,
        }
    }

    /// What to do about it, as a sentence without a final stop.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Stale { .. } => {
                "it came too late: stop, and acquire the lease anew (unless the later write was your own)"
            }
            Self::Collision { .. } => {
                "two grants have one token: stop, find out which coordinator lost its memory, and raise the token"
            }
            Self::NoSuchResource => {
                "seal the resource before the first write; if it was sealed, the fence has lost its memory or the name differs"
            }
            Self::NotHeld => "stop, and acquire the lease anew",
            Self::MissingToken => "send the fencing token of the lease along",
            Self::WrongResource { .. } => "send the token of the lease on the resource that is written to",
            Self::TokenTooHigh { .. } => "compare the clocks of the coordinator and of the fence",
            Self::Ticket(_) => "ask the issuer for a ticket of this grant",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { stored } => {
                write!(f, "a later write was admitted, under fencing token {}", stored.token)?;
                match stored.op_seq {
                    Some(op_seq) => write!(f, " with number {op_seq}"),
                    None => Ok(()),
                }?;
                if stored.holder.is_empty() { Ok(()) } else { write!(f, " of {}", stored.holder) }
            }
            Self::Collision { stored } => {
                write!(f, "fencing token {} belongs to another grant", stored.token)
            }
            Self::NoSuchResource => f.write_str("the fence has never seen this resource"),
            Self::NotHeld => f.write_str("the lease has ended"),
            Self::MissingToken => f.write_str("the write shows no fencing token"),
            Self::WrongResource { expected } => {
                write!(f, "the write is about {expected}, and shows the token of another resource")
            }
            Self::TokenTooHigh { limit } => {
                write!(
                    f,
                    "the fencing token is further ahead than any engine could have granted (limit {limit})"
                )
            }
            Self::Ticket(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for Refusal {}

/// Judges what a write shows by what the fence remembers. What it is to remember from now on, or why the write does not count.
///
/// # Errors
/// [`Refusal::Stale`], [`Refusal::Collision`] or [`Refusal::NoSuchResource`].
pub fn judge(stored: Option<&Mark>, pass: &Pass, ask: Ask) -> Result<Mark, Refusal> {
    let op_seq = pass.op_seq.filter(|_| ask != Ask::Seal);
    let new = |op_seq| Mark {
        token: pass.token,
        lease_id: Some(pass.lease_id),
        op_seq,
        holder: pass.holder.clone(),
    };
    let Some(stored) = stored else {
        return if ask == Ask::Write { Err(Refusal::NoSuchResource) } else { Ok(new(op_seq)) };
    };
    if pass.token > stored.token {
        return Ok(new(op_seq));
    }
    if pass.token < stored.token {
        return Err(Refusal::Stale { stored: stored.clone() });
    }
    match stored.lease_id {
        // Raised by hand: a token has one grant, and here it is.
        None => Ok(new(op_seq)),
        Some(lease_id) if lease_id != pass.lease_id => Err(Refusal::Collision { stored: stored.clone() }),
        Some(_) if op_seq.is_some() && op_seq <= stored.op_seq => {
            Err(Refusal::Stale { stored: stored.clone() })
        }
        Some(_) => Ok(Mark { op_seq: op_seq.or(stored.op_seq), ..stored.clone() }),
    }
}

/// What a fence remembers after an operator has raised the token: what it remembered before, where that is as high.
pub fn raised(stored: Option<&Mark>, token: Token, by: &Label) -> Mark {
    match stored {
        Some(stored) if stored.token >= token => stored.clone(),
        _ => Mark { token, lease_id: None, op_seq: None, holder: by.clone() },
    }
}

/// How far a token may lie ahead of the fence's clock. One absurd number, forged or wrong, would otherwise shut the rightful
/// holder out for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bound {
    lead_us: Option<u64>,
}

impl Bound {
    /// No bound: for fences whose clock cannot be trusted.
    pub const NONE: Self = Self { lead_us: None };

    /// At most this many microseconds ahead.
    pub const fn ahead_us(lead_us: u64) -> Self {
        Self { lead_us: Some(lead_us) }
    }

    /// The highest token believed at this moment, µs since 1970.
    pub const fn limit(self, now_us: u64) -> Option<u64> {
        match self.lead_us {
            Some(lead_us) => Some(now_us.saturating_add(lead_us)),
            None => None,
        }
    }

    /// Judges a token.
    ///
    /// # Errors
    /// [`Refusal::TokenTooHigh`].
    pub fn check(self, token: Token, now_us: u64) -> Result<(), Refusal> {
        match self.limit(now_us) {
            Some(limit) if token.get() > limit => Err(Refusal::TokenTooHigh { limit }),
            _ => Ok(()),
        }
    }
}

impl Default for Bound {
    /// [`MAX_TOKEN_LEAD_US`].
    fn default() -> Self {
        Self::ahead_us(MAX_TOKEN_LEAD_US)
    }
}

//! The states of a lease, why it can be lost, and the step from one to the next.

use crate::{id::Label, record::Gone, token::Token};

/// Where a lease is, as its holder sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Renewed in good time.
    Held,
    /// No good renewal sent within half the TTL; still inside the window. Start no new work.
    Uncertain,
    /// Asked to end: finish, start nothing new. Renewals go on.
    Draining,
    /// The work has ended; the engine is being told.
    Releasing,
    /// Over, by its holder.
    Released,
    /// Over: the holder may not claim to hold any more.
    Lost(Loss),
}

impl State {
    /// One stable lower-case word, for logs and JSON.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Uncertain => "uncertain",
            Self::Draining => "draining",
            Self::Releasing => "releasing",
            Self::Released => "released",
            Self::Lost(_) => "lost",
        }
    }

    /// True while protected work may run.
    pub const fn may_work(&self) -> bool {
        matches!(self, Self::Held | Self::Uncertain | Self::Draining)
    }

    /// True when nothing can change any more.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Released | Self::Lost(_))
    }
}

/// Why a lease was lost.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// No renewal succeeded in time: the engine was unreachable, or this process did not run.
    WindowClosed,
    /// The engine says that the TTL ran out.
    Expired,
    /// The engine says that a later grant exists.
    Superseded {
        /// That grant's token.
        token: Token,
    },
    /// An operator revoked it.
    Revoked {
        /// Who.
        by: Label,
        /// Why.
        reason: Label,
        /// True when the resource was freed at once: a successor may hold it already.
        freed: bool,
    },
    /// Its own guard has released it.
    Released,
    /// It was handed off to another process, or left to run out by itself.
    HandedOff,
    /// It was released under the same lease id and token, by somebody else than this guard.
    ReleasedElsewhere,
    /// This process is a forked child of the holder: the lease stays with the parent.
    ForkedChild,
    /// The engine has no record of it: it lost its memory, or its store was replaced.
    Forgotten,
    /// It was held for as long as `max_hold` allows.
    MaxHold,
    /// The worker showed no progress within `progress_timeout`, so renewals stopped.
    NoProgress,
}

impl Loss {
    /// One stable word, for logs, JSON and metrics.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::WindowClosed => "window_closed",
            Self::Expired => "expired",
            Self::Superseded { .. } => "superseded",
            Self::Revoked { .. } => "revoked",
            Self::Released => "released",
            Self::HandedOff => "handed_off",
            Self::ReleasedElsewhere => "released_elsewhere",
            Self::ForkedChild => "forked_child",
            Self::Forgotten => "forgotten",
            Self::MaxHold => "max_hold",
            Self::NoProgress => "no_progress",
        }
    }
}

impl core::fmt::Display for Loss {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::WindowClosed => f.write_str("no renewal succeeded before the local deadline"),
            Self::Expired => f.write_str("its TTL ran out at the coordinator"),
            Self::Superseded { token } => {
                write!(f, "another holder was granted the resource with token {token}")
            }
            Self::Revoked { by, reason, .. } => match (by.is_empty(), reason.is_empty()) {
                (_, true) => {
                    write!(f, "it was revoked by {}", if by.is_empty() { "an operator" } else { by.as_str() })
                }
                (true, false) => write!(f, "it was revoked ({reason})"),
                (false, false) => write!(f, "it was revoked by {by} ({reason})"),
            },
            Self::Released => f.write_str("its holder has released it"),
            Self::ForkedChild => {
                f.write_str("this process is a forked child of its holder, with which the lease stays")
            }
            Self::HandedOff => f.write_str("its holder has handed it off"),
            Self::ReleasedElsewhere => {
                f.write_str("it was released by somebody who knew its lease id and token")
            }
            Self::Forgotten => {
                f.write_str("the coordinator has no record of it (its store was replaced or lost its memory)")
            }
            Self::MaxHold => f.write_str("it was held for as long as max-hold allows"),
            Self::NoProgress => f.write_str("the worker showed no progress in time, so renewals stopped"),
        }
    }
}

impl core::error::Error for Loss {}

impl From<Gone> for Loss {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Expired => Self::Expired,
            Gone::Superseded { token } => Self::Superseded { token },
            Gone::Revoked { by, reason, remaining } => {
                Self::Revoked { by, reason, freed: remaining.is_zero() }
            }
            Gone::Released => Self::ReleasedElsewhere,
            Gone::Absent => Self::Forgotten,
        }
    }
}

/// A change of state, to be logged as one event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The state that was left.
    pub from: State,
    /// The state that was entered.
    pub to: State,
}

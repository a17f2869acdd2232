//! What the library answers: outcomes are values, and "held by another" tells by whom.

use std::{fmt, time::Duration};

use leasehold_core::{Error, Resource, holder::Loss, waiter::Refusal};

use crate::Lease;

/// The answer to an attempt to acquire.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// It is yours.
    Held(Lease),
    /// It is not, and nothing of the attempt is left behind.
    Refused(Refusal),
    /// Nothing needs doing: the last successful run is recent enough (only with `once_per`).
    AlreadyDone(Done),
}

/// A successful run that is recent enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// When it started, µs since 1970 by the engine's clock.
    pub started_us: u64,
    /// Time until the period is over.
    pub due_in: Duration,
}

/// Why [`crate::LeaseRequest::acquire`] gave no lease.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotAcquired {
    /// The coordinator said no; nothing is left behind.
    Refused {
        /// What was asked for.
        resource: Resource,
        /// Who holds it, or what stands in the way.
        refusal: Box<Refusal>,
    },
    /// Nothing needs doing (only with `once_per`).
    AlreadyDone(Done),
    /// The coordinator could not be asked, or nobody knows what became of the claim.
    Failed(Error),
}

impl NotAcquired {
    /// True when another holds the resource or waits in front, within the wait: contended and timed out are one outcome.
    pub fn is_contended(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if matches!(**refusal, Refusal::Busy(_) | Refusal::Queued(_)))
    }
}

impl fmt::Display for NotAcquired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::AlreadyDone(done) => {
                write!(
                    f,
                    "already done: the last successful run is recent enough (due again in {:?})",
                    done.due_in
                )
            }
            Self::Refused { resource, refusal } => match &**refusal {
                Refusal::Busy(busy) => write!(
                    f,
                    "resource {resource} is held by {} with fencing token {}; it expires in {:?} unless renewed",
                    // Its Display shows control characters harmlessly; another process has chosen them.
                    if busy.holder.label.is_empty() {
                        &"another" as &dyn fmt::Display
                    } else {
                        &busy.holder.label
                    },
                    busy.holder.token,
                    busy.holder.remaining
                ),
                Refusal::Queued(queued) => {
                    write!(f, "resource {resource} is promised to those who wait ({} in front)", queued.ahead)
                }
                Refusal::Quarantined { remaining } => write!(
                    f,
                    "the coordinator grants nothing for another {remaining:?}: this namespace is new on it, or it may have \
                     forgotten grants"
                ),
                Refusal::TooLate => {
                    write!(f, "resource {resource} was granted too late to be of use, and was given back")
                }
                _ => write!(f, "resource {resource} was refused: {refusal:?}"),
            },
        }
    }
}

impl std::error::Error for NotAcquired {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for NotAcquired {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// How a lease ended when its holder was done with it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Ended {
    /// It was held to the end and is released.
    Released,
    /// It had been lost before, for this reason. The work may have overlapped a successor's.
    Lost(Loss),
}

/// Why [`crate::LeaseHandle::require`] says no.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotEnough {
    /// It is not held any more.
    Lost(Loss),
    /// It is held, but not for long enough unless renewed.
    Short {
        /// What is left.
        remaining: Duration,
    },
}

impl fmt::Display for NotEnough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(f, "the lease is lost: {loss}"),
            Self::Short { remaining } => write!(f, "the lease is certain for only {remaining:?}"),
        }
    }
}

impl std::error::Error for NotEnough {}

//! Why an operation has no answer.

use std::{fmt, time::Duration};

use leasehold_core::{Error, Kind, holder::Loss};

use super::record::{Record, State};
use crate::{NotAcquired, fence};

/// Why a request has no answer. What it means for the effect is said at each.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotDone<E> {
    /// The key was used for another request, which is or was carried out under it. Nothing was done for this one.
    KeyReused(Box<Record>),
    /// Under this key an external effect was begun, and it is not known to have ended: [`State::Started`] while somebody else
    /// carries it out, [`State::NeedsReconciliation`] when a person must decide. Nothing more was done.
    Unsettled(Box<Record>),
    /// The resource was held by another for as long as this waited. Nothing was done; ask again.
    Busy(NotAcquired),
    /// The fence said no: a later grant is at work. Nothing was done; ask again.
    NotAdmitted(fence::NotAdmitted),
    /// The lease was lost under the work, which was rolled back. Nothing was done; ask again.
    Lost(Loss),
    /// The work took longer than `max_exec`, and was rolled back. Nothing was done.
    TooLong(Duration),
    /// The work itself failed, and was rolled back. Nothing was done.
    Effect(E),
    /// A database or the coordinator failed. With [`Kind::Unknown`] the effect may have happened: **ask again with the same key**,
    /// which then answers or carries it out. With every other kind nothing was done.
    Failed(Error),
}

impl<E> NotDone<E> {
    /// True when asking again, with the same key and unchanged, may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::KeyReused(_) | Self::Effect(_) | Self::TooLong(_) => false,
            Self::Unsettled(record) => record.state == State::Started,
            Self::Busy(NotAcquired::Failed(error)) | Self::Failed(error) => error.is_transient(),
            Self::Busy(_) | Self::Lost(_) => true,
            Self::NotAdmitted(no) => no.is_stale(),
        }
    }

    /// True when nobody knows whether the effect has happened.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Failed(error) => error.kind() == Kind::Unknown,
            Self::Unsettled(_) => true,
            _ => false,
        }
    }
}

impl<E> From<Error> for NotDone<E> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<E> From<fence::NotAdmitted> for NotDone<E> {
    fn from(no: fence::NotAdmitted) -> Self {
        match no {
            fence::NotAdmitted::Failed(error) => Self::Failed(error),
            no => Self::NotAdmitted(no),
        }
    }
}

impl<E: fmt::Display> fmt::Display for NotDone<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyReused(record) => write!(
                f,
                "the key {} was used for another request (on resource {}); nothing was done: choose a new key for a new request",
                record.key, record.resource
            ),
            Self::Unsettled(record) if record.state == State::Started => write!(
                f,
                "the operation {} was begun under fencing token {} and is not known to have ended; ask again with the same key",
                record.key, record.token
            ),
            Self::Unsettled(record) => write!(
                f,
                "nobody knows whether the operation {} has happened ({}); look at the far end, then say so with `leasehold effects resolve`",
                record.key,
                record.note.as_deref().unwrap_or("no note")
            ),
            Self::Busy(no) => write!(f, "nothing was done: {no}"),
            Self::NotAdmitted(no) => no.fmt(f),
            Self::Lost(loss) => {
                write!(f, "the lease was lost under the work, which was rolled back: {loss}; ask again")
            }
            Self::TooLong(limit) => write!(
                f,
                "the work took longer than max_exec ({limit:?}) and was rolled back; allow it more, or make it shorter"
            ),
            Self::Effect(error) => write!(f, "the work failed and was rolled back: {error}"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for NotDone<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Busy(no) => Some(no),
            Self::NotAdmitted(no) => Some(no),
            Self::Effect(error) => Some(error),
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }
}

//! What a fence answers when a write does not count.

use std::fmt;

use leasehold_core::{
    Error, Resource,
    fence::{Pass, Refusal},
};

use super::count;
use crate::observe;

/// Why a write must have no effect.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotAdmitted {
    /// The fence said no. Counted and logged already.
    Refused(Box<Refused>),
    /// The fence could not be asked, or nobody knows what it answered.
    Failed(Error),
}

/// A no, and to what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Which fence.
    pub place: String,
    /// What the write was about; `None` where it did not even say that.
    pub resource: Option<Resource>,
    /// What it showed, unless that was nothing.
    pub pass: Option<Pass>,
    /// Why it does not count.
    pub refusal: Refusal,
}

impl NotAdmitted {
    /// Why the fence said no; `None` when it could not be asked.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refused) => Some(&refused.refusal),
            Self::Failed(_) => None,
        }
    }

    /// True when a later write was admitted: this holder's time is over.
    pub fn is_stale(&self) -> bool {
        matches!(self.refusal(), Some(Refusal::Stale { .. }))
    }
}

/// A no to `pass`: counts it, tells of it, and gives it the caller's form. The one way to a [`NotAdmitted::Refused`].
pub(crate) fn refuse(place: &str, pass: &Pass, refusal: Refusal) -> NotAdmitted {
    tell(Refused {
        place: place.to_owned(),
        resource: Some(pass.resource.clone()),
        pass: Some(pass.clone()),
        refusal,
    })
}

/// A no to a write that showed no token.
#[cfg(feature = "http")]
pub(crate) fn refuse_without_pass(place: &str, resource: Option<Resource>, refusal: Refusal) -> NotAdmitted {
    tell(Refused { place: place.to_owned(), resource, pass: None, refusal })
}

fn tell(refused: Refused) -> NotAdmitted {
    let total = count::one(&refused.refusal);
    observe::write_refused(&refused, total);
    NotAdmitted::Refused(Box::new(refused))
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the write")?;
        if let Some(resource) = &self.resource {
            write!(f, " to {resource}")?;
        }
        if let Some(pass) = &self.pass {
            write!(f, " under fencing token {}", pass.token)?;
        }
        write!(f, " does not count (on {}): {}; {}", self.place, self.refusal, self.refusal.advice())
    }
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotAdmitted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refused) => Some(&refused.refusal),
            Self::Failed(error) => Some(error),
        }
    }
}

impl From<Error> for NotAdmitted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

//! The requests of the contract as values that travel to the worker, and their answers.

use leasehold_core::{
    Error, Resource,
    record::{Acquired, Gone, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
};

use super::apply::Unheard;

/// What it takes to serve a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Looking.
    Read,
    /// A claim that was woken to take what was set aside for it: see [`super::heir`].
    Inherit,
    /// Anything else.
    Write,
}

impl Work {
    /// What it takes to serve both.
    pub(super) fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Write }
    }

    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }
}

#[derive(Debug)]
pub(super) enum Request {
    Acquire(Claim),
    /// Just the same, by a claimant who was woken.
    AcquireWoken(Claim),
    Renew(Vec<Renewal>),
    Release(Release),
    Revoke(Revocation),
    Inspect(Resource),
    History(Resource),
    List(Listing),
    Prepare(Preparation),
    Purge(Purge),
    /// The namespace goes, with all that is in it.
    Discard,
    /// The worker's own: the first in line was found dead when it was woken.
    PassOver(Unheard),
}

#[derive(Debug)]
pub(super) enum Reply {
    Acquired(Acquired),
    Renewed(Vec<Result<Renewed, Error>>),
    Released(Released),
    Revoked(Revoked),
    Inspected(Inspection),
    History(Vec<Past>),
    Listed(Page),
    Prepared(Prepared),
    Purged(Purged),
    Discarded(u64),
    Passed,
}

impl Request {
    pub(super) fn work(&self) -> Work {
        match self {
            Self::Inspect(_)
            | Self::History(_)
            | Self::List(_)
            | Self::Purge(Purge { dry_run: true, .. }) => Work::Read,
            Self::AcquireWoken(_) => Work::Inherit,
            _ => Work::Write,
        }
    }

    /// The resource it is about, when it is one.
    pub(super) fn resource(&self) -> Option<&Resource> {
        match self {
            Self::Acquire(claim) | Self::AcquireWoken(claim) => Some(&claim.resource),
            Self::Release(release) => Some(&release.resource),
            Self::Revoke(revocation) => Some(&revocation.resource),
            Self::Inspect(resource) | Self::History(resource) => Some(resource),
            Self::PassOver(unheard) => Some(&unheard.resource),
            Self::Renew(_) | Self::List(_) | Self::Prepare(_) | Self::Purge(_) | Self::Discard => None,
        }
    }

    /// The answer when the file that knew the grants is not in its place any more.
    pub(super) fn lost(&self, error: &Error) -> Result<Reply, Error> {
        match self {
            Self::Renew(renewals) => {
                Ok(Reply::Renewed(renewals.iter().map(|_| Ok(Renewed::Gone(Gone::Absent))).collect()))
            }
            _ => Err(error.clone()),
        }
    }
}

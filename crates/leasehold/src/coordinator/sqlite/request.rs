//! The requests of the contract as values that travel to the worker, and their answers.

use leasehold_core::{
    Error, Resource,
    record::{Acquired, Gone, Inspection, Page, Prepared, Released, Renewed, Revoked},
    request::{Claim, Listing, Preparation, Release, Renewal, Revocation},
};

use super::apply::Unheard;

#[derive(Debug)]
pub(super) enum Request {
    Acquire(Claim),
    Renew(Vec<Renewal>),
    Release(Release),
    Revoke(Revocation),
    Inspect(Resource),
    List(Listing),
    Prepare(Preparation),
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
    Listed(Page),
    Prepared(Prepared),
    Passed,
}

impl Request {
    /// True for what may change something.
    pub(super) fn writes(&self) -> bool {
        !matches!(self, Self::Inspect(_) | Self::List(_))
    }

    /// The resource it is about, when it is one.
    pub(super) fn resource(&self) -> Option<&Resource> {
        match self {
            Self::Acquire(claim) => Some(&claim.resource),
            Self::Release(release) => Some(&release.resource),
            Self::Revoke(revocation) => Some(&revocation.resource),
            Self::Inspect(resource) => Some(resource),
            Self::PassOver(unheard) => Some(&unheard.resource),
            Self::Renew(_) | Self::List(_) | Self::Prepare(_) => None,
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

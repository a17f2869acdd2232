//! `PostgreSQL` with a session as the proof of life: a lease is free at once when its holder's connection ends.
//!
//! The lease table decides, as it does without this: tokens, TTLs, the queue, everything. What is added is evidence. A session of its
//! own keeps an advisory lock for each grant, on a number made of the grant's lease id; it is taken before the claim is sent and
//! given back after the release. Who finds a resource held tries that lock, from another session: where it can be had, the
//! holder's session has ended, and the grant is buried in the same step.
//!
//! The lock is the grant's and not the resource's. So a session never meets its own locks (a second claim of the same process
//! has another number), and a holder that hangs with its connection open still loses the lease in time.
//!
//! Numbers are half as long as lease ids, so two can collide, and other programs may lock numbers of their own. Holders share the
//! lock of a number, and who buries tries to have it alone: a collision only hides a death until the TTL has passed. Nothing is
//! claimed without the lock (record 0044).
//!
//! The price is in the label: a holder whose connection breaks is passed before it knows.

mod session;

use std::{pin::Pin, sync::Arc};

use leasehold_core::{
    Call, Coordinator, Error, Kind, LeaseId, Namespace, Resource,
    profile::Profile,
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
};

use self::session::{Session, User};
use super::postgres::{Options, PostgresCoordinator};

/// The lease table, with sessions as the proof of life.
#[derive(Debug)]
struct AdvisoryCoordinator {
    table: PostgresCoordinator,
    session: Session,
}

/// Connects twice: for the lease table, and for the session that keeps the locks.
///
/// # Errors
/// [`Kind::Unsupported`] behind a pooler, which lends sessions out; else as for the lease table.
pub(super) async fn open(options: Options, namespace: Namespace) -> Result<Arc<dyn Coordinator>, Error> {
    let table = PostgresCoordinator::open(options, namespace).await?;
    let keeper = table.dial().await?;
    if session::is_shared(&keeper, &table.dial().await?).await? {
        return Err(Error::new(
            Kind::Unsupported,
            "a pooler lends sessions out, so none proves that its holder lives",
        )
        .advise("connect to the server itself, or leave out mode=advisory"));
    }
    let session = Session::keep(keeper, table.dialler());
    Ok(Arc::new(AdvisoryCoordinator { table, session }))
}

/// The number of a grant.
fn key(lease_id: LeaseId) -> i64 {
    let mut half = [0; 8];
    half.copy_from_slice(&lease_id.as_bytes()[..8]);
    i64::from_be_bytes(half)
}

/// True when the session goes on keeping the lock of a claim that was answered like this. `known`: the same claim had it before, so
/// that it may be a living grant's.
fn keeps(answer: &Result<Acquired, Error>, claim: &Claim, known: bool) -> bool {
    match answer {
        Ok(Acquired::Granted(_)) => true,
        // Refused this time says nothing of the time before.
        Err(error) => known || error.kind() == Kind::Unknown,
        Ok(Acquired::Quarantined { .. }) => known || claim.queue,
        // Who waits will ask again: its lock stays until it takes the claim back, or does not ask any more.
        Ok(Acquired::Busy(_) | Acquired::Queued(_)) => claim.queue,
        Ok(_) => false,
    }
}

impl AdvisoryCoordinator {
    async fn claim(&self, claim: Claim) -> Result<Acquired, Error> {
        let user = User::new(&claim.resource, claim.lease_id);
        let lasts = claim.ttl.as_duration().saturating_add(claim.lock_delay);
        let locked = self.session.lock(user.clone(), lasts).await;
        let known = locked.map_err(|error| error.at(&self.table.profile().place).on(&claim.resource))?;
        let mut answer = self.table.acquire(claim.clone()).await;
        if let Ok(Acquired::Busy(busy)) = &answer
            && busy.holder.lease_id != claim.lease_id
            && self.is_dead(&claim.resource, busy).await
        {
            answer = self.table.acquire(claim.clone()).await;
        }
        if !keeps(&answer, &claim, known) {
            self.session.unlock(user);
        }
        answer
    }

    /// Buries a grant whose session has ended. What goes wrong here is no failure of the claim: the TTL decides then.
    async fn is_dead(&self, resource: &Resource, busy: &leasehold_core::record::Busy) -> bool {
        let holder = &busy.holder;
        self.table.bury(resource, holder.lease_id, holder.token, key(holder.lease_id)).await.unwrap_or(false)
    }

    async fn renewals(&self, renewals: Vec<Renewal>) -> Result<Vec<Result<Renewed, Error>>, Error> {
        let terms: Vec<_> = renewals
            .iter()
            .map(|renewal| {
                let user = User::new(&renewal.resource, renewal.lease_id);
                (user, renewal.ttl.as_duration().saturating_add(renewal.lock_delay))
            })
            .collect();
        let answers = self.table.renew(renewals).await?;
        for ((user, lasts), answer) in terms.into_iter().zip(&answers) {
            match answer {
                Ok(Renewed::Extended { .. }) => self.session.extend(user, lasts),
                Ok(_) => self.session.unlock(user),
                Err(_) => {}
            }
        }
        Ok(answers)
    }
}

impl Coordinator for AdvisoryCoordinator {
    fn profile(&self) -> &Profile {
        self.table.profile()
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(self.claim(claim))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        Box::pin(self.renewals(renewals))
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(async move {
            let user = User::new(&release.resource, release.lease_id);
            let answer = self.table.release(release).await;
            if answer.is_ok() {
                self.session.unlock(user);
            }
            answer
        })
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        self.table.revoke(revocation)
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        self.table.inspect(resource)
    }

    fn history(&self, resource: Resource) -> Call<'_, Vec<Past>> {
        self.table.history(resource)
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        self.table.list(listing)
    }

    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        self.table.purge(purge)
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        self.table.prepare(preparation)
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        self.table.next_wake()
    }
}

//! The rules an engine follows, one method each, so that a broken engine can break exactly one.

use std::{fmt::Debug, time::Duration};

use leasehold_core::{
    Error, Kind, LeaseId, Namespace, Resource, Ttl,
    record::{Acquired, Inspection, Past, Released, Renewed, Revoked, WaiterInfo},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
    slot::{Fault, Freed, Held, Now},
};

use super::{Loss, Seat};

/// How an engine decides. The defaults are right.
pub trait Rules: Send + Sync + Debug + 'static {
    /// What the engine takes the time to be.
    fn clock(&self, now: Now) -> Now {
        now
    }

    /// Under which name a namespace is kept.
    fn file_under(&self, namespace: &Namespace) -> Namespace {
        namespace.clone()
    }

    /// Under which name a resource is kept.
    fn key(&self, resource: &Resource) -> Resource {
        resource.clone()
    }

    /// Refuses what the namespace does not allow.
    fn check_ttl(&self, ttl: Ttl, max_ttl: Ttl) -> Result<(), Error> {
        if ttl <= max_ttl {
            return Ok(());
        }
        Err(Error::new(Kind::Invalid, format!("a TTL of {ttl} is above this namespace's longest, {max_ttl}")))
    }

    /// Refuses a preparation of a namespace that exists.
    fn check_preparation(&self, preparation: Preparation) -> Result<(), Error> {
        if preparation.fresh {
            return Err(Error::new(
                Kind::Invalid,
                "the namespace exists already: it cannot be declared fresh",
            ));
        }
        Ok(())
    }

    /// What is left of a quarantine, as claims are told.
    fn quarantine(&self, left: Option<Duration>) -> Option<Duration> {
        left
    }

    /// Answers a claim.
    fn acquire(
        &self,
        seat: &mut Seat,
        claim: &Claim,
        quarantined: Option<Duration>,
        now: Now,
    ) -> Result<Acquired, Error> {
        seat.slot.acquire(&mut seat.line, claim, quarantined, now).map_err(|fault| match fault {
            Fault::Line(never) => match never {},
            Fault::Token(none) => Error::new(Kind::Invalid, none.to_string()),
        })
    }

    /// Whom to wake after a claim was answered.
    fn wake_after(&self, seat: &mut Seat, answer: &Acquired, now: Now) -> Option<LeaseId> {
        match seat.slot.wake_after(&mut seat.line, answer, now) {
            Ok(next) => next,
            Err(Fault::Token(_)) => None,
            Err(Fault::Line(never)) => match never {},
        }
    }

    /// Answers a renewal. `quarantined` as for claims.
    fn renew(&self, seat: &mut Seat, renewal: &Renewal, quarantined: Option<Duration>, now: Now) -> Renewed {
        let _ = quarantined; // a lease that survived may be renewed
        seat.slot.renew(renewal, now)
    }

    /// Answers a batch of renewals, given the answer to each.
    fn batch(&self, answers: Vec<Result<Renewed, Error>>) -> Vec<Result<Renewed, Error>> {
        answers
    }

    /// Answers a release.
    fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
        match seat.slot.release(&mut seat.line, release, now) {
            Ok(freed) => freed,
            Err(Fault::Token(_)) => unreachable_freed(),
            Err(Fault::Line(never)) => match never {},
        }
    }

    /// Answers a revocation.
    fn revoke(&self, seat: &mut Seat, revocation: &Revocation, now: Now) -> Freed<Revoked> {
        match seat.slot.revoke(&mut seat.line, revocation, now) {
            Ok(freed) => freed,
            Err(Fault::Token(_)) => Freed { answer: Revoked::NotHeld(None), wake: None },
            Err(Fault::Line(never)) => match never {},
        }
    }

    /// Whom to wake: the first in line when a resource was freed for it, the holder when its grant was revoked.
    fn wake(&self, seat: &Seat, first: Option<LeaseId>, holder: Option<LeaseId>) -> Vec<LeaseId> {
        let _ = seat; // those behind the first sleep on
        first.into_iter().chain(holder).collect()
    }

    /// Shows one resource.
    fn inspect(&self, resource: &Resource, seat: &Seat, now: Now) -> Inspection {
        let waiters: Vec<WaiterInfo> = seat
            .line
            .entries()
            .filter(|entry| !entry.is_stale(now.clock_us))
            .map(|entry| WaiterInfo {
                lease_id: entry.lease_id,
                label: entry.label.clone(),
                waited: Duration::from_micros(now.clock_us.saturating_sub(entry.joined_us)),
            })
            .collect();
        Inspection {
            resource: resource.clone(),
            record: seat.slot.record(now),
            last_token: seat.slot.last_token,
            last_end: seat.slot.previous_end(now),
            last_success_us: seat.slot.last_success_us,
            waiting: u32::try_from(waiters.len()).unwrap_or(u32::MAX),
            waiters: waiters.into_iter().take(Inspection::MAX_WAITERS).collect(),
        }
    }

    /// Notes the grant that a step has ended; `before` is what stood before it.
    fn remember(&self, seat: &mut Seat, before: Option<&Held>) {
        if let Some(past) = seat.slot.ended(before) {
            seat.past.insert(0, past);
            seat.past.truncate(Past::KEPT);
        }
    }

    /// The grants of a resource that have ended, the latest first.
    fn history(&self, seat: &Seat, now: Now) -> Vec<Past> {
        seat.slot.lapsed(now).into_iter().chain(seat.past.iter().cloned()).collect()
    }

    /// Picks a page out of everything, which comes in order. True when more follow.
    fn page(&self, all: Vec<Inspection>, listing: &Listing) -> (Vec<Inspection>, bool) {
        let wanted = |item: &Inspection| {
            item.resource.as_str().starts_with(&listing.prefix)
                && listing.after.as_ref().is_none_or(|after| item.resource > *after)
                && (listing.free_too || item.record.is_some() || item.waiting > 0)
        };
        let mut items: Vec<_> = all.into_iter().filter(wanted).collect();
        let more = items.len() > usize::from(listing.limit);
        items.truncate(usize::from(listing.limit));
        (items, more)
    }

    /// Whether nobody has used a resource for so long that it is forgotten.
    fn is_idle(&self, seat: &Seat, now: Now) -> bool {
        let idle_us = now.clock_us.saturating_sub(seat.slot.free_since_us);
        let unused = seat.slot.is_free(now) && seat.line.entries().all(|entry| entry.is_stale(now.clock_us));
        unused && u128::from(idle_us) >= Purge::IDLE.as_micros()
    }

    /// Whether what is idle is really forgotten.
    fn purges(&self, purge: &Purge) -> bool {
        !purge.dry_run
    }

    /// What becomes of a claim whose asker went away before the answer.
    fn unheard(&self, seat: &mut Seat, claim: &Claim) {
        let _ = (seat, claim); // it stands until its TTL, or until its asker takes it back
    }

    /// Whether a wake is taken from its list in the same step in which its reader is given it.
    fn hands_wakes_over_at_once(&self) -> bool {
        true
    }

    /// What is left of a resource after the engine crashed.
    fn after_crash(&self, seat: &mut Seat) {
        let _ = seat; // everything that was answered
    }

    /// How a caller is told that something was lost on the way.
    fn lost(&self, loss: Loss) -> Kind {
        match loss {
            Loss::Request => Kind::Unavailable,
            Loss::Answer => Kind::Unknown,
        }
    }
}

/// A release draws no token, so this answer is never given.
fn unreachable_freed() -> Freed<Released> {
    Freed { answer: Released::NotHeld(leasehold_core::record::Gone::Absent), wake: None }
}

/// The right rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Rules for Sound {}

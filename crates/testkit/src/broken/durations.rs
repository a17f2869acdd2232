//! Broken about how long, about what is lost on the way, and about memory (clauses 6, 7, 8, 10).

use std::time::Duration;

use leasehold_core::{
    Error, Kind, LeaseId, Ttl,
    record::{Acquired, Gone, Released, Renewed},
    request::{Claim, Release, Renewal},
    slot::{Freed, Now},
};

use super::broken_rules;
use crate::reference::{Loss, Seat, Sound};

type Quarantine = Option<Duration>;

broken_rules! {
    ExpiresEarly breaks "clause_06_a_grant_lasts_its_ttl" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let answer = Sound.acquire(seat, claim, q, now)?;
            if let (Acquired::Granted(grant), Some(held)) = (&answer, &mut seat.slot.held) {
                held.expires_us -= grant.ttl.as_micros() / 10;
            }
            Ok(answer)
        }
    }
    RenewalsExpireEarly breaks "clause_06_a_renewal_lasts_its_ttl" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            let before = seat.slot.held.as_ref().map(|held| held.expires_us);
            let answer = seat.slot.renew(renewal, now);
            if let (Renewed::Extended { .. }, Some(held), Some(before)) = (&answer, &mut seat.slot.held, before) {
                held.expires_us = before.max(held.expires_us - renewal.ttl.as_micros() / 10);
            }
            answer
        }
    }
    NeverExpires breaks "clause_06_a_grant_ends" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let answer = Sound.acquire(seat, claim, q, now)?;
            if let (Acquired::Granted(_), Some(held)) = (&answer, &mut seat.slot.held) {
                held.expires_us = u64::MAX;
            }
            Ok(answer)
        }
    }
    SaysNothingOfALapse breaks "clause_06_a_grant_ends" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let mut answer = Sound.acquire(seat, claim, q, now)?;
            if let Acquired::Granted(grant) = &mut answer {
                grant.after_lapse = false;
            }
            Ok(answer)
        }
    }
    IgnoresLockDelay breaks "clause_06_lock_delay_follows_an_expiry" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            Sound.acquire(seat, &Claim { lock_delay: Duration::ZERO, ..claim.clone() }, q, now)
        }
    }
    DelaysAfterARelease breaks "clause_06_lock_delay_does_not_follow_a_release" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let before = seat.clone();
            let freed = Sound.release(seat, release, now);
            let delayed = |ends: u64, ttl: Ttl| ends > now.clock_us + ttl.as_micros();
            if let Some(held) = before.slot.held.filter(|held| delayed(held.expires_us, held.ttl))
                && freed.answer == Released::Ended
            {
                seat.slot.held = Some(leasehold_core::slot::Held { lease_id: LeaseId::from_bytes([0; 16]), ..held });
            }
            freed
        }
    }
    AnswersMoreThanItGives breaks "clause_06_a_grant_lasts_its_ttl" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let mut answer = Sound.acquire(seat, claim, q, now)?;
            if let Acquired::Granted(grant) = &mut answer {
                grant.ttl = Ttl::from_millis(claim.ttl.as_millis() * 2).unwrap_or(claim.ttl);
            }
            Ok(answer)
        }
    }
    RoundsTtlsDown breaks "clause_06_the_answered_ttl_is_honest" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let ttl = Ttl::from_millis(claim.ttl.as_millis() / 100 * 100).unwrap_or(claim.ttl);
            Sound.acquire(seat, &Claim { ttl, ..claim.clone() }, q, now)
        }
    }
    AllowsAnyTtl breaks "clause_06_a_ttl_above_the_namespaces" {
        fn check_ttl(&self, _ttl: Ttl, _max_ttl: Ttl) -> Result<(), Error> {
            Ok(())
        }
    }
    CallsTheUnknownUnavailable breaks "clause_07_a_lost_answer" {
        fn lost(&self, _loss: Loss) -> Kind {
            Kind::Unavailable
        }
    }
    CallsTheUnavailableUnknown breaks "clause_07_a_lost_request" {
        fn lost(&self, _loss: Loss) -> Kind {
            Kind::Unknown
        }
    }
    ForgetsInSilence breaks "clause_08_a_forgetful_namespace" {
        fn quarantine(&self, _left: Quarantine) -> Quarantine {
            None
        }
    }
    QuarantinesTooBriefly breaks "clause_08_a_quarantine_ends" {
        fn quarantine(&self, left: Quarantine) -> Quarantine {
            left.filter(|left| *left > Duration::from_millis(200))
        }
    }
    QuarantinesForEver breaks "clause_08_a_quarantine_ends" {
        fn quarantine(&self, left: Quarantine) -> Quarantine {
            left.or(Some(Duration::from_millis(1)))
        }
    }
    QuarantineEndsTheSurvivors breaks "clause_08_survivors" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, q: Quarantine, now: Now) -> Renewed {
            if q.is_some() {
                return Renewed::Gone(Gone::Expired);
            }
            Sound.renew(seat, renewal, q, now)
        }
    }
    QuarantineHasNoQueue breaks "clause_08_places" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            Sound.acquire(seat, &Claim { queue: claim.queue && q.is_none(), ..claim.clone() }, q, now)
        }
    }
    QuarantineEndsInARush breaks "clause_08_the_order_holds" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let answer = Sound.acquire(seat, claim, q, now)?;
            if matches!(answer, Acquired::Quarantined { .. }) {
                seat.slot.free_since_us = 0;
            }
            Ok(answer)
        }
    }
    CrashForgetsGrants breaks "clause_10_a_grant_survives" {
        fn after_crash(&self, seat: &mut Seat) {
            seat.slot.held = None;
        }
    }
    CrashForgetsTokens breaks "clause_10_tokens_rise" {
        fn after_crash(&self, seat: &mut Seat) {
            seat.slot.last_token = None;
        }
    }
    CrashForgetsReleases breaks "clause_10_a_release_survives" {
        fn after_crash(&self, seat: &mut Seat) {
            (seat.slot.last_end, seat.slot.last_success_us) = (None, None);
        }
    }
    CrashForgetsRevocations breaks "clause_10_a_revocation_survives" {
        fn after_crash(&self, seat: &mut Seat) {
            if let Some(held) = &mut seat.slot.held {
                held.revoked = None;
            }
        }
    }
}

//! Broken about who holds, under which token, and whom a request hits (clauses 1–5).

use std::time::Duration;

use leasehold_core::{
    Error, Kind, LeaseId, Namespace, Resource, Token,
    line::Line as _,
    record::{Acquired, Busy, Gone, Released, Renewed},
    request::{Claim, Release, Renewal},
    slot::{Freed, Now},
    token::MAX_FLOOR_LEAD_US,
};

use super::broken_rules;
use crate::reference::{Seat, Sound};

type Quarantine = Option<Duration>;

/// The renewal made to fit whatever is held.
fn forged(seat: &Seat, renewal: &Renewal) -> Option<Renewal> {
    let held = seat.slot.held.as_ref()?;
    Some(Renewal { lease_id: held.lease_id, token: held.token, ..renewal.clone() })
}

fn number_after(token: Token) -> Token {
    Token::new(token.get() + 1).unwrap_or(token)
}

broken_rules! {
    GrantsTwice breaks "clause_01" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let answer = Sound.acquire(seat, claim, q, now)?;
            if !matches!(answer, Acquired::Busy(_)) {
                return Ok(answer);
            }
            seat.slot.held = None;
            Sound.acquire(seat, claim, q, now)
        }
    }
    GrantsTwiceNowAndThen breaks "clause_01_a_concurrent_history_is_clean" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let answer = Sound.acquire(seat, claim, q, now)?;
            if !matches!(answer, Acquired::Busy(_)) || claim.lease_id.as_bytes()[0] > 40 {
                return Ok(answer);
            }
            seat.slot.held = None;
            Sound.acquire(seat, claim, q, now)
        }
    }
    MixesNamespaces breaks "clause_01_namespaces" {
        fn file_under(&self, _namespace: &Namespace) -> Namespace {
            Namespace::default()
        }
    }
    FoldsCase breaks "clause_01_hostile_names" {
        fn key(&self, resource: &Resource) -> Resource {
            Resource::new(&resource.as_str().to_lowercase()).unwrap_or_else(|_| resource.clone())
        }
    }
    TrimsNames breaks "clause_01_hostile_names" {
        fn key(&self, resource: &Resource) -> Resource {
            Resource::new(resource.as_str().trim()).unwrap_or_else(|_| resource.clone())
        }
    }
    CutsLongNames breaks "clause_01_hostile_names" {
        fn key(&self, resource: &Resource) -> Resource {
            let cut: String = resource.as_str().chars().take(250).collect();
            Resource::new(&cut).unwrap_or_else(|_| resource.clone())
        }
    }
    BusyNamesTheAsker breaks "clause_01_a_busy_answer" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let mut answer = Sound.acquire(seat, claim, q, now)?;
            if let Acquired::Busy(busy) = &mut answer {
                busy.holder.label = claim.label.clone();
            }
            Ok(answer)
        }
    }
    TokenRepeats breaks "clause_02" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let before = seat.slot.last_token;
            let mut answer = Sound.acquire(seat, claim, q, now)?;
            if let (Acquired::Granted(grant), Some(before), Some(held)) = (&mut answer, before, &mut seat.slot.held) {
                (grant.token, held.token, seat.slot.last_token) = (before, before, Some(before));
            }
            Ok(answer)
        }
    }
    TokenForgottenOnRelease breaks "clause_02_tokens_rise_across_release" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let freed = Sound.release(seat, release, now);
            if freed.answer == Released::Ended {
                seat.slot.last_token = None;
            }
            freed
        }
    }
    TokenForgottenOnExpiry breaks "clause_02_tokens_rise_across_expiry" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            if seat.slot.held.is_some() && seat.slot.is_free(now) {
                seat.slot.last_token = None;
            }
            Sound.acquire(seat, claim, q, now)
        }
    }
    RenewalDrawsAToken breaks "clause_02_renewal_keeps_the_token" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            let Some(forged) = forged(seat, renewal).filter(|forged| forged.lease_id == renewal.lease_id) else {
                return seat.slot.renew(renewal, now);
            };
            let answer = seat.slot.renew(&forged, now);
            if let (Renewed::Extended { .. }, Some(held)) = (&answer, &mut seat.slot.held) {
                held.token = number_after(held.token);
                seat.slot.last_token = Some(held.token);
            }
            answer
        }
    }
    IgnoresTheFloor breaks "clause_02_a_token_is_above_the_floor" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            Sound.acquire(seat, &Claim { floor: None, ..claim.clone() }, q, now)
        }
    }
    BelievesAnyFloor breaks "clause_02_a_wild_floor" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let wild = claim.floor.filter(|floor| floor.get() > now.unix_us + MAX_FLOOR_LEAD_US);
            if let Some(wild) = wild.and_then(|wild| Token::new(wild.get() - 1).ok()) {
                seat.slot.last_token = Some(wild);
                return Sound.acquire(seat, &Claim { floor: None, ..claim.clone() }, q, now);
            }
            Sound.acquire(seat, claim, q, now)
        }
    }
    ReleasesByNameAlone breaks "clause_03" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let held = seat.slot.held.clone();
            let forged = held.map(|held| Release { lease_id: held.lease_id, token: Some(held.token), ..release.clone() });
            Sound.release(seat, &forged.unwrap_or_else(|| release.clone()), now)
        }
    }
    ReleasesByTokenAlone breaks "clause_03_release_matches_the_lease_id" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let matching = seat.slot.held.as_ref().filter(|held| Some(held.token) == release.token);
            let forged = matching.map(|held| Release { lease_id: held.lease_id, ..release.clone() });
            Sound.release(seat, &forged.unwrap_or_else(|| release.clone()), now)
        }
    }
    ReleasesByLeaseIdAlone breaks "clause_03_release_matches_the_token" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let matching = seat.slot.held.as_ref().filter(|held| held.lease_id == release.lease_id);
            let forged = matching.map(|held| Release { token: Some(held.token), ..release.clone() });
            Sound.release(seat, &forged.unwrap_or_else(|| release.clone()), now)
        }
    }
    TakesBackAnothersClaim breaks "clause_03_release_by_lease_id_alone" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let held = seat.slot.held.as_ref().filter(|_| release.token.is_none());
            let forged = held.map(|held| Release { lease_id: held.lease_id, ..release.clone() });
            Sound.release(seat, &forged.unwrap_or_else(|| release.clone()), now)
        }
    }
    RenewsByLeaseIdAlone breaks "clause_03_renewal_matches_the_token" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            let forged = forged(seat, renewal).filter(|forged| forged.lease_id == renewal.lease_id);
            seat.slot.renew(&forged.unwrap_or_else(|| renewal.clone()), now)
        }
    }
    RenewsByTokenAlone breaks "clause_03_renewal_matches_the_lease_id" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            let forged = forged(seat, renewal).filter(|forged| forged.token == renewal.token);
            seat.slot.renew(&forged.unwrap_or_else(|| renewal.clone()), now)
        }
    }
    RenewsForTheSuccessor breaks "clause_03_a_late_release" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            let later = forged(seat, renewal).filter(|forged| forged.token > renewal.token);
            seat.slot.renew(&later.unwrap_or_else(|| renewal.clone()), now)
        }
    }
    EverythingGoneIsAbsent breaks "clause_03_gone_says" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            match seat.slot.renew(renewal, now) {
                Renewed::Gone(_) => Renewed::Gone(Gone::Absent),
                other => other,
            }
        }
    }
    CannotTellRevokedFromExpired breaks "clause_03_gone_says_revoked" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            match seat.slot.renew(renewal, now) {
                Renewed::Gone(Gone::Revoked { .. }) => Renewed::Gone(Gone::Expired),
                other => other,
            }
        }
    }
    RecordsALateSuccess breaks "once_per_is_recorded_by_the_holder_alone" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let freed = Sound.release(seat, release, now);
            if release.succeeded && matches!(freed.answer, Released::NotHeld(_)) {
                seat.slot.last_success_us = Some(now.unix_us);
            }
            freed
        }
    }
    RenewCreates breaks "clause_04_renew_never_creates" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, q: Quarantine, now: Now) -> Renewed {
            if !seat.slot.is_free(now) {
                return seat.slot.renew(renewal, now);
            }
            let claim = Claim {
                resource: renewal.resource.clone(),
                lease_id: renewal.lease_id,
                holder_id: crate::random::holder_id(),
                label: leasehold_core::Label::default(),
                ttl: renewal.ttl,
                lock_delay: renewal.lock_delay,
                floor: None,
                queue: false,
                once_per: None,
            };
            seat.slot.last_end = None;
            match Sound.acquire(seat, &claim, q, now) {
                Ok(Acquired::Granted(grant)) => Renewed::Extended { ttl: grant.ttl },
                _ => seat.slot.renew(renewal, now),
            }
        }
    }
    RenewRevivesTheExpired breaks "clause_04_renew_never_revives" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            if let Some(held) = seat.slot.held.as_mut().filter(|held| held.token == renewal.token) {
                held.expires_us = held.expires_us.max(now.clock_us + 1);
            }
            seat.slot.renew(renewal, now)
        }
    }
    RenewShortens breaks "clause_04_renew_never_shortens" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            let answer = seat.slot.renew(renewal, now);
            if let (Renewed::Extended { .. }, Some(held)) = (&answer, &mut seat.slot.held) {
                held.expires_us = now.clock_us + renewal.ttl.as_micros();
            }
            answer
        }
    }
    RenewRecordsALowerTtl breaks "clause_04_a_lower_ttl" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            let answer = seat.slot.renew(renewal, now);
            if let (Renewed::Extended { .. }, Some(held)) = (&answer, &mut seat.slot.held) {
                held.ttl = renewal.ttl;
            }
            answer
        }
    }
    RenewOnlySaysSo breaks "clause_04_renew_extends" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            seat.clone().slot.renew(renewal, now)
        }
    }
    RenewsTheRevoked breaks "clause_04_renew_after_revocation" {
        fn renew(&self, seat: &mut Seat, renewal: &Renewal, _q: Quarantine, now: Now) -> Renewed {
            if let Some(held) = &mut seat.slot.held {
                held.revoked = None;
            }
            seat.slot.renew(renewal, now)
        }
    }
    BatchOutOfOrder breaks "clause_04_a_batch" {
        fn batch(&self, mut answers: Vec<Result<Renewed, Error>>) -> Vec<Result<Renewed, Error>> {
            let shift = usize::from(answers.len() > 1);
            answers.rotate_left(shift);
            answers
        }
    }
    BatchLeavesOutTheFailed breaks "clause_04_a_batch" {
        fn batch(&self, mut answers: Vec<Result<Renewed, Error>>) -> Vec<Result<Renewed, Error>> {
            answers.retain(|answer| matches!(answer, Ok(Renewed::Extended { .. })));
            answers
        }
    }
    BatchHasABound breaks "clause_04_a_batch_may_be_empty_or_large" {
        fn batch(&self, mut answers: Vec<Result<Renewed, Error>>) -> Vec<Result<Renewed, Error>> {
            for answer in answers.iter_mut().skip(128) {
                *answer = Err(Error::new(Kind::Unavailable, "too many operations in one request"));
            }
            answers
        }
    }
    AdoptsNothing breaks "clause_05_a_repeated_claim" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            match seat.slot.record(now).filter(|record| record.lease_id == claim.lease_id) {
                Some(holder) => Ok(Acquired::Busy(Busy { recheck: holder.remaining, position: None, holder })),
                None => Sound.acquire(seat, claim, q, now),
            }
        }
    }
    AdoptsWithoutStartingAnew breaks "clause_05_a_repeated_claim_starts_the_ttl_anew" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let before = seat.slot.held.as_ref().map(|held| (held.lease_id, held.expires_us));
            let answer = Sound.acquire(seat, claim, q, now)?;
            if let (Some((_, expires_us)), Some(held), Acquired::Granted(grant)) = (before, &mut seat.slot.held, &answer)
                && grant.adopted
            {
                held.expires_us = expires_us;
            }
            Ok(answer)
        }
    }
    AdoptsUnderANewToken breaks "clause_05_a_repeated_claim" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let mut answer = Sound.acquire(seat, claim, q, now)?;
            if let (Acquired::Granted(grant), Some(held)) = (&mut answer, &mut seat.slot.held)
                && grant.adopted
            {
                held.token = number_after(held.token);
                (grant.token, seat.slot.last_token) = (held.token, Some(held.token));
            }
            Ok(answer)
        }
    }
    DoesNotSayThatItAdopted breaks "clause_05_a_repeated_claim" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let mut answer = Sound.acquire(seat, claim, q, now)?;
            if let Acquired::Granted(grant) = &mut answer {
                grant.adopted = false;
            }
            Ok(answer)
        }
    }
    ForgetsTheSpent breaks "clause_05_a_repeat_of" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let answer = Sound.acquire(seat, claim, q, now)?;
            if !matches!(answer, Acquired::Spent(_)) {
                return Ok(answer);
            }
            seat.slot.last_end = None;
            Sound.acquire(seat, claim, q, now)
        }
    }
    KeepsAPlaceForTheSpent breaks "clause_05_a_spent_claim_keeps_no_place" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let own = |id: LeaseId| claim.queue && id == claim.lease_id;
            if seat.slot.held.as_ref().is_some_and(|held| own(held.lease_id) && held.revoked.is_some()) {
                seat.line.enter(claim.lease_id, &claim.label, now.clock_us).unwrap_or_default();
            }
            Sound.acquire(seat, claim, q, now)
        }
    }
}

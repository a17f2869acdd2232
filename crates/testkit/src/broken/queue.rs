//! Broken about who waits, in which order, and who is woken (clause 9).

use std::time::Duration;

use leasehold_core::{
    Error, LeaseId, Resource,
    line::{Line as _, MemoryLine, RECHECK_BACK},
    record::{Acquired, Inspection, Released},
    request::{Claim, Release},
    slot::{Freed, Now},
};

use super::broken_rules;
use crate::reference::{Rules as _, Seat, Sound};

type Quarantine = Option<Duration>;

/// Answers as if nobody waited.
fn without_the_line(seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
    let mut empty = Seat { slot: seat.slot.clone(), line: MemoryLine::default(), past: Vec::new() };
    let answer = Sound.acquire(&mut empty, claim, q, now)?;
    if matches!(answer, Acquired::Granted(_)) {
        seat.line.leave(claim.lease_id).unwrap_or_default();
    }
    seat.slot = empty.slot;
    Ok(answer)
}

fn is_waiting(seat: &Seat, lease_id: LeaseId) -> bool {
    seat.line.entries().any(|entry| entry.lease_id == lease_id)
}

broken_rules! {
    LastComeFirstServed breaks "clause_09_waiters_are_served_in_order" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let before = seat.line.clone();
            let was_waiting = is_waiting(seat, claim.lease_id);
            let answer = Sound.acquire(seat, claim, q, now)?;
            if !was_waiting && is_waiting(seat, claim.lease_id) {
                let mut line = MemoryLine::default();
                line.enter(claim.lease_id, &claim.label, now.clock_us).unwrap_or_default();
                for entry in before.entries() {
                    line.enter(entry.lease_id, &entry.label, entry.refreshed_us).unwrap_or_default();
                }
                seat.line = line;
            }
            Ok(answer)
        }
    }
    KeepsNoOrder breaks "clause_09_waiters_are_served_in_order" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let answer = Sound.acquire(seat, claim, q, now)?;
            if claim.queue && matches!(answer, Acquired::Queued(_)) {
                return without_the_line(seat, claim, q, now);
            }
            Ok(answer)
        }
    }
    ReservesOnlyAfterARelease breaks "clause_09_the_first_is_served_after_an_expiry" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let lapsed = seat.slot.held.is_some() && seat.slot.is_free(now);
            if lapsed && is_waiting(seat, claim.lease_id) {
                return without_the_line(seat, claim, q, now);
            }
            Sound.acquire(seat, claim, q, now)
        }
    }
    LetsTryOncePass breaks "clause_09_try_once_passes_no_waiter" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            if claim.queue { Sound.acquire(seat, claim, q, now) } else { without_the_line(seat, claim, q, now) }
        }
    }
    ReservesBriefly breaks "clause_09_a_freed_resource_is_reserved" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            seat.slot.free_since_us = seat.slot.free_since_us.saturating_sub(400_000);
            let answer = Sound.acquire(seat, claim, q, now);
            seat.slot.free_since_us = seat.slot.free_since_us.saturating_add(400_000);
            answer
        }
    }
    WaitsForTheSilent breaks "clause_09_a_silent_waiter" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            seat.slot.free_since_us = now.clock_us;
            Sound.acquire(seat, claim, q, now)
        }
    }
    WaitsForTheDead breaks "clause_09_an_unrefreshed_place_dies" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let entries: Vec<_> = seat.line.entries().cloned().collect();
            for entry in entries {
                seat.line.enter(entry.lease_id, &entry.label, now.clock_us).unwrap_or_default();
            }
            seat.slot.free_since_us = now.clock_us;
            Sound.acquire(seat, claim, q, now)
        }
    }
    AskingAgainCostsThePlace breaks "clause_09_asking_again_keeps_the_place" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            if !seat.slot.is_free(now) {
                seat.line.leave(claim.lease_id).unwrap_or_default();
            }
            Sound.acquire(seat, claim, q, now)
        }
    }
    TryOnceTakesAPlace breaks "clause_09_try_once_takes_no_place" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            Sound.acquire(seat, &Claim { queue: true, ..claim.clone() }, q, now)
        }
    }
    PlacesCountFromOne breaks "clause_09_places_are_counted_from_zero" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let mut answer = Sound.acquire(seat, claim, q, now)?;
            if let Acquired::Busy(busy) = &mut answer {
                busy.position = busy.position.map(|position| position + 1);
            }
            Ok(answer)
        }
    }
    APlaceIsForEver breaks "clause_09_a_place_can_be_given_up" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let line = seat.line.clone();
            let freed = Sound.release(seat, release, now);
            seat.line = line;
            freed
        }
    }
    TheGrantedWaitOn breaks "clause_09_a_granted_claim_has_no_place" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let waits = is_waiting(seat, claim.lease_id);
            let answer = Sound.acquire(seat, claim, q, now)?;
            if waits && matches!(answer, Acquired::Granted(_)) {
                seat.line.enter(claim.lease_id, &claim.label, now.clock_us).unwrap_or_default();
            }
            Ok(answer)
        }
    }
    HidesTheWaiters breaks "clause_09_an_inspection_names_the_waiters" {
        fn inspect(&self, resource: &Resource, seat: &Seat, now: Now) -> Inspection {
            Inspection { waiters: Vec::new(), waiting: 0, ..Sound.inspect(resource, seat, now) }
        }
    }
    LooksAgainTooLate breaks "clause_09_recheck_is_bounded" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let mut answer = Sound.acquire(seat, claim, q, now)?;
            if let Acquired::Busy(busy) = &mut answer {
                busy.recheck = RECHECK_BACK;
            }
            Ok(answer)
        }
    }
    WakesEverybody breaks "clause_09_a_release_wakes_the_first_alone" {
        fn wake(&self, seat: &Seat, first: Option<LeaseId>, holder: Option<LeaseId>) -> Vec<LeaseId> {
            let all = seat.line.entries().map(|entry| entry.lease_id).filter(|_| first.is_some());
            all.chain(holder).collect()
        }
    }
    WakesNobody breaks "clause_09_a_release_wakes_the_first_alone" {
        fn wake(&self, _seat: &Seat, _first: Option<LeaseId>, holder: Option<LeaseId>) -> Vec<LeaseId> {
            holder.into_iter().collect()
        }
    }
    WakesTheLast breaks "clause_09_a_release_wakes_the_first_alone" {
        fn wake(&self, seat: &Seat, first: Option<LeaseId>, holder: Option<LeaseId>) -> Vec<LeaseId> {
            let last = seat.line.entries().last().map(|entry| entry.lease_id).filter(|_| first.is_some());
            last.into_iter().chain(holder).collect()
        }
    }
    LeavesInSilence breaks "clause_09_who_leaves_wakes_the_next" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let freed = Sound.release(seat, release, now);
            if freed.answer == Released::LeftQueue { Freed { wake: None, ..freed } } else { freed }
        }
    }
    HasNothingToDoInSilence breaks "clause_09_who_has_nothing_to_do_wakes_the_next" {
        fn wake_after(&self, _seat: &mut Seat, _answer: &Acquired, _now: Now) -> Option<LeaseId> {
            None
        }
    }
}

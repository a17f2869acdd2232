//! Broken about revocation, once-per, lists and namespaces.

use std::time::Duration;

use leasehold_core::{
    Error, LeaseId, Resource,
    record::{Acquired, Inspection, Released, Revoked},
    request::{Claim, Listing, Preparation, Release, Revocation},
    slot::{Freed, Now},
};

use super::broken_rules;
use crate::reference::{Seat, Sound};

type Quarantine = Option<Duration>;

broken_rules! {
    RevokeFreesAtOnce breaks "revoke_keeps_the_resource_busy" {
        fn revoke(&self, seat: &mut Seat, revocation: &Revocation, now: Now) -> Freed<Revoked> {
            Sound.revoke(seat, &Revocation { now: true, ..revocation.clone() }, now)
        }
    }
    RevokeNowWaits breaks "revoke_now_frees_at_once" {
        fn revoke(&self, seat: &mut Seat, revocation: &Revocation, now: Now) -> Freed<Revoked> {
            Sound.revoke(seat, &Revocation { now: false, ..revocation.clone() }, now)
        }
    }
    RevokesByNameAlone breaks "revoke_of_another_token" {
        fn revoke(&self, seat: &mut Seat, revocation: &Revocation, now: Now) -> Freed<Revoked> {
            let token = seat.slot.held.as_ref().map_or(revocation.token, |held| held.token);
            Sound.revoke(seat, &Revocation { token, ..revocation.clone() }, now)
        }
    }
    RevokeOnlySaysSo breaks "revoke_" {
        fn revoke(&self, seat: &mut Seat, revocation: &Revocation, now: Now) -> Freed<Revoked> {
            Sound.revoke(&mut seat.clone(), revocation, now)
        }
    }
    RevokeTellsNobody breaks "revoke_wakes_the_holder" {
        fn wake(&self, _seat: &Seat, first: Option<LeaseId>, _holder: Option<LeaseId>) -> Vec<LeaseId> {
            first.into_iter().collect()
        }
    }
    TheRevokedCannotRelease breaks "revoke_lets_the_holder_release" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            if seat.slot.held.as_ref().is_some_and(|held| held.revoked.is_some()) {
                return Freed { answer: Released::NotHeld(leasehold_core::record::Gone::Expired), wake: None };
            }
            Sound.release(seat, release, now)
        }
    }
    TheRevokedReleaseForgetsWhy breaks "revoke_then_release" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            if let Some(held) = &mut seat.slot.held {
                held.revoked = None;
            }
            Sound.release(seat, release, now)
        }
    }
    TheRevokedHaveNoSuccess breaks "revoke_then_release" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let revoked = seat.slot.held.as_ref().is_some_and(|held| held.revoked.is_some());
            let succeeded = release.succeeded && !revoked;
            Sound.release(seat, &Release { succeeded, ..release.clone() }, now)
        }
    }
    FailuresCount breaks "once_per_ignores_failures" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            Sound.release(seat, &Release { succeeded: true, ..release.clone() }, now)
        }
    }
    CountsFromTheEnd breaks "once_per_counts_from_the_start" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            let freed = Sound.release(seat, release, now);
            if release.succeeded && freed.answer == Released::Ended {
                seat.slot.last_success_us = Some(now.unix_us);
            }
            freed
        }
    }
    RecordsNoSuccess breaks "once_per_skips" {
        fn release(&self, seat: &mut Seat, release: &Release, now: Now) -> Freed<Released> {
            Sound.release(seat, &Release { succeeded: false, ..release.clone() }, now)
        }
    }
    OnceForEver breaks "once_per_is_over" {
        fn acquire(&self, seat: &mut Seat, claim: &Claim, q: Quarantine, now: Now) -> Result<Acquired, Error> {
            let once_per = claim.once_per.map(|period| period * 1_000);
            Sound.acquire(seat, &Claim { once_per, ..claim.clone() }, q, now)
        }
    }
    ListsWithoutThePrefix breaks "list_takes_a_prefix" {
        fn page(&self, all: Vec<Inspection>, listing: &Listing) -> (Vec<Inspection>, bool) {
            Sound.page(all, &Listing { prefix: String::new(), ..listing.clone() })
        }
    }
    ListsByPattern breaks "list_takes_a_prefix" {
        fn page(&self, all: Vec<Inspection>, listing: &Listing) -> (Vec<Inspection>, bool) {
            // `_` stands for any one character, as in an unescaped LIKE.
            let likes = |item: &Inspection| {
                let mut name = item.resource.as_str().chars();
                listing.prefix.chars().all(|wanted| name.next().is_some_and(|c| wanted == '_' || wanted == c))
            };
            let all = all.into_iter().filter(likes).collect();
            Sound.page(all, &Listing { prefix: String::new(), ..listing.clone() })
        }
    }
    PagesStartAnew breaks "list_pages" {
        fn page(&self, all: Vec<Inspection>, listing: &Listing) -> (Vec<Inspection>, bool) {
            Sound.page(all, &Listing { after: None, ..listing.clone() })
        }
    }
    PagesRepeatTheLast breaks "list_pages" {
        fn page(&self, all: Vec<Inspection>, listing: &Listing) -> (Vec<Inspection>, bool) {
            let (mut items, more) = Sound.page(all.clone(), listing);
            if let Some(after) = all.into_iter().find(|item| Some(&item.resource) == listing.after.as_ref()) {
                items.insert(0, after);
                items.truncate(usize::from(listing.limit));
            }
            (items, more)
        }
    }
    PagesNeverGoOn breaks "list_pages" {
        fn page(&self, all: Vec<Inspection>, listing: &Listing) -> (Vec<Inspection>, bool) {
            (Sound.page(all, listing).0, false)
        }
    }
    ForgetsTheFree breaks "list_remembers_the_free" {
        fn page(&self, all: Vec<Inspection>, listing: &Listing) -> (Vec<Inspection>, bool) {
            Sound.page(all, &Listing { free_too: false, ..listing.clone() })
        }
    }
    ListsTheFreeUnasked breaks "list_shows_what_is_held" {
        fn page(&self, all: Vec<Inspection>, listing: &Listing) -> (Vec<Inspection>, bool) {
            Sound.page(all, &Listing { free_too: true, ..listing.clone() })
        }
    }
    CancelledClaimsStandForEver breaks "cancelled_acquires" {
        fn unheard(&self, seat: &mut Seat, claim: &Claim) {
            if let Some(held) = seat.slot.held.as_mut().filter(|held| held.lease_id == claim.lease_id) {
                held.expires_us = u64::MAX;
            }
        }
    }
    WakesGoWithTheirReader breaks "cancelled_waits" {
        fn hands_wakes_over_at_once(&self) -> bool {
            false
        }
    }
    CountsTheWaitersTwice breaks "list_shows_what_is_held" {
        fn inspect(&self, resource: &Resource, seat: &Seat, now: Now) -> Inspection {
            let inspection = Sound.inspect(resource, seat, now);
            Inspection { waiting: inspection.waiting * 2, ..inspection }
        }
    }
    RemembersTheNeverSeen breaks "inspect_of_an_unknown" {
        fn inspect(&self, resource: &Resource, seat: &Seat, now: Now) -> Inspection {
            let inspection = Sound.inspect(resource, seat, now);
            let last_token = inspection.last_token.or(leasehold_core::Token::new(now.unix_us).ok());
            Inspection { last_token, ..inspection }
        }
    }
    ThinksEverythingFresh breaks "prepare_fresh_is_refused" {
        fn check_preparation(&self, _preparation: Preparation) -> Result<(), Error> {
            Ok(())
        }
    }
}

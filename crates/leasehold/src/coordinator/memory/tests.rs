use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Coordinator, HolderId, Label, LeaseId, Namespace, Resource, Ttl,
    line::RESERVATION,
    record::{Acquired, Gone, Released, Renewed, Revoked, Wake},
    request::{Claim, Preparation, Release, Renewal, Revocation},
};

use super::*;
use crate::clock::ManualClock;

fn id(n: u8) -> LeaseId {
    LeaseId::from_bytes([n; 16])
}

fn claim(n: u8, queue: bool) -> Claim {
    Claim {
        resource: Resource::new("r").unwrap(),
        lease_id: id(n),
        holder_id: HolderId::from_bytes([n; 16]),
        label: Label::new("test").unwrap(),
        ttl: Ttl::from_millis(1_000).unwrap(),
        lock_delay: Duration::ZERO,
        floor: None,
        queue,
        once_per: None,
    }
}

fn setup() -> (Arc<ManualClock>, MemoryStore) {
    let clock = Arc::new(ManualClock::from_system());
    (clock.clone(), MemoryStore::with_clock(clock))
}

fn connect(store: &MemoryStore) -> MemoryCoordinator {
    MemoryCoordinator::new(store.clone(), Namespace::default())
}

async fn granted(coordinator: &MemoryCoordinator, claim: Claim) -> leasehold_core::Token {
    match coordinator.acquire(claim).await.unwrap() {
        Acquired::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    }
}

fn release(n: u8, token: Option<leasehold_core::Token>) -> Release {
    Release { resource: Resource::new("r").unwrap(), lease_id: id(n), token, succeeded: false }
}

#[tokio::test]
async fn coordinators_of_one_store_contend_and_the_first_in_line_is_woken() {
    let (_, store) = setup();
    let (a, b) = (connect(&store), connect(&store));
    let token = granted(&a, claim(1, false)).await;
    assert!(
        matches!(b.acquire(claim(2, true)).await.unwrap(), Acquired::Busy(busy) if busy.position == Some(0))
    );
    assert_eq!(a.release(release(1, Some(token))).await.unwrap(), Released::Ended);
    assert_eq!(b.next_wake().await, Wake::Lease(id(2)));
    assert!(matches!(a.acquire(claim(3, false)).await.unwrap(), Acquired::Queued(_)));
    assert!(granted(&b, claim(2, true)).await > token);
}

#[tokio::test]
async fn a_waiter_whose_coordinator_is_gone_is_passed_at_once() {
    let (_, store) = setup();
    let (a, b) = (connect(&store), connect(&store));
    let token = granted(&a, claim(1, false)).await;
    let _ = b.acquire(claim(2, true)).await.unwrap();
    drop(b);
    let _ = a.release(release(1, Some(token))).await.unwrap();
    granted(&a, claim(3, false)).await;
}

#[tokio::test]
async fn a_silent_waiter_holds_up_the_others_for_the_reservation_only() {
    let (clock, store) = setup();
    let (a, b) = (connect(&store), connect(&store));
    let token = granted(&a, claim(1, false)).await;
    let _ = b.acquire(claim(2, true)).await.unwrap();
    let _ = b.acquire(claim(3, true)).await.unwrap();
    let _ = a.release(release(1, Some(token))).await.unwrap();
    assert!(matches!(b.acquire(claim(3, true)).await.unwrap(), Acquired::Queued(_)));
    clock.advance(RESERVATION);
    granted(&b, claim(3, true)).await;
}

#[tokio::test]
async fn expiry_is_final_and_a_revoked_holder_is_woken() {
    let (clock, store) = setup();
    let a = connect(&store);
    let token = granted(&a, claim(1, false)).await;
    let revocation = Revocation {
        resource: Resource::new("r").unwrap(),
        token,
        by: Label::new("op").unwrap(),
        reason: Label::default(),
        now: false,
    };
    assert!(matches!(a.revoke(revocation).await.unwrap(), Revoked::Ended { .. }));
    assert_eq!(a.next_wake().await, Wake::Lease(id(1)));
    clock.advance(Duration::from_secs(1));
    let again = granted(&a, claim(2, false)).await;
    clock.advance(Duration::from_secs(1));
    let renewal = Renewal {
        resource: Resource::new("r").unwrap(),
        lease_id: id(2),
        token: again,
        ttl: Ttl::MIN,
        lock_delay: Duration::ZERO,
    };
    assert_eq!(a.renew(vec![renewal]).await.unwrap(), [Ok(Renewed::Gone(Gone::Expired))]);
}

#[tokio::test]
async fn a_store_that_forgot_grants_nothing_until_every_forgotten_grant_has_ended() {
    let (clock, store) = setup();
    let a = connect(&store);
    granted(&a, claim(1, false)).await;
    store.forget(&Namespace::default());
    assert!(matches!(a.acquire(claim(2, false)).await.unwrap(), Acquired::Quarantined { .. }));
    clock.advance(Ttl::LOCAL_MAX.as_duration());
    granted(&a, claim(2, false)).await;
}

#[tokio::test]
async fn idle_resources_are_forgotten_after_a_week_and_their_tokens_are_not() {
    let (clock, store) = setup();
    let a = connect(&store);
    let old = granted(&a, claim(1, false)).await;
    let _ = a.release(release(1, Some(old))).await.unwrap();
    clock.advance(Ttl::MAX.as_duration() + Duration::from_secs(1));
    let other = Claim { resource: Resource::new("other").unwrap(), ..claim(2, false) };
    granted(&a, other).await;
    let all = Listing { free_too: true, ..Listing::new() };
    assert_eq!(a.list(all.clone()).await.unwrap().items.len(), 1);
    clock.set_wall(Duration::from_secs(5));
    assert!(granted(&a, claim(3, false)).await > old);
    let _ =
        a.release(Release { resource: Resource::new("unknown").unwrap(), ..release(1, None) }).await.unwrap();
    assert_eq!(a.list(all).await.unwrap().items.len(), 2, "asking about a resource does not make it known");
}

#[tokio::test]
async fn a_lower_bound_counts_from_the_next_grant_and_running_leases_are_renewed() {
    let (clock, store) = setup();
    let coordinator = connect(&store);
    let long = Ttl::from_millis(3_600_000).unwrap();
    let token = granted(&coordinator, Claim { ttl: long, ..claim(1, false) }).await;
    let lower = Preparation { fresh: false, max_ttl: Some(Ttl::DEFAULT) };
    assert_eq!(coordinator.prepare(lower).await.unwrap().max_ttl, Ttl::DEFAULT);

    clock.advance(Duration::from_secs(1_800));
    let Claim { resource, lease_id, lock_delay, .. } = claim(1, false);
    let same = Renewal { resource, lease_id, token, ttl: long, lock_delay };
    let longer = Renewal { ttl: Ttl::from_millis(long.as_millis() + 1).unwrap(), ..same.clone() };
    let of_nobody = Renewal { lease_id: id(9), ..same.clone() };
    let answers = coordinator.renew(vec![longer, same, of_nobody]).await.unwrap();
    let [Err(error), Ok(extended), Ok(gone)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(error.kind(), leasehold_core::Kind::Invalid);
    assert_eq!(*extended, Renewed::Extended { ttl: long });
    assert_eq!(*gone, Renewed::Gone(Gone::Absent));
    assert!(connect(&store).acquire(Claim { ttl: long, ..claim(2, false) }).await.is_err());

    // What was granted before the bound was lowered counts when it is forgotten, too.
    store.forget(&Namespace::default());
    let answer = connect(&store).acquire(claim(3, false)).await.unwrap();
    assert!(
        matches!(answer, Acquired::Quarantined { remaining, .. } if remaining == long.as_duration()),
        "{answer:?}"
    );
}

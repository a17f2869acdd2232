//! Claims that wait: what a short TTL means for them, and answers that come too late.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{sync::atomic::Ordering, time::Duration};

use common::{client, eventually, faulty, free, ms};
use leasehold::{NotAcquired, Outcome, Refusal, Resource, coordinator::memory::MemoryStore};

/// A waiter has no lease that could run out while it waits: its TTL counts from the claim that was granted.
#[tokio::test]
async fn a_waiter_with_a_short_ttl_behind_a_long_holder_gets_a_whole_window() {
    let store = MemoryStore::default();
    let (one, two) = (client(&store, "one").await, client(&store, "two").await);
    let held = one.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let waiter = tokio::spawn(async move {
        let lease = two.lease("r").ttl(ms(400)).wait_forever().acquire().await.unwrap();
        (lease.remaining(), lease.check(), lease)
    });
    eventually("a waiter", async || one.inspect(&Resource::new("r").unwrap()).await.unwrap().waiting == 1)
        .await;
    // Several of its TTLs.
    tokio::time::sleep(ms(1_500)).await;
    let _ = held.release().await.unwrap();
    let (remaining, check, _lease) = waiter.await.unwrap();
    assert!(remaining.is_some_and(|left| left > ms(100)), "{remaining:?}");
    assert_eq!(check, Ok(()));
}

#[tokio::test]
async fn a_grant_whose_answer_comes_too_late_is_given_back_and_asked_for_again() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    faults.delay_acquire_answers_ms.store(600, Ordering::SeqCst);
    let refused = leases.lease("r").ttl(ms(400)).attempt().await.unwrap();
    assert!(matches!(refused, Outcome::Refused(Refusal::TooLate)), "{refused:?}");
    let resource = Resource::new("r").unwrap();
    assert!(leases.inspect(&resource).await.unwrap().record.is_none(), "it was given back");

    let healed = async {
        eventually("a second claim", async || faults.acquires.load(Ordering::SeqCst) >= 2).await;
        faults.delay_acquire_answers_ms.store(0, Ordering::SeqCst);
    };
    let waiting = leases.lease("r").ttl(ms(400)).wait(Duration::from_secs(10)).acquire();
    let (lease, ()) = tokio::join!(waiting, healed);
    assert_eq!(lease.unwrap().check(), Ok(()));
    let claims = faults.claims.lock().unwrap().clone();
    assert_ne!(claims.first(), claims.last(), "a claim that was given back is not asked for again");
}

/// An answer that came too late and a give-back that failed: with a TTL as long as this one the next claim would meet its own
/// orphan for most of a minute.
#[tokio::test]
async fn a_grant_that_could_not_be_given_back_at_once_is_given_back_later() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    faults.delay_acquire_answers_ms.store(300, Ordering::SeqCst);
    faults.refuse_releases.store(1, Ordering::SeqCst);
    // A margin that leaves a window of 100 ms of a minute.
    let margin = leasehold_core::window::Margin::new(0, Duration::from_millis(59_900)).unwrap();
    let request = || leases.lease("r").ttl(Duration::from_secs(60)).margin(margin);
    let refused = request().attempt().await.unwrap();
    assert!(matches!(refused, Outcome::Refused(Refusal::TooLate)), "{refused:?}");
    free(&leases, "r").await;
}

/// The first attempt may have been granted; that the later ones certainly were not does not make it certain.
#[tokio::test]
async fn an_unknown_attempt_is_not_made_certain_by_later_failures() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    faults.lose_acquire_answers.store(1, Ordering::SeqCst);
    let down = async {
        eventually("the first attempt", async || faults.acquires.load(Ordering::SeqCst) >= 1).await;
        faults.unreachable.store(true, Ordering::SeqCst);
    };
    let attempt = leases.lease("r").wait(ms(400)).attempt();
    let (outcome, ()) = tokio::join!(attempt, down);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), leasehold::Kind::Unknown, "{error}");
    faults.unreachable.store(false, Ordering::SeqCst);
    free(&leases, "r").await;
}

#[tokio::test]
async fn the_ttl_of_the_holder_counts_and_not_that_of_the_claimant() {
    let store = MemoryStore::default();
    let (one, two) = (client(&store, "one").await, client(&store, "two").await);
    let held = one.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    // Many of the claimant's TTLs go by.
    let error = two.lease("r").ttl(ms(50)).wait(ms(600)).acquire().await.unwrap_err();
    let NotAcquired::Refused { refusal, .. } = error else { panic!("{error}") };
    let Refusal::Busy(busy) = *refusal else { panic!("{refusal:?}") };
    assert!(busy.holder.remaining > Duration::from_secs(30), "{busy:?}");
    assert_eq!(held.check(), Ok(()));
}

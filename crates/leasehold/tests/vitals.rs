//! What a client measures: round trips, lateness, pauses, work, hand-overs.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{sync::atomic::Ordering, time::Duration};

use common::{eventually, faulty, ms};
use leasehold::{Leases, coordinator::memory::MemoryStore};

#[tokio::test]
async fn a_client_measures_round_trips_lateness_and_work() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    assert_eq!(leases.vitals(), leasehold::Vitals::default());
    let lease = leases.lease("r").ttl(ms(900)).acquire().await.unwrap();
    eventually("three renewals", async || leases.vitals().renewal_lateness.count >= 3).await;
    let _ = lease.release().await.unwrap();
    let vitals = leases.vitals();
    assert!(vitals.round_trip.count >= 5, "a claim, renewals and a release: {vitals:?}");
    assert!(vitals.work.count == 1 && vitals.work.max >= ms(600), "{vitals:?}");
    assert!(vitals.wait.count == 1 && vitals.hand_over.count == 0, "{vitals:?}");
    assert!(vitals.host_pause.count >= 3, "{vitals:?}");
    assert!(vitals.round_trip.p50 <= vitals.round_trip.p99 && vitals.round_trip.p99 <= vitals.round_trip.max);
}

/// A slow coordinator shows, and a call that was given up counts with the time that it was waited for.
#[tokio::test]
async fn slow_and_silent_calls_show_in_the_round_trip() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    faults.delay_acquire_answers_ms.store(120, Ordering::SeqCst);
    let lease = leases.lease("r").ttl(ms(4_000)).acquire().await.unwrap();
    assert!(leases.vitals().round_trip.max >= ms(119), "{:?}", leases.vitals());
    faults.silent.store(true, Ordering::SeqCst);
    eventually("a renewal that was given up", async || leases.vitals().round_trip.max >= ms(995)).await;
    faults.silent.store(false, Ordering::SeqCst);
    drop(lease);
}

#[tokio::test]
async fn a_waiter_knows_how_long_it_waited_and_how_fast_it_took_over() {
    let store = MemoryStore::default();
    let (holder, _) = faulty(&store).await;
    let (waiter, _) = faulty(&store).await;
    let lease = holder.lease("r").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let request = waiter.lease("r").wait(Duration::from_secs(60));
        async move { request.acquire().await.unwrap() }
    });
    eventually("a place in the queue", async || holder.inspect(lease.resource()).await.unwrap().waiting == 1)
        .await;
    let _ = lease.release().await.unwrap();
    drop(waiting.await.unwrap());
    let vitals = waiter.vitals();
    assert_eq!((vitals.wait.count, vitals.hand_over.count), (1, 1), "{vitals:?}");
    assert!(vitals.hand_over.max <= vitals.wait.max, "{vitals:?}");
}

#[tokio::test]
async fn a_measurement_reads_for_as_long_as_asked() {
    let leases = Leases::connect("memory:measured").await.unwrap();
    let vitals = leases.measure(ms(200)).await.unwrap();
    assert!(vitals.round_trip.count >= 2 && vitals.host_pause.count >= 2, "{vitals:?}");
    assert_eq!(vitals.work.count, 0);
}

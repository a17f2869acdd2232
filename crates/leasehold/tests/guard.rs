//! What a guard does after its loss, while the coordinator is silent, and across tasks and threads.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use common::{client, eventually, faulty, free, ms};
use leasehold::{
    Ended, Kind, Loss, Outcome, Refusal, Resource, State, Token, blocking::block_on,
    coordinator::memory::MemoryStore,
};

#[tokio::test]
async fn asking_never_blocks_while_a_renewal_hangs() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    let lease = leases.lease("r").ttl(Duration::from_secs(20)).renew_every(ms(20)).acquire().await.unwrap();
    faults.silent.store(true, Ordering::SeqCst);
    let sent = faults.renewals.load(Ordering::SeqCst);
    eventually("a renewal under way", async || faults.renewals.load(Ordering::SeqCst) > sent).await;
    let worker = lease.handle();
    let asked = thread::spawn(move || {
        for _ in 0..1_000 {
            assert!(!worker.cancellation().is_cancelled());
            assert_eq!((worker.check(), worker.state()), (Ok(()), State::Held));
            assert!(worker.remaining().is_some() && worker.require(ms(1)).is_ok());
        }
    });
    // Had it waited for the renewal, it would have waited for its time limit of seconds, a thousand times.
    eventually("every answer", async || asked.is_finished()).await;
    asked.join().unwrap();
}

#[tokio::test]
async fn after_a_loss_the_same_client_acquires_anew_and_the_old_guard_stays_lost() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    let old = leases.lease("r").ttl(ms(200)).acquire().await.unwrap();
    faults.unreachable.store(true, Ordering::SeqCst);
    assert_eq!(old.lost().await, Loss::WindowClosed);
    faults.unreachable.store(false, Ordering::SeqCst);
    let new = leases.lease("r").ttl(ms(600)).wait(Duration::from_secs(10)).acquire().await.unwrap();
    assert!(new.token() > old.token() && new.lease_id() != old.lease_id());
    // Three TTLs: the new one is renewed under the name of the old.
    let renewed = faults.renewals.load(Ordering::SeqCst) + 9;
    eventually("nine renewals", async || faults.renewals.load(Ordering::SeqCst) >= renewed).await;
    assert_eq!((old.check(), old.state()), (Err(Loss::WindowClosed), State::Lost(Loss::WindowClosed)));
    assert_eq!(old.release().await.unwrap(), Ended::Lost(Loss::WindowClosed));
    assert_eq!(new.check(), Ok(()), "releasing the lost one touches nothing");
    assert_eq!(new.release().await.unwrap(), Ended::Released);
}

/// Cuts a release off at every point at which it is not ready, one after the other.
#[tokio::test]
async fn a_release_cancelled_at_any_await_is_finished_in_the_background() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    for polls in 0..5 {
        let lease = leases.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
        let worker = lease.handle();
        faults.refuse_releases.store(polls % 2, Ordering::SeqCst);
        {
            let mut release = pin!(lease.release());
            for _ in 0..polls {
                if release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(worker.check(), Err(Loss::Released));
        free(&leases, "r").await;
    }
    assert_eq!(leases.held(), 0);
}

#[tokio::test]
async fn tasks_of_one_client_exclude_each_other() {
    let leases = client(&MemoryStore::default(), "x").await;
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (leases, inside) = (leases.clone(), inside.clone());
            tokio::spawn(async move {
                let lease = leases.lease("r").wait_forever().acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two tasks hold at once");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(lease.release().await.unwrap(), Ended::Released);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let held = leases.lease("r").acquire().await.unwrap();
    assert!(leases.lease("r").acquire().await.unwrap_err().is_contended(), "not re-entrant");
    drop(held);
}

#[test]
fn a_lease_is_released_by_another_thread_than_the_one_that_acquired() {
    let store = MemoryStore::default();
    let leases = block_on(client(&store, "x"));
    let lease = block_on(leases.lease("r").acquire()).unwrap();
    let ended = thread::spawn(move || block_on(lease.release()).unwrap()).join().unwrap();
    assert_eq!(ended, Ended::Released);
    let resource = Resource::new("r").unwrap();
    assert!(block_on(leases.inspect(&resource)).unwrap().record.is_none());
}

#[tokio::test]
async fn equal_labels_are_different_holders() {
    let store = MemoryStore::default();
    let (one, two) = (client(&store, "same-host").await, client(&store, "same-host").await);
    let held = one.lease("r").acquire().await.unwrap();
    let Outcome::Refused(Refusal::Busy(busy)) = two.lease("r").attempt().await.unwrap() else {
        panic!("busy")
    };
    assert_eq!(busy.holder.label.as_str(), two.label().as_str());
    assert!(busy.holder.holder_id == one.holder_id() && one.holder_id() != two.holder_id());
    assert_eq!(held.check(), Ok(()));
}

#[tokio::test]
async fn a_grant_whose_token_went_back_is_given_back_and_reported() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    faults.forget_floors.store(true, Ordering::SeqCst);
    let resource = Resource::new("r").unwrap();
    let seen = leases.lease("r").acquire().await.unwrap().token();
    // Somebody saw a token that the engine knows nothing of.
    let higher = Token::new(seen.get() + 3_600_000_000).unwrap();
    leases.raise_floor(&resource, higher);
    free(&leases, "r").await;
    let error = leases.lease("r").wait(ms(200)).attempt().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains(&higher.to_string()), "{error}");
    assert!(leases.inspect(&resource).await.unwrap().record.is_none(), "it was given back");
    assert_eq!(leases.held(), 0);
}

/// A future that is ready tells its output; others are dropped where they stand.
#[tokio::test]
async fn a_lost_future_that_is_dropped_and_asked_again_still_tells() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    let lease = leases.lease("r").ttl(ms(200)).acquire().await.unwrap();
    for _ in 0..10 {
        let mut lost = pin!(lease.lost());
        assert!(matches!(lost.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    }
    faults.unreachable.store(true, Ordering::SeqCst);
    assert_eq!((lease.lost().await, lease.lost().await), (Loss::WindowClosed, Loss::WindowClosed));
}

//! A worker stops in order: intake, pieces, checkpoint, release.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{eventually, faulty, ms};
use leasehold::{
    Ended, Loss, Resource, Worker,
    coordinator::memory::MemoryStore,
    worker::{Drained, Shut},
};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_drain_shuts_the_intake_finishes_checkpoints_and_then_releases() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let worker = Worker::new(leases.lease("r").ttl(ms(1_500)).acquire().await.unwrap());
    let (intake, resource, token) = (worker.intake(), worker.resource().clone(), worker.token());
    let piece = intake.admit().unwrap();
    assert_eq!((intake.pieces(), piece.lease().token()), (1, token));
    let finished = Arc::new(AtomicBool::new(false));
    let drain = tokio::spawn({
        let (leases, resource, finished) = (leases.clone(), resource.clone(), finished.clone());
        worker.drain(LONG, async move |lease| {
            assert!(finished.load(Ordering::SeqCst), "the checkpoint comes after the last piece");
            lease.check().unwrap();
            let held = leases.inspect(&resource).await.unwrap().record.unwrap();
            assert_eq!(held.token, lease.token(), "… and before the release");
            held.token
        })
    });
    eventually("a shut intake", async || intake.admit().err() == Some(Shut::Draining)).await;
    // Twice the TTL: it is renewed while it drains.
    tokio::time::sleep(ms(3_000)).await;
    assert_eq!(leases.inspect(&resource).await.unwrap().record.unwrap().token, token);
    finished.store(true, Ordering::SeqCst);
    drop(piece);
    let drained = drain.await.unwrap().unwrap();
    assert_eq!(drained, Drained::Complete { checkpoint: token, ended: Ended::Released });
    assert!(leases.inspect(&resource).await.unwrap().record.is_none());
    assert!(matches!(intake.admit(), Err(Shut::Lost(Loss::Released))));
}

#[tokio::test]
async fn pieces_that_take_too_long_are_told_to_stop() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let worker = Worker::new(leases.lease("r").acquire().await.unwrap());
    let piece = worker.intake().admit().unwrap();
    let obedient = tokio::spawn(async move {
        piece.stopped().await;
        drop(piece);
    });
    let drained = worker.drain(ms(50), async |_| 7).await.unwrap();
    assert_eq!(drained, Drained::Stopped { checkpoint: 7, ended: Ended::Released });
    obedient.await.unwrap();
}

/// What does not stop keeps the resource from others until the TTL is over: nobody begins beside it.
#[tokio::test]
async fn nothing_is_released_under_a_piece_that_does_not_stop() {
    let (leases, _) = faulty(&MemoryStore::default()).await;
    let resource = Resource::new("r").unwrap();
    let worker = Worker::new(leases.lease("r").acquire().await.unwrap()).grace(ms(30));
    let _stuck = worker.intake().admit().unwrap();
    let drained = worker.drain(ms(30), async |_| ()).await.unwrap();
    assert_eq!(drained, Drained::Abandoned { pieces: 1 });
    assert!(leases.inspect(&resource).await.unwrap().record.is_some());
    // The same for a worker that is dropped.
    let worker = Worker::new(leases.lease("s").acquire().await.unwrap());
    let _stuck = worker.intake().admit().unwrap();
    drop(worker);
    let idle = Worker::new(leases.lease("t").acquire().await.unwrap());
    drop(idle);
    let held =
        async |name: &str| leases.inspect(&Resource::new(name).unwrap()).await.unwrap().record.is_some();
    eventually("the idle one's release", async || !held("t").await).await;
    assert!(held("s").await);
}

#[tokio::test]
async fn a_loss_ends_a_drain_and_uncertainty_lets_nothing_new_in() {
    let (leases, faults) = faulty(&MemoryStore::default()).await;
    let worker = Worker::new(leases.lease("r").ttl(ms(3_000)).acquire().await.unwrap()).grace(ms(10));
    let intake = worker.intake();
    let _piece = intake.admit().unwrap();
    faults.unreachable.store(true, Ordering::SeqCst);
    eventually("uncertainty", async || intake.admit().err() == Some(Shut::Uncertain)).await;
    let drained = worker.drain(LONG, async |_| ()).await.unwrap();
    assert_eq!(drained, Drained::Lost { loss: Loss::WindowClosed, pieces: 1 });
    assert!(matches!(intake.admit(), Err(Shut::Lost(Loss::WindowClosed))));
    faults.unreachable.store(false, Ordering::SeqCst);
}

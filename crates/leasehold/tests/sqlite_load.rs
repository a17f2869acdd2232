//! A lease file under many claims of one program: what is dropped leaves nothing, and nobody loses a lease over it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![cfg(feature = "sqlite")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{eventually, ms};
use leasehold::{Leases, Resource};
use leasehold_testkit::random::{Choices, seed};

async fn connect(folder: &tempfile::TempDir) -> Leases {
    Leases::connect(&format!("sqlite:{}", folder.path().join("leases.db").display())).await.unwrap()
}

#[tokio::test]
async fn acquires_dropped_at_random_moments_leave_nothing_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (leases, look) = (connect(&folder).await, connect(&folder).await);
    let seed = seed();
    println!("seed {seed}");
    let mut choices = Choices::new(seed);
    let mut granted = 0;
    for n in 0..400 {
        let claim = leases.lease(&format!("r{}", n % 4)).ttl(Duration::from_secs(600));
        let acquire = if choices.one_in(2) { claim.wait_forever() } else { claim }.acquire();
        // From before the request is sent to after its answer.
        let after = Duration::from_micros(choices.below(1_500));
        granted += u32::from(matches!(tokio::time::timeout(after, acquire).await, Ok(Ok(_))));
    }
    println!("{granted} of 400 were granted before they were dropped");
    for n in 0..4 {
        let resource = Resource::new(&format!("r{n}")).unwrap();
        eventually("nothing left", async || {
            let seen = look.inspect(&resource).await.unwrap();
            seen.record.is_none() && seen.waiting == 0
        })
        .await;
    }
    assert_eq!(leases.held(), 0);
    assert!(leases.lease("r0").acquire().await.is_ok(), "the client is as good as new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_without_number_keep_no_lease_from_its_renewals() {
    let folder = tempfile::tempdir().unwrap();
    let (leases, other) = (connect(&folder).await, connect(&folder).await);
    let kept = leases.lease("kept").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    let (stop, claims) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for n in 0..100 {
        // Those of the same client stand in the same queue of requests, those of the other at the same file.
        let (leases, stop, claims) =
            (if n % 2 == 0 { leases.clone() } else { other.clone() }, stop.clone(), claims.clone());
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                // A tenth waits in the queue of the lease itself.
                let waits = n % 10 == 0;
                let request = leases.lease(if waits { "kept" } else { "contended" });
                let _ = if waits { request.wait(ms(100)) } else { request }.attempt().await;
                claims.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let first = kept.closes();
    let mut closes = first;
    // Until the lease has outlived its TTL three times over.
    while closes.boot_ns < first.boot_ns + 6_000_000_000 {
        closes = kept.closes_after(closes).await.expect("it is never lost");
        assert_eq!(kept.check(), Ok(()));
    }
    stop.store(true, Ordering::SeqCst);
    println!("{} claims", claims.load(Ordering::SeqCst));
    assert!(claims.load(Ordering::SeqCst) > 100);
    let _ = kept.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
}

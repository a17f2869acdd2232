//! Notes of runs that were not needed: left by whoever came, however many come at once.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use common::{client, faulty, ms};
use leasehold::{
    Done, HolderId, Outcome, Resource, coordinator::memory::MemoryStore, core::record::Past, skip::is_skip,
};

const PERIOD: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_come_at_once_leave_their_note() {
    const MANY: usize = 12;
    let store = MemoryStore::default();
    let resource = Resource::new("r").unwrap();
    let done = Done { started_us: 1_767_323_045_678_901, due_in: ms(5_000) };
    let mut coming = Vec::new();
    for _ in 0..MANY {
        let (leases, faults) = faulty(&store).await;
        // The place is somebody's for a while each time: they do meet.
        faults.delay_acquire_answers_ms.store(20, Ordering::SeqCst);
        let resource = resource.clone();
        coming
            .push(tokio::spawn(async move { leases.note_skipped(&resource, &done, PERIOD).await.unwrap() }));
    }
    for come in coming {
        assert!(come.await.unwrap(), "there is room for all");
    }
    let leases = client(&store, "operator").await;
    let found = leases.skipped(&resource).await.unwrap();
    let who: BTreeSet<HolderId> = found.iter().map(|skipped| skipped.holder_id).collect();
    assert_eq!((found.len(), who.len()), (MANY, MANY));
    assert!(
        found.iter().all(|skipped| (skipped.once_per, skipped.last_success_us) == (PERIOD, done.started_us))
    );
    assert!(found.windows(2).all(|pair| pair[0].at_us >= pair[1].at_us), "the latest first: {found:?}");
    assert!(leases.history(&resource).await.unwrap().is_empty(), "the resource itself knows nothing of it");
}

#[tokio::test]
async fn notes_are_bounded_and_change_nothing_for_the_resource() {
    let leases = client(&MemoryStore::default(), "daily").await;
    let lease = leases.lease("r").once_per(PERIOD).acquire().await.unwrap();
    let token = lease.token();
    let _ended = lease.complete().await.unwrap();
    let resource = Resource::new("r").unwrap();
    for _ in 0..Past::KEPT + 5 {
        let Outcome::AlreadyDone(done) = leases.lease("r").once_per(PERIOD).attempt().await.unwrap() else {
            panic!("it is done")
        };
        assert!(leases.note_skipped(&resource, &done, PERIOD).await.unwrap());
    }
    assert_eq!(leases.skipped(&resource).await.unwrap().len(), Past::KEPT);
    let seen = leases.inspect(&resource).await.unwrap();
    assert_eq!((seen.last_token, seen.record), (Some(token), None));
    let long = Resource::new(&"x".repeat(250)).unwrap();
    let done = Done { started_us: 1, due_in: ms(1) };
    assert!(!leases.note_skipped(&long, &done, PERIOD).await.unwrap());
    assert!(leases.skipped(&long).await.unwrap().is_empty() && !is_skip(&long));
}

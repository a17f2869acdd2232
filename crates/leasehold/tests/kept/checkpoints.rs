//! Checkpoints: what a holder leaves is what its successor finds, and nobody changes it behind its back.

use leasehold::{
    Kind, Lease, Leases, Loss, Worker,
    checkpoint::{Checkpoint, MAX_BYTES, NotMine, is_checkpoint},
    coordinator::memory::MemoryStore,
    core::request::{Listing, Revocation},
};

use crate::{
    common::{client, ms},
    place::{Place, label},
};

async fn hold(leases: &Leases) -> Lease {
    leases.lease("queue").ttl(ms(20_000)).wait(ms(60_000)).acquire().await.unwrap()
}

fn text(found: &Checkpoint) -> &str {
    &found.text
}

#[tokio::test]
async fn a_successor_goes_on_from_the_checkpoint() {
    let store = MemoryStore::default();
    let (first, second) = (client(&store, "first").await, client(&store, "second").await);
    let worker = Worker::new(hold(&first).await);
    assert_eq!(first.take_checkpoint(&worker).await.unwrap(), Ok(None));
    let leases = first.clone();
    let drained = worker.drain(ms(60_000), async move |lease| {
        leases.leave_checkpoint(&lease, "offset 42\nof topic é").await.unwrap()
    });
    let leasehold::worker::Drained::Complete { checkpoint: Ok(()), .. } = drained.await.unwrap() else {
        panic!("it was left under the lease")
    };
    let lease = hold(&second).await;
    let found = second.take_checkpoint(&lease).await.unwrap().unwrap().unwrap();
    assert_eq!((found.text.as_str(), found.token < lease.token()), ("offset 42\nof topic é", true));
    assert_eq!(first.checkpoint(lease.resource()).await.unwrap(), Some(found));
    for large in ["x".repeat(MAX_BYTES + 1), "a\0".to_owned()] {
        assert_eq!(second.leave_checkpoint(&lease, &large).await.unwrap_err().kind(), Kind::Invalid);
    }
    second.leave_checkpoint(&lease, "").await.unwrap().unwrap();
    assert_eq!(first.checkpoint(lease.resource()).await.unwrap().as_ref().map(text), Some(""));
    let page = first.list(Listing { free_too: true, ..Listing::new() }).await.unwrap();
    assert_eq!(page.items.iter().filter(|item| is_checkpoint(&item.resource)).count(), 1);
    let long = first.lease(&"x".repeat(244)).acquire().await.unwrap();
    assert_eq!(first.take_checkpoint(&long).await.unwrap_err().kind(), Kind::Invalid);
}

/// A holder whose grant was freed under it, and who does not know yet, is shut out as soon as its successor has looked.
async fn is_shut_out(place: &Place) {
    let (first, second) = (place.connect("first").await, place.connect("second").await);
    let old = hold(&first).await;
    first.take_checkpoint(&old).await.unwrap().unwrap();
    first.leave_checkpoint(&old, "one").await.unwrap().unwrap();
    let (resource, token) = (old.resource().clone(), old.token());
    let end = Revocation { resource, token, by: label("ops"), reason: label(""), now: true };
    let _ = second.revoke(end).await.unwrap();
    let new = hold(&second).await;
    let found = second.take_checkpoint(&new).await.unwrap().unwrap().unwrap();
    assert_eq!((text(&found), found.token), ("one", old.token()), "{}", place.name);
    // It hears of its loss in its own time; until then it may well believe.
    let late = first.leave_checkpoint(&old, "two").await.unwrap().unwrap_err();
    let stale = NotMine::Stale { taken_by: new.token() };
    assert!(late == stale || matches!(late, NotMine::Lost(_)), "{}: {late:?}", place.name);
    second.leave_checkpoint(&new, "three").await.unwrap().unwrap();
    let found = first.checkpoint(new.resource()).await.unwrap().unwrap();
    assert_eq!((text(&found), found.token), ("three", new.token()), "{}", place.name);
}

#[tokio::test]
async fn a_holder_that_was_followed_changes_no_checkpoint() {
    // Two clients of one store that hear nothing of each other: only the seal is in the way.
    let store = MemoryStore::default();
    let (first, second) = (client(&store, "first").await, client(&store, "second").await);
    let old = first.lease("queue").ttl(ms(60_000)).renew_every(ms(20_000)).acquire().await.unwrap();
    first.leave_checkpoint(&old, "one").await.unwrap().unwrap();
    let (resource, token) = (old.resource().clone(), old.token());
    // What a later holder has left is in the way of an earlier one, whatever that one believes.
    let elsewhere = client(&MemoryStore::default(), "elsewhere").await;
    elsewhere.raise_floor(&resource, token);
    let newer = elsewhere.lease("queue").acquire().await.unwrap();
    assert!(newer.token() > token);
    assert_eq!(second.take_checkpoint(&newer).await.unwrap().unwrap().as_ref().map(text), Some("one"));
    old.check().unwrap();
    let stale = NotMine::Stale { taken_by: newer.token() };
    assert_eq!(first.leave_checkpoint(&old, "two").await.unwrap(), Err(stale.clone()));
    assert_eq!(first.take_checkpoint(&old).await.unwrap(), Err(stale));
    assert_eq!(first.checkpoint(&resource).await.unwrap().as_ref().map(text), Some("one"));
    let handle = newer.handle();
    let _ = newer.release().await.unwrap();
    assert_eq!(second.leave_checkpoint(&handle, "x").await.unwrap(), Err(NotMine::Lost(Loss::Released)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_are_kept_on_every_engine() {
    let advisory = Place::postgres("?mode=advisory").await;
    for place in [Place::sqlite().await, Place::postgres("").await, Place::redis().await, advisory] {
        is_shut_out(&place).await;
    }
    for place in [Place::redlock().await, Place::etcd().await] {
        is_shut_out(&place).await;
    }
}

//! Everything that a client said comes a second time, long after it was answered: claims, renewals, releases, in their order. Whoever
//! holds by then keeps what it has; what the repetition takes for itself ends with its TTL.
//!
//! Not on etcd: a conversation in HTTP/2 is bound to its connection, which ends what is under way. There repetitions of single requests
//! are tried by the conformance suite.

use std::time::Duration;

use leasehold_testkit::server::{Direction, Proxy};

use super::{
    diary::Diary,
    place::{PATIENCE, Place, eventually},
};

/// Of whoever is repeated, and of whoever holds meanwhile.
const SHORT: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(6);

/// Says it again on every way. The servers have served what they heard: they answer as much as they did before, or nearly.
async fn say_again(ways: Vec<Proxy>, answered: u64) -> Vec<Proxy> {
    let said = move || {
        let bytes: u64 = ways.iter().map(|way| way.say_again().unwrap()).sum();
        assert!(bytes * 2 > answered, "{bytes} bytes were answered, {answered} the first time");
        ways
    };
    tokio::task::spawn_blocking(said).await.unwrap()
}

async fn changes_nothing_when_it_comes_again(place: Place) {
    let (near, ways, diary) = (place.near().await, place.ways(), Diary::default());
    let far = place.far(&ways).await;
    let mut first = diary.take("far", &far, "r", SHORT).await;
    eventually("a renewal", async || first.was_extended()).await;
    first.release().await;
    diary.take("far", &far, "r", SHORT).await.release().await;
    far.close(PATIENCE).await;
    let answered = ways.iter().map(|way| way.bytes(Direction::ToClient)).sum();

    let mut held = diary.take("near", &near, "r", TTL).await;
    let ways = say_again(ways, answered).await;
    let record = near.inspect(held.lease.resource()).await.unwrap().record;
    assert_eq!(record.map(|record| record.token), Some(held.token()), "the holder has it still");
    eventually("a renewal", async || held.was_extended()).await;
    held.release().await;

    // Nobody holds: a claim that is repeated may get a grant, which nobody uses.
    say_again(ways, answered).await;
    diary.take("near", &near, "r", TTL).await.release().await;
    diary.is_clean(4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_to_redis_changes_nothing_when_it_comes_again() {
    changes_nothing_when_it_comes_again(Place::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_to_redlock_changes_nothing_when_it_comes_again() {
    changes_nothing_when_it_comes_again(Place::redlock()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_to_postgres_changes_nothing_when_it_comes_again() {
    changes_nothing_when_it_comes_again(Place::postgres()).await;
}

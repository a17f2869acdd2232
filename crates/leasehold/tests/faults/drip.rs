//! Bytes that come one by one: soon enough, no message is taken for another; too slowly, an answer that begins is no answer.

use std::time::Duration;

use leasehold_testkit::server::Passage;

use super::{
    diary::Diary,
    place::{Place, eventually, set},
};

/// Long enough for a renewal byte by byte on a busy machine.
const TTL: Duration = Duration::from_secs(15);
/// So slowly a request takes longer than anybody waits for an answer.
const SLOW: Duration = Duration::from_millis(50);

async fn is_kept_when_bytes_come_one_by_one(place: Place) {
    let (near, ways, diary) = (place.near().await, place.ways(), Diary::default());
    let far = place.far(&ways).await;
    set(&ways, Passage::Dripping(Duration::ZERO));
    let mut held = diary.take("far", &far, "r", TTL).await;
    eventually("a renewal", async || held.was_extended()).await;
    held.release().await;
    diary.take("near", &near, "r", TTL).await.release().await;
    diary.is_clean(2);
}

async fn is_lost_in_time_when_answers_drip(place: Place) {
    let (near, ways, diary) = (place.near().await, place.ways(), Diary::default());
    let far = place.far(&ways).await;
    let held = diary.take("far", &far, "r", Duration::from_secs(3)).await;
    set(&ways, Passage::Dripping(SLOW));
    held.until_lost().await;
    let mut next = diary.take("near", &near, "r", Duration::from_secs(6)).await;
    // What has dripped so far comes to its end now, and changes nothing.
    set(&ways, Passage::Open);
    eventually("a renewal", async || next.was_extended()).await;
    next.release().await;
    diary.take("far", &far, "r", TTL).await.release().await;
    diary.is_clean(3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_on_redis_when_bytes_come_one_by_one() {
    is_kept_when_bytes_come_one_by_one(Place::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_on_redlock_when_bytes_come_one_by_one() {
    is_kept_when_bytes_come_one_by_one(Place::redlock()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_on_postgres_when_bytes_come_one_by_one() {
    is_kept_when_bytes_come_one_by_one(Place::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_on_etcd_when_bytes_come_one_by_one() {
    is_kept_when_bytes_come_one_by_one(Place::etcd()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_answers_of_redis_drip() {
    is_lost_in_time_when_answers_drip(Place::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_answers_of_redlock_drip() {
    is_lost_in_time_when_answers_drip(Place::redlock()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_answers_of_postgres_drip() {
    is_lost_in_time_when_answers_drip(Place::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_lost_in_time_when_answers_of_etcd_drip() {
    is_lost_in_time_when_answers_drip(Place::etcd()).await;
}

//! Two hundred wait for one resource.

use std::time::Duration;

use super::{
    diary::Diary,
    place::{Place, has_line},
};

const WAITERS: usize = 200;
/// Programs that they are in.
const CLIENTS: usize = 4;
const TTL: Duration = Duration::from_secs(20);

async fn all_of_a_crowd_are_served(place: Place) {
    let diary = Diary::default();
    let mut clients = vec![place.near().await];
    while clients.len() < CLIENTS {
        clients.push(place.another().await);
    }
    let first = diary.take("first", &clients[0], "r", TTL).await;
    let mut tasks = Vec::new();
    for at in 0..WAITERS {
        let (diary, leases) = (diary.clone(), clients[at % CLIENTS].clone());
        tasks.push(tokio::spawn(async move {
            diary.take(&format!("waiter-{at}"), &leases, "r", TTL).await.release().await;
        }));
    }
    if has_line(&clients[0]) {
        super::place::eventually("all places", async || {
            usize::try_from(clients[0].inspect(first.lease.resource()).await.unwrap().waiting).unwrap()
                == WAITERS
        })
        .await;
    }
    first.release().await;
    for task in tasks {
        task.await.unwrap();
    }
    diary.is_clean(WAITERS + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_who_wait_on_a_lease_file_are_served() {
    all_of_a_crowd_are_served(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_who_wait_on_redis_are_served() {
    all_of_a_crowd_are_served(Place::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_who_wait_on_redlock_are_served() {
    all_of_a_crowd_are_served(Place::redlock()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_who_wait_on_postgres_are_served() {
    all_of_a_crowd_are_served(Place::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_who_wait_on_etcd_are_served() {
    all_of_a_crowd_are_served(Place::etcd()).await;
}

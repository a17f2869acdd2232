//! Nodes that are killed, stopped, or late.

use std::time::Duration;

use leasehold::Leases;
use leasehold_core::{
    Kind,
    record::{Acquired, Released, Renewed},
    request::Preparation,
};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Redis, RedisSetup},
};

use super::world::{
    MAX_TTL, PATIENCE, RECORD, claim, eventually, has, look, namespace, open, ready, renew, servers, take,
    until_extended, until_granted, url_of,
};

async fn program(nodes: &[Redis]) -> Leases {
    Leases::builder(&url_of(nodes)).namespace(namespace()).connect().await.unwrap()
}

#[tokio::test]
async fn a_dead_minority_stops_nothing() {
    let nodes = servers(5, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    eventually("the grant on all", async || nodes.iter().all(|node| has(node, &held))).await;
    nodes[0].server().kill().unwrap();
    nodes[3].server().kill().unwrap();
    until_extended(&client, &held).await;
    let seen = look(&client).await;
    assert_eq!(
        seen.record.map(|record| (record.lease_id, record.token)),
        Some((held.claim.lease_id, held.token))
    );
    let newcomer = open(&url_of(&nodes)).await.unwrap();
    let busy = newcomer.acquire(claim(MAX_TTL)).await.unwrap();
    assert!(matches!(&busy, Acquired::Busy(busy) if busy.holder.token == held.token), "{busy:?}");
    assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
    let next = take(&newcomer, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
    assert_eq!(newcomer.release(next.release()).await.unwrap(), Released::Ended);
    assert_eq!(look(&client).await.record, None);
}

#[tokio::test]
async fn a_dead_majority_grants_nothing_and_holders_lose_belief_by_the_clock() {
    let nodes = servers(5, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    let leases = program(&nodes).await;
    let lease = leases.lease("r").ttl(MAX_TTL).acquire().await.unwrap();
    let begun = Stopwatch::start();
    nodes[..3].iter().for_each(|node| node.server().kill().unwrap());
    let error = client.acquire(claim(MAX_TTL)).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Unavailable | Kind::Unknown), "{error}");
    let loss = tokio::time::timeout(PATIENCE, lease.lost()).await;
    assert!(loss.is_ok() && lease.check().is_err(), "without a majority the window closes");
    // They come back without their memory: the two that live and one of them would be a majority.
    nodes[..3].iter().for_each(|node| node.start().unwrap());
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(
        begun.elapsed() >= MAX_TTL,
        "granted {:?} after the last moment of the one before",
        begun.elapsed()
    );
    assert!(next.token > lease.token());
}

#[tokio::test]
async fn a_majority_that_is_not_there_is_unavailable_and_one_that_does_not_answer_is_unknown() {
    let nodes = servers(3, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    nodes[0].server().pause().unwrap();
    nodes[1].server().pause().unwrap();
    let held = claim(MAX_TTL);
    let error = client.acquire(held.clone()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    nodes[0].server().resume().unwrap();
    nodes[1].server().resume().unwrap();
    // The same claim settles it, whatever has become of the first attempt.
    let granted = until_granted(&client, &held).await;
    assert_eq!(client.release(granted.release()).await.unwrap(), Released::Ended);
    nodes[0].server().kill().unwrap();
    nodes[1].server().kill().unwrap();
    eventually("certainty", async || {
        client.acquire(claim(MAX_TTL)).await.is_err_and(|error| error.kind() == Kind::Unavailable)
    })
    .await;
    let error = open(&url_of(&nodes)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_node_that_lacks_a_grant_gets_it_at_the_next_renewal() {
    let nodes = servers(3, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    eventually("the third node's grant", async || has(&nodes[2], &held)).await;
    nodes[2].ask(&["DEL", RECORD]).unwrap();
    until_extended(&client, &held).await;
    eventually("the return of the grant", async || has(&nodes[2], &held)).await;
    // It counts from now on: without one of the others it is part of the majority.
    nodes[0].server().kill().unwrap();
    until_extended(&client, &held).await;
    let seen = look(&client).await.record.unwrap();
    assert_eq!((seen.token, seen.label), (held.token, held.claim.label.clone()), "it has the whole record");
    assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
}

#[tokio::test]
async fn a_grant_that_has_ended_is_planted_nowhere() {
    let nodes = servers(3, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    eventually("the grant on all", async || nodes.iter().all(|node| has(node, &held))).await;
    // Two of three lose it: no majority has it any more.
    nodes[0].ask(&["DEL", RECORD]).unwrap();
    nodes[1].ask(&["DEL", RECORD]).unwrap();
    for _ in 0..5 {
        let gone = renew(&client, &held).await;
        assert!(matches!(gone, Ok(Renewed::Gone(_))), "{gone:?}");
    }
    assert!(!has(&nodes[0], &held) && !has(&nodes[1], &held), "what is gone is not brought back");
    let next = take(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
}

#[tokio::test]
async fn a_half_granted_claim_leaves_nothing_behind() {
    let nodes = servers(5, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    eventually("the grant on all", async || nodes.iter().all(|node| has(node, &held))).await;
    for node in &nodes[3..] {
        node.ask(&["DEL", RECORD]).unwrap();
    }
    let half = claim(MAX_TTL);
    let begun = Stopwatch::start();
    let answer = client.acquire(half.clone()).await.unwrap();
    assert!(
        matches!(&answer, Acquired::Busy(busy) if busy.holder.lease_id == held.claim.lease_id),
        "{answer:?}"
    );
    assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
    // The two nodes that were for the claim are now needed.
    nodes[0].server().kill().unwrap();
    nodes[1].server().kill().unwrap();
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(
        next.sent.elapsed() < MAX_TTL && begun.elapsed() < MAX_TTL,
        "nobody waits for the remains of a claim"
    );
    assert!(next.token > held.token);
}

#[tokio::test]
async fn a_node_that_comes_late_takes_part() {
    let nodes = servers(3, &RedisSetup::new());
    drop(ready(&url_of(&nodes)).await);
    nodes[2].server().kill().unwrap();
    let client = open(&url_of(&nodes)).await.unwrap();
    let held = take(&client, &claim(MAX_TTL)).await;
    nodes[2].start().unwrap();
    // Empty, it takes no part for the longest TTL; afterwards the grant comes to it with a renewal.
    eventually("the grant on the late node", async || {
        until_extended(&client, &held).await;
        has(&nodes[2], &held)
    })
    .await;
    nodes[0].server().kill().unwrap();
    until_extended(&client, &held).await;
}

/// A waiter is woken although one node is stopped and one is dead.
#[tokio::test]
async fn waiters_are_served_while_a_minority_is_missing() {
    let nodes = servers(5, &RedisSetup::new());
    let made = ready(&url_of(&nodes)).await;
    assert!(made.prepare(Preparation::default()).await.is_ok());
    nodes[1].server().kill().unwrap();
    nodes[2].server().pause().unwrap();
    let (one, two) = (program(&nodes).await, program(&nodes).await);
    let held = one.lease("r").ttl(MAX_TTL).acquire().await.unwrap();
    let waiter =
        tokio::spawn(async move { two.lease("r").ttl(MAX_TTL).wait(PATIENCE).acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let token = held.token();
    let _ended = held.release().await.unwrap();
    let served = tokio::time::timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(served.token() > token);
}

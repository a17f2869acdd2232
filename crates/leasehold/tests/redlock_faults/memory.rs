//! Nodes that lose their memory.

use std::time::Duration;

use leasehold_core::record::{Acquired, Released, Renewed};
use leasehold_testkit::server::RedisSetup;

use super::world::{
    MAX_TTL, claim, eventually, has, ready, renew, servers, take, until_extended, until_granted, url_of,
};

#[tokio::test]
async fn a_node_that_was_emptied_takes_no_part_until_what_it_forgot_has_ended() {
    let nodes = servers(3, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    eventually("the grant on all", async || nodes.iter().all(|node| has(node, &held))).await;
    // One after the other they forget it. Without their pause two of them would be a majority for another.
    nodes[0].server().kill().unwrap();
    nodes[0].start().unwrap();
    nodes[1].server().kill().unwrap();
    nodes[1].start().unwrap();
    eventually("an answer", async || client.acquire(claim(MAX_TTL)).await.is_ok()).await;
    let answer = client.acquire(claim(MAX_TTL)).await.unwrap();
    let quarantined = matches!(answer, Acquired::Quarantined { .. });
    assert!(quarantined || matches!(answer, Acquired::Busy(_)), "{answer:?}");
    let gone = renew(&client, &held).await;
    assert!(matches!(gone, Ok(Renewed::Gone(_))), "no majority has it any more: {gone:?}");
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(
        held.sent.elapsed() >= MAX_TTL,
        "granted {:?} after a grant that may still run",
        held.sent.elapsed()
    );
    assert!(next.token > held.token, "{} follows {}", next.token, held.token);
}

#[tokio::test]
async fn one_emptied_node_of_three_costs_nothing_and_gets_its_grants_back() {
    let nodes = servers(3, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    nodes[0].server().kill().unwrap();
    nodes[0].start().unwrap();
    until_extended(&client, &held).await;
    let busy = client.acquire(claim(MAX_TTL)).await.unwrap();
    assert!(matches!(&busy, Acquired::Busy(busy) if busy.holder.token == held.token), "{busy:?}");
    // When its pause is over it is given the grant, and not before.
    eventually("the return of the grant", async || {
        until_extended(&client, &held).await;
        has(&nodes[0], &held)
    })
    .await;
    assert!(held.sent.elapsed() >= MAX_TTL, "a node in its pause was given a grant");
    assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
    let next = take(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
}

#[tokio::test]
async fn durable_nodes_that_crash_together_keep_what_is_held() {
    let nodes = servers(3, &RedisSetup::new().durable());
    let client = ready(&url_of(&nodes)).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    eventually("the grant on all", async || nodes.iter().all(|node| has(node, &held))).await;
    for node in &nodes {
        node.server().kill().unwrap();
    }
    for node in &nodes {
        node.start().unwrap();
    }
    until_extended(&client, &held).await;
    let busy = client.acquire(claim(MAX_TTL)).await.unwrap();
    assert!(matches!(&busy, Acquired::Busy(busy) if busy.holder.token == held.token), "{busy:?}");
    assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
    let paused = client.acquire(claim(MAX_TTL)).await.unwrap();
    assert!(
        matches!(paused, Acquired::Quarantined { remaining, .. } if remaining > Duration::ZERO),
        "{paused:?}"
    );
}

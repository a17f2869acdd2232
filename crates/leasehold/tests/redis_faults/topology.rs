//! Failovers that Sentinel and Cluster make by themselves, and slots on their way.

use leasehold_core::{
    Resource,
    record::{Gone, Released, Renewed},
};
use leasehold_testkit::server::{RedisCluster, RedisSentinels};

use super::world::{
    Client, Held, MAX_TTL, assert_quarantined, claim, eventually, namespace, open, ready, renew, take,
    until_granted,
};

async fn safe_after_a_failover(client: &Client, held: &Held) {
    // Survived or lost: the holder is told, and nobody else is granted while its window may be open.
    match renew(client, held).await {
        Renewed::Extended { .. } => {
            let ended = client.release(held.release()).await.unwrap();
            assert_eq!(ended, Released::Ended);
        }
        Renewed::Gone(Gone::Absent | Gone::Expired | Gone::Superseded { .. } | Gone::Released) => {}
        other => panic!("{other:?}"),
    }
    assert_quarantined(client).await;
    let next = until_granted(client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token, "{} follows {}", next.token, held.token);
    assert!(held.sent.elapsed() >= MAX_TTL, "granted {:?} after the grant before", held.sent.elapsed());
}

#[tokio::test]
async fn sentinel_fails_over_and_the_client_follows() {
    let group = RedisSentinels::start().unwrap();
    let client = ready(&group.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    let before = group.master().unwrap();
    group.master_server().unwrap().server().kill().unwrap();
    let waiting = open(&group.url()).await;
    assert!(waiting.is_err() || group.master().unwrap() != before, "nobody serves yet");
    eventually("another master", async || group.master().is_ok_and(|now| now != before)).await;
    safe_after_a_failover(&client, &held).await;
}

#[tokio::test]
async fn a_planned_failover_of_sentinel_is_followed_by_requests_and_wakes() {
    let group = RedisSentinels::start().unwrap();
    let client = ready(&group.url()).await;
    let before = group.master().unwrap();
    let master = group.master_server().unwrap();
    master.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]).unwrap();
    group.fail_over().unwrap();
    eventually("another master", async || group.master().is_ok_and(|now| now != before)).await;
    let held = until_granted(&client, &claim(MAX_TTL)).await;
    let mut waiter = claim(MAX_TTL);
    waiter.queue = true;
    eventually("the waiter to be woken or served", async || {
        let answer = client.acquire(waiter.clone()).await;
        if matches!(answer, Ok(leasehold_core::record::Acquired::Busy(_))) {
            let _ended = client.release(held.release()).await;
            let woken = tokio::time::timeout(std::time::Duration::from_secs(5), client.next_wake()).await;
            return woken.is_ok();
        }
        matches!(answer, Ok(leasehold_core::record::Acquired::Granted(_)))
    })
    .await;
}

/// The resource "r" lives in one of sixteen shards: its slot.
fn slot() -> u16 {
    let shard = "r".bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    }) % 16;
    let tag = format!("{}:{shard:02}", namespace());
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[tokio::test]
async fn a_cluster_fails_over_and_the_client_follows() {
    let cluster = RedisCluster::start(true).unwrap();
    let client = ready(&cluster.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    let before = cluster.node_of(slot()).unwrap().address();
    cluster.node_of(slot()).unwrap().server().kill().unwrap();
    eventually("another master", async || cluster.node_of(slot()).is_ok_and(|node| node.address() != before))
        .await;
    safe_after_a_failover(&client, &held).await;
}

/// While a slot moves, its keys are at the old node, the new one, or both; requests follow by ASK and MOVED.
#[tokio::test]
async fn a_slot_that_moves_takes_its_leases_along() {
    let cluster = RedisCluster::start(false).unwrap();
    let client = ready(&cluster.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    let from = cluster.node_of(slot()).unwrap();
    let to = cluster.nodes.iter().find(|node| node.address() != from.address()).unwrap();
    let (from_id, to_id) =
        (from.ask(&["CLUSTER", "MYID"]).unwrap().text(), to.ask(&["CLUSTER", "MYID"]).unwrap().text());
    let slot = slot().to_string();
    to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).unwrap();
    from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).unwrap();
    let keys = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).unwrap().text();
    for key in keys.lines() {
        let port = to.address().port().to_string();
        from.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).unwrap();
        // The operation's keys may be on both sides just now: it is certain that nothing was done.
        let answer = client.renew(vec![held.renewal()]).await.and_then(|mut answers| answers.remove(0));
        assert!(
            matches!(&answer, Ok(Renewed::Extended { .. }))
                || answer.as_ref().is_err_and(leasehold_core::Error::is_transient),
            "{answer:?}"
        );
    }
    // The new one first, then the old one, then the others: the order of the tools that move slots.
    let others =
        cluster.nodes.iter().filter(|node| ![from.address(), to.address()].contains(&node.address()));
    for node in [to, from].into_iter().chain(others) {
        let answer = node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).unwrap();
        assert_eq!(answer.text(), "OK");
    }
    // The new node is another master, and so another incarnation: what came along goes on, new grants pause.
    assert!(matches!(renew(&client, &held).await, Renewed::Extended { .. }));
    let ended = client.release(held.release()).await.unwrap();
    assert_eq!(ended, Released::Ended);
    assert_quarantined(&client).await;
}

#[tokio::test]
async fn names_with_braces_work_on_a_cluster() {
    let cluster = RedisCluster::start(false).unwrap();
    let client = ready(&cluster.url()).await;
    for name in ["{", "}", "{}", "a{b}c", "{faults:00}"] {
        let mut claim = claim(MAX_TTL);
        claim.resource = Resource::new(name).unwrap();
        let held = take(&client, &claim).await;
        assert!(matches!(renew(&client, &held).await, Renewed::Extended { .. }), "{name}");
    }
}

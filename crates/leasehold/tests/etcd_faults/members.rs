//! Members that die, stop and come back.

use std::time::Duration;

use leasehold::{Kind, Leases};
use leasehold_core::record::Renewed;
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Etcd, Passage, Proxy},
};

use super::world::{
    PATIENCE, again, busy, claim, extended, open, ready, renew, seconds, take, until_granted,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_kill_9_of_the_only_member_and_is_lengthened_at_most() {
    let etcd = Etcd::start(1).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(6));
    let sent = Stopwatch::start();
    let grant = take(&client, &held).await;
    etcd.kill(0).unwrap();
    let error = client.acquire(again(&held)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    etcd.restart(0).unwrap();
    assert_eq!(busy(&client, &again(&held)).await.holder.token, grant.token);
    extended(&client, &held, grant.token).await;
    let next = until_granted(&client, &again(&held)).await;
    assert!(sent.elapsed() >= grant.ttl.as_duration() && next.after_lapse && next.token > grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_keeps_its_lease_and_a_waiter_is_served_when_the_leader_dies() {
    let etcd = Etcd::start(3).unwrap();
    ready(&etcd).await;
    let url = format!("etcd://{}", etcd.hosts());
    let (holder, waiter) = (Leases::connect(&url).await.unwrap(), Leases::connect(&url).await.unwrap());
    let lease = holder.lease("r").ttl(Duration::from_secs(8)).acquire().await.unwrap();
    let first = lease.token();
    let waiting = tokio::spawn(async move {
        let lease = waiter.lease("r").ttl(Duration::from_secs(8)).wait(PATIENCE).acquire().await.unwrap();
        let token = lease.token();
        let _ended = lease.release().await.unwrap();
        token
    });
    // The one that both are connected to as well, wherever the leader is.
    for at in [etcd.leader().unwrap(), 0] {
        let before = lease.closes();
        etcd.kill(at).unwrap();
        let closes = lease.closes_after(before).await.expect("the lease is kept");
        assert!(closes != before);
        lease.check().unwrap();
        etcd.restart(at).unwrap();
    }
    let _ended = lease.release().await.unwrap();
    let second = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(second > first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_member_is_left_for_another() {
    let etcd = Etcd::start(3).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(20));
    let grant = take(&client, &held).await;
    etcd.pause(0).unwrap();
    let since = Stopwatch::start();
    while !matches!(renew(&client, &held, grant.token).await, Ok(Renewed::Extended { .. })) {
        assert!(since.elapsed() < grant.ttl.as_duration(), "it was not renewed in time");
    }
    until_granted(&client, &claim("other", seconds(20))).await;
    etcd.resume(0).unwrap();
    extended(&client, &held, grant.token).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_not_there_costs_no_more_than_a_try() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let silent = Proxy::start(etcd.address(0)).unwrap();
    silent.set_both(Passage::Stalled);
    let free = leasehold_testkit::server::free_port(0).unwrap();
    let client = open(&format!("127.0.0.1:{free},{},{}", silent.address(), etcd.hosts()), "").await.unwrap();
    take(&client, &claim("r", seconds(5))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_majority_takes_nothing_and_says_so() {
    let etcd = Etcd::start(3).unwrap();
    let client = ready(&etcd).await;
    let held = claim("r", seconds(30));
    let grant = take(&client, &held).await;
    etcd.kill(1).unwrap();
    etcd.kill(2).unwrap();
    let error = client.acquire(claim("other", seconds(5))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(renew(&client, &held, grant.token).await.unwrap_err().is_transient());
    etcd.restart(1).unwrap();
    until_granted(&client, &claim("other", seconds(5))).await;
    extended(&client, &held, grant.token).await;
}

//! The way to etcd: answers that are lost, streams that are cut, certificates.

use std::time::Duration;

use leasehold::{
    Kind, Leases,
    address::Address,
    coordinator::etcd::{Options, connect},
};
use leasehold_core::{
    Namespace,
    record::{Gone, Released, Renewed},
    request::{Claim, Preparation},
};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Cut, Direction, Etcd, Passage, Proxy, Setup},
};

use super::world::{
    GLANCE, PATIENCE, again, busy, claim, end, extended, open, ready, release, renew, revoke, seconds, take,
    woken,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lost_after_the_effect_is_unknown_and_the_claim_is_adopted() {
    let etcd = Etcd::start(1).unwrap();
    let direct = ready(&etcd).await;
    let cut = Cut::start(etcd.address(0)).unwrap();
    let lossy = open(&cut.address().to_string(), "").await.unwrap();
    let wanted = claim("r", seconds(10));
    let error = lossy.acquire(wanted.clone()).await.unwrap_err();
    assert_eq!((error.kind(), cut.cuts()), (Kind::Unknown, 1), "{error}");
    let holder = direct.inspect(wanted.resource.clone()).await.unwrap().record.unwrap();
    assert_eq!(holder.lease_id, wanted.lease_id, "it took effect");
    cut.set(false);
    let grant = take(&lossy, &wanted).await;
    assert!(grant.adopted && grant.token == holder.token);
    cut.set(true);
    let error = renew(&lossy, &wanted, grant.token).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    let error = lossy.release(release(&wanted, Some(grant.token))).await.unwrap_err();
    assert_eq!((error.kind(), cut.cuts()), (Kind::Unknown, 3), "{error}");
    cut.set(false);
    let answer = lossy.release(release(&wanted, Some(grant.token))).await.unwrap();
    assert_eq!(answer, Released::NotHeld(Gone::Released), "it had taken effect");
    assert!(take(&direct, &again(&wanted)).await.token > grant.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_whose_answer_was_lost_is_kept() {
    let etcd = Etcd::start(1).unwrap();
    let direct = ready(&etcd).await;
    let held = claim("r", seconds(30));
    take(&direct, &held).await;
    let cut = Cut::start(etcd.address(0)).unwrap();
    let lossy = open(&cut.address().to_string(), "").await.unwrap();
    let waiter = Claim { queue: true, ..again(&held) };
    assert_eq!(lossy.acquire(waiter.clone()).await.unwrap_err().kind(), Kind::Unknown);
    cut.set(false);
    assert_eq!(busy(&lossy, &waiter).await.position, Some(0));
    assert_eq!(direct.inspect(held.resource.clone()).await.unwrap().waiting, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keepalive_stream_is_opened_anew_after_a_cut() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = open(&proxy.address().to_string(), "").await.unwrap();
    let held = claim("r", seconds(20));
    let grant = take(&client, &held).await;
    for _ in 0..3 {
        extended(&client, &held, grant.token).await;
        proxy.cut();
        let since = Stopwatch::start();
        // The first after a cut may find the old connection.
        while renew(&client, &held, grant.token).await.is_err() {
            assert!(since.elapsed() < grant.ttl.as_duration(), "it was not renewed in time");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_behind_a_connection_that_stalls_one_way_keeps_its_lease() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let holder = Leases::connect(&format!("etcd://{}", proxy.address())).await.unwrap();
    let lease = holder.lease("r").ttl(Duration::from_secs(6)).acquire().await.unwrap();
    let before = lease.closes();
    // Nothing that is under way comes through; what is connected anew after it is free of that.
    proxy.set(Direction::ToClient, Passage::Lost);
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.set(Direction::ToClient, Passage::Open);
    assert!(lease.closes_after(before).await.is_some(), "the lease was lost: {:?}", lease.check());
    lease.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_survives_a_compaction_and_a_cut() {
    let etcd = Etcd::start(1).unwrap();
    let direct = ready(&etcd).await;
    let held = claim("r", seconds(30));
    let grant = take(&direct, &held).await;
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = open(&proxy.address().to_string(), "").await.unwrap();
    let waiter = Claim { queue: true, ..again(&held) };
    busy(&client, &waiter).await;
    // The waiter is cut off, and what happens meanwhile is compacted away.
    proxy.refuse(true);
    proxy.cut();
    end(&direct, &held, grant.token).await;
    for _ in 0..5 {
        etcd.ctl(&["put", "elsewhere", "x"]).unwrap();
    }
    let status = etcd.ctl(&["get", "elsewhere", "--write-out", "json"]).unwrap();
    let from = status.find("\"revision\":").unwrap() + 11;
    let revision: String = status[from..].chars().take_while(char::is_ascii_digit).collect();
    etcd.ctl(&["compact", &revision]).unwrap();
    proxy.refuse(false);
    woken(&client, waiter.lease_id).await;
    let next = take(&client, &waiter).await;
    assert!(next.token > grant.token);
    // The one that watches over the new grant is woken too, after another cut.
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.cut();
    revoke(&direct, &waiter, next.token).await;
    woken(&client, waiter.lease_id).await;
    let answer = renew(&client, &waiter, next.token).await;
    assert!(matches!(answer, Ok(Renewed::Gone(Gone::Revoked { .. }))), "got {answer:?}");
}

/// Whoever takes a connection and closes it at once is asked again and again, and not without a pause: neither for requests nor for
/// watches nor for keepalives.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_every_connection_is_not_besieged() {
    let etcd = Etcd::start(1).unwrap();
    drop(ready(&etcd).await);
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = open(&proxy.address().to_string(), "").await.unwrap();
    let held = claim("r", seconds(30));
    let grant = take(&client, &held).await;
    let waiter = Claim { queue: true, ..again(&held) };
    busy(&client, &waiter).await;
    proxy.refuse(true);
    proxy.cut();
    let (before, since) = (proxy.accepted(), Stopwatch::start());
    while since.elapsed() < Duration::from_secs(3) {
        let _fails = renew(&client, &held, grant.token).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (attempts, whole) = (proxy.accepted() - before, since.elapsed());
    assert!(attempts > 0, "nobody tries again");
    // We ask ten times a second; a loop without a pause makes thousands.
    let most = 100 * (whole.as_secs() + 1);
    assert!(attempts < most, "{attempts} connections in {whole:?}");
    proxy.refuse(false);
    let since = Stopwatch::start();
    while !matches!(renew(&client, &held, grant.token).await, Ok(Renewed::Extended { .. })) {
        assert!(since.elapsed() < PATIENCE, "the holder did not come back");
        tokio::time::sleep(GLANCE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_checked_and_used() {
    let etcd = Etcd::with(1, Setup { tls: true, ..Setup::default() }).unwrap();
    let address = |rest: &str| Address::parse("etcds", &format!("//{}{rest}", etcd.hosts())).unwrap();
    let file = |name: &str| etcd.certificates().join(name).display().to_string();
    let ca = format!("?ca={}", file("ca.pem"));
    let good = address(&format!("{ca}&cert={}&key={}", file("client.pem"), file("client.key")));
    let client = connect(Options::read(&good).unwrap(), Namespace::default()).await.unwrap();
    client.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    let held = claim("r", seconds(5));
    let grant = take(&client, &held).await;
    extended(&client, &held, grant.token).await;
    // Nobody vouches for it.
    let error = connect(Options::read(&address("")).unwrap(), Namespace::default()).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    // The member does not know who we are.
    let error = connect(Options::read(&address(&ca)).unwrap(), Namespace::default()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

//! Users, passwords, and tokens that etcd forgets.

use std::time::Duration;

use leasehold::{Kind, Leases};
use leasehold_core::request::{Claim, Preparation};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Etcd, Setup},
};

use super::world::{PATIENCE, again, busy, claim, extended, open, revoke, seconds, take, woken};

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_login_is_made_again_and_a_wrong_one_is_denied() {
    let etcd = Etcd::start(1).unwrap();
    etcd.enable_users("app", "secret", "leasehold/").unwrap();
    let root = ["--user", "root:secret"];
    let denied = open(&etcd.hosts(), "").await.unwrap_err();
    assert_eq!(denied.kind(), Kind::Denied, "{denied}");
    let denied = open(&format!("app:wrong@{}", etcd.hosts()), "").await.unwrap_err();
    assert_eq!(denied.kind(), Kind::Denied, "{denied}");
    let denied = open(&format!("app:secret@{}/elsewhere", etcd.hosts()), "").await.unwrap_err();
    assert_eq!(denied.kind(), Kind::Denied, "{denied}");
    let client = open(&format!("app:secret@{}", etcd.hosts()), "").await.unwrap();
    client.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    let held = claim("r", seconds(40));
    let grant = take(&client, &held).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Tokens live in the member's memory.
    etcd.kill(0).unwrap();
    etcd.restart_with(0, &root).unwrap();
    extended(&client, &held, grant.token).await;
    busy(&client, &Claim { queue: true, ..again(&held) }).await;
    take(&client, &claim("other", seconds(10))).await;
    // The watches have a login that works, too.
    revoke(&client, &held, grant.token).await;
    woken(&client, held.lease_id).await;
    etcd.ctl(&[&root[..], &["role", "revoke-permission", "writer", "leasehold/", "leasehold0"]].concat())
        .unwrap();
    let denied = client.acquire(claim("third", seconds(10))).await.unwrap_err();
    assert!(denied.kind() == Kind::Denied && denied.to_string().contains("permission"), "{denied}");
    // etcdctl reads the new password from its input, which is empty.
    etcd.ctl(&[&root[..], &["user", "passwd", "app", "--interactive=false"]].concat()).unwrap();
    let denied = client.acquire(claim("third", seconds(10))).await.unwrap_err();
    assert!(denied.kind() == Kind::Denied && denied.to_string().contains("password"), "{denied}");
}

/// A login's token that nobody uses for a while is forgotten by etcd. A holder that comes later than that logs in again, and its lease
/// is the same; so is one that a client keeps by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_ran_out_in_the_middle_of_a_hold_is_made_again() {
    const TOKENS: u64 = 3;
    let etcd = Etcd::with(1, Setup { token_ttl_s: 1, ..Setup::default() }).unwrap();
    etcd.enable_users("app", "secret", "leasehold/").unwrap();
    let hosts = format!("app:secret@{}", etcd.hosts());
    let client = open(&hosts, "").await.unwrap();
    client.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    let held = claim("r", seconds(60));
    let token = take(&client, &held).await.token;
    let keeper = Leases::connect(&format!("etcd://{hosts}")).await.unwrap();
    // Renewed every four seconds: each time with a token that has been idle for longer than it lasts.
    let kept = keeper.lease("kept").ttl(Duration::from_secs(12)).acquire().await.unwrap();
    let logins = etcd.calls(0, "Authenticate").unwrap();
    let since = Stopwatch::start();
    // Two clients.
    while etcd.calls(0, "Authenticate").unwrap() < logins + 2 * TOKENS {
        assert!(since.elapsed() < PATIENCE, "the tokens do not run out");
        tokio::time::sleep(Duration::from_secs(3)).await;
        extended(&client, &held, token).await;
        kept.check().unwrap();
    }
    let before = kept.closes();
    assert!(kept.closes_after(before).await.is_some(), "the lease was lost: {:?}", kept.check());
    let record = client.inspect(held.resource.clone()).await.unwrap().record.unwrap();
    assert_eq!((record.lease_id, record.token), (held.lease_id, token));
}

//! Strict mode: leases and data in one database, and the lease itself looked at in the committing transaction.

use std::time::Duration;

use leasehold::{
    Lease, Leases, Outcome,
    core::request::Revocation,
    fence::postgres::{PostgresFence, install},
};
use tokio_postgres::Client;

use super::Base;
use crate::table::word;

async fn base() -> (Base, Leases, PostgresFence) {
    let base = Base::new().await;
    let leases = Leases::connect(&base.url()).await.unwrap();
    let fresh = leasehold::core::request::Preparation { fresh: true, max_ttl: None };
    leases.prepare(fresh).await.unwrap();
    install(&base.url(), true, Vec::new()).await.unwrap();
    (base, leases, PostgresFence::default())
}

async fn write(client: &mut Client, fence: &PostgresFence, lease: &Lease) -> String {
    let tx = client.transaction().await.unwrap();
    let answer = fence.strict(&tx, &lease.pass()).await;
    let _ = tx.execute("UPDATE account SET balance = balance + 1", &[]).await;
    let _ = tx.commit().await;
    word(answer)
}

async fn balance(client: &Client) -> i64 {
    client.query_one("SELECT balance FROM account", &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_refuses_what_the_lease_table_does_not_know_as_held() {
    let (base, leases, fence) = base().await;
    let mut client = base.client().await;
    let lease = leases.lease("r").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    let id = lease.pass();
    assert_eq!(write(&mut client, &fence, &lease).await, "admitted");
    let revocation = Revocation {
        resource: id.resource.clone(),
        token: id.token,
        by: leasehold::Label::default(),
        reason: leasehold::Label::default(),
        now: false,
    };
    let _ = leases.revoke(revocation).await.unwrap();
    assert_eq!(
        write(&mut client, &fence, &lease).await,
        "not_held",
        "revoked, although it still keeps the resource busy"
    );
    let pass = lease.pass();
    let _ = lease.release().await.unwrap();
    let tx = client.transaction().await.unwrap();
    assert_eq!(word(fence.strict(&tx, &pass).await), "not_held", "released");
    drop(tx);
    let next = leases.lease("r").wait(Duration::from_secs(10)).acquire().await.unwrap();
    let tx = client.transaction().await.unwrap();
    assert_eq!(word(fence.strict(&tx, &pass).await), "stale", "another holds it");
    drop(tx);
    assert_eq!(write(&mut client, &fence, &next).await, "admitted");
    let tx = client.transaction().await.unwrap();
    assert_eq!(word(fence.strict(&tx, &crate::table::pass("never", 1, 1)).await), "no_such_resource");
    drop(tx);
    assert_eq!(balance(&client).await, 102);
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_refuses_a_lease_whose_time_is_over_although_nobody_took_it() {
    let (base, leases, fence) = base().await;
    let mut client = base.client().await;
    let lease = leases.lease("r").ttl(Duration::from_millis(300)).acquire().await.unwrap();
    let pass = lease.pass();
    assert_eq!(write(&mut client, &fence, &lease).await, "admitted");
    lease.forsake();
    let mut answer = String::new();
    for _ in 0..1_000 {
        let tx = client.transaction().await.unwrap();
        answer = word(fence.strict(&tx, &pass).await);
        if answer != "admitted" {
            break;
        }
        drop(tx);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(answer, "not_held");
}

/// Renewals pass an open strict transaction; the grant to a successor waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn strict_mode_lets_renewals_pass_and_makes_a_successor_wait() {
    let (base, leases, fence) = base().await;
    let (mut client, mut observer) = (base.client().await, base.client().await);
    let lease = leases.lease("r").ttl(Duration::from_millis(600)).acquire().await.unwrap();
    let pass = lease.pass();
    let tx = client.transaction().await.unwrap();
    assert_eq!(word(fence.strict(&tx, &pass).await), "admitted");
    // Held by renewals for longer than its TTL, with the transaction open.
    let renewals = async |client: &Client| -> i32 {
        client.query_one("SELECT seq FROM leasehold.slot WHERE resource = 'r'", &[]).await.unwrap().get(0)
    };
    let before = renewals(&observer).await;
    for _ in 0..1_000 {
        if renewals(&observer).await > before + 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(renewals(&observer).await > before + 3 && lease.check().is_ok());
    lease.forsake();
    let other = Leases::connect(&base.url()).await.unwrap();
    tx.execute("UPDATE account SET balance = 7", &[]).await.unwrap();
    // The old lease has expired, its transaction is open: a claim is not granted beside it.
    let early = other.lease("r").wait(Duration::from_secs(2)).acquire().await;
    assert!(early.is_err(), "{early:?}");
    tx.commit().await.unwrap();
    let next = loop {
        match other.lease("r").attempt().await {
            Ok(Outcome::Held(lease)) => break lease,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert!(next.token() > pass.token);
    assert_eq!(write(&mut observer, &fence, &next).await, "admitted");
    assert_eq!(balance(&observer).await, 8, "the successor sees what was committed");
}

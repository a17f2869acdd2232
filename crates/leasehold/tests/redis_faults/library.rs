//! A program's own guard on a server that is hurt.

use std::time::Duration;

use leasehold::{Leases, Outcome};
use leasehold_core::request::Preparation;
use leasehold_testkit::server::{Redis, RedisSetup};

use super::world::{PATIENCE, eventually};

const TTL: Duration = Duration::from_secs(6);

async fn program(server: &Redis) -> Leases {
    let leases = Leases::connect(&format!("{}?max_ttl=6s", server.url())).await.unwrap();
    let _made = leases.prepare(Preparation { fresh: true, max_ttl: None }).await;
    leases
}

#[tokio::test]
async fn a_lease_is_kept_across_a_restart_of_a_durable_server() {
    let server = RedisSetup::new().durable().start().unwrap();
    let leases = program(&server).await;
    let lease = leases.lease("r").ttl(TTL).acquire().await.unwrap();
    server.crash().unwrap();
    // Past the TTL: it has been renewed on the new process.
    tokio::time::sleep(TTL + Duration::from_secs(1)).await;
    assert_eq!(lease.check(), Ok(()));
    let ended = lease.release().await.unwrap();
    drop(ended);
}

#[tokio::test]
async fn a_lease_is_lost_cleanly_when_the_server_forgets_it() {
    let server = RedisSetup::new().start().unwrap();
    let leases = program(&server).await;
    let lease = leases.lease("r").ttl(TTL).acquire().await.unwrap();
    let token = lease.token();
    server.ask(&["FLUSHALL"]).unwrap();
    let loss = tokio::time::timeout(PATIENCE, lease.lost()).await;
    assert!(loss.is_ok(), "it is told");
    assert!(lease.check().is_err());
    let next = tokio::time::timeout(PATIENCE, leases.lease("r").ttl(TTL).wait(PATIENCE).acquire())
        .await
        .unwrap()
        .unwrap();
    assert!(next.token() > token);
}

#[tokio::test]
async fn a_waiter_is_served_after_a_release_and_after_a_crash_of_the_server() {
    let server = RedisSetup::new().durable().start().unwrap();
    let (one, two) = (program(&server).await, program(&server).await);
    let held = one.lease("r").ttl(TTL).acquire().await.unwrap();
    let waiter = tokio::spawn(async move { two.lease("r").ttl(TTL).wait_forever().acquire().await.unwrap() });
    let resource = leasehold::Resource::new("r").unwrap();
    eventually("a waiter", async || one.inspect(&resource).await.is_ok_and(|seen| seen.waiting == 1)).await;
    server.crash().unwrap();
    let token = held.token();
    eventually("the release", async || one.inspect(&resource).await.is_ok()).await;
    let _ended = held.release().await;
    let next = tokio::time::timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(next.token() > token);
}

#[tokio::test]
async fn a_revocation_reaches_the_holder_at_once() {
    let server = RedisSetup::new().start().unwrap();
    let (one, operator) = (program(&server).await, program(&server).await);
    let lease = one.lease("r").ttl(TTL).acquire().await.unwrap();
    let revocation = leasehold_core::request::Revocation {
        resource: lease.resource().clone(),
        token: lease.token(),
        by: leasehold::Label::from_lossy("ann"),
        reason: leasehold::Label::from_lossy("maintenance"),
        now: false,
    };
    let _revoked = operator.revoke(revocation).await.unwrap();
    let loss = tokio::time::timeout(TTL / 4, lease.lost()).await;
    assert!(loss.is_ok(), "told at once, not by a renewal a third of the TTL later");
    let _ended = lease.release().await;
}

#[tokio::test]
async fn a_claim_on_a_new_namespace_is_told_to_wait() {
    let server = RedisSetup::new().start().unwrap();
    let leases = Leases::connect(&format!("{}?max_ttl=6s", server.url())).await.unwrap();
    let outcome = leases.lease("r").ttl(TTL).attempt().await.unwrap();
    assert!(matches!(outcome, Outcome::Refused(leasehold::Refusal::Quarantined { .. })), "{outcome:?}");
    // Nothing was granted yet: the operator may still vouch for it.
    let prepared = leases.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    assert_eq!(prepared.quarantine, None);
    let _lease = leases.lease("r").ttl(TTL).acquire().await.unwrap();
}

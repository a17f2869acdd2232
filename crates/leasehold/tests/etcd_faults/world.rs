//! What the tests share.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Error,
    address::Address,
    coordinator::etcd::{Options, connect},
};
use leasehold_core::{
    Coordinator, HolderId, Label, LeaseId, Namespace, Resource, Token, Ttl,
    record::{Acquired, Busy, Grant, Released, Renewed, Wake},
    request::{Claim, Preparation, Release, Renewal, Revocation},
};
use leasehold_testkit::{clock::Stopwatch, random, server::Etcd};

/// Far beyond what anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const GLANCE: Duration = Duration::from_millis(20);

pub(crate) type Client = Arc<dyn Coordinator>;

pub(crate) async fn open(hosts: &str, rest: &str) -> Result<Client, Error> {
    let address = Address::parse("etcd", &format!("//{hosts}{rest}"))?;
    connect(Options::read(&address)?, Namespace::default()).await
}

pub(crate) fn options(etcd: &Etcd) -> Options {
    Options::read(&Address::parse("etcd", &format!("//{}", etcd.hosts())).unwrap()).unwrap()
}

/// A client of a namespace that grants.
pub(crate) async fn ready(etcd: &Etcd) -> Client {
    let client = open(&etcd.hosts(), "").await.unwrap();
    let _ = client.prepare(Preparation { fresh: true, max_ttl: None }).await;
    client
}

pub(crate) fn seconds(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

pub(crate) fn claim(resource: &str, ttl: Ttl) -> Claim {
    Claim {
        resource: Resource::new(resource).unwrap(),
        lease_id: random::lease_id(),
        holder_id: HolderId::from_bytes([7; 16]),
        label: Label::from_lossy("host-1:4711:job"),
        ttl,
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    }
}

pub(crate) fn again(claim: &Claim) -> Claim {
    Claim { lease_id: random::lease_id(), ..claim.clone() }
}

pub(crate) async fn take(client: &Client, claim: &Claim) -> Grant {
    match client.acquire(claim.clone()).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("it should be granted: got {other:?}"),
    }
}

pub(crate) async fn busy(client: &Client, claim: &Claim) -> Busy {
    match client.acquire(claim.clone()).await.unwrap() {
        Acquired::Busy(busy) => busy,
        other => panic!("it should be busy: got {other:?}"),
    }
}

/// Asks until it is granted, whatever fails in between.
pub(crate) async fn until_granted(client: &Client, claim: &Claim) -> Grant {
    let since = Stopwatch::start();
    loop {
        let answer = client.acquire(claim.clone()).await;
        if let Ok(Acquired::Granted(grant)) = answer {
            return grant;
        }
        assert!(since.elapsed() < PATIENCE, "not granted within {PATIENCE:?}: {answer:?}");
        tokio::time::sleep(GLANCE).await;
    }
}

pub(crate) fn renewal(claim: &Claim, token: Token) -> Renewal {
    let Claim { resource, lease_id, ttl, lock_delay, .. } = claim.clone();
    Renewal { resource, lease_id, token, ttl, lock_delay }
}

pub(crate) async fn renew(client: &Client, claim: &Claim, token: Token) -> Result<Renewed, Error> {
    client.renew(vec![renewal(claim, token)]).await.and_then(|mut answers| answers.pop().unwrap())
}

pub(crate) async fn extended(client: &Client, claim: &Claim, token: Token) {
    let answer = renew(client, claim, token).await;
    assert!(matches!(answer, Ok(Renewed::Extended { .. })), "it should be extended: got {answer:?}");
}

pub(crate) fn release(claim: &Claim, token: Option<Token>) -> Release {
    Release { resource: claim.resource.clone(), lease_id: claim.lease_id, token, succeeded: false }
}

pub(crate) fn revocation(claim: &Claim, token: Token) -> Revocation {
    let (by, reason) = (Label::from_lossy("operator"), Label::from_lossy("moving"));
    Revocation { resource: claim.resource.clone(), token, by, reason, now: false }
}

pub(crate) async fn end(client: &Client, claim: &Claim, token: Token) {
    assert_eq!(client.release(release(claim, Some(token))).await.unwrap(), Released::Ended);
}

pub(crate) async fn revoke(client: &Client, claim: &Claim, token: Token) {
    let answer = client.revoke(revocation(claim, token)).await.unwrap();
    assert!(matches!(answer, leasehold_core::record::Revoked::Ended { .. }), "got {answer:?}");
}

/// Waits for a wake of this lease id.
pub(crate) async fn woken(client: &Client, lease_id: LeaseId) {
    let wait = async { while client.next_wake().await != Wake::Lease(lease_id) {} };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "no wake came");
}

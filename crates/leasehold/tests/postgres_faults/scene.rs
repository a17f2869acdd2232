//! Short ways to say what the tests say often.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use leasehold::{
    address::Address,
    coordinator::postgres::{self, Options},
};
use leasehold_core::{
    Coordinator, Error, HolderId, Label, LeaseId, Namespace, Resource, Token, Ttl,
    record::{Acquired, Grant, Renewed},
    request::{Claim, Preparation, Release, Renewal},
};
use leasehold_testkit::{clock::Stopwatch, random, server::Postgres};

/// Far beyond anything but a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A server for the tests that only look at it from outside, and a database of it for each.
pub(crate) fn shared() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(|| Postgres::start().unwrap())
}

pub(crate) async fn try_connect(url: &str) -> Result<Arc<dyn Coordinator>, Error> {
    let (scheme, rest) = url.split_once(':').unwrap();
    postgres::connect(Options::read(&Address::parse(scheme, rest)?)?, Namespace::default()).await
}

pub(crate) async fn connect(url: &str) -> Arc<dyn Coordinator> {
    try_connect(url).await.unwrap()
}

/// A client of a database whose namespace grants at once.
pub(crate) async fn ready(url: &str) -> Arc<dyn Coordinator> {
    let client = connect(url).await;
    let _ = client.prepare(Preparation { fresh: true, max_ttl: None }).await;
    client
}

pub(crate) fn url(address: SocketAddr, database: &str) -> String {
    Postgres::url_at(address, database)
}

pub(crate) fn ms(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

pub(crate) fn claim(resource: &str) -> Claim {
    Claim {
        resource: Resource::new(resource).unwrap(),
        lease_id: random::lease_id(),
        holder_id: HolderId::from_bytes([7; 16]),
        label: Label::from_lossy("test"),
        ttl: ms(30_000),
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    }
}

pub(crate) fn again(claim: &Claim) -> Claim {
    Claim { lease_id: random::lease_id(), ..claim.clone() }
}

pub(crate) fn renewal(claim: &Claim, token: Token) -> Renewal {
    let Claim { resource, lease_id, ttl, lock_delay, .. } = claim.clone();
    Renewal { resource, lease_id, token, ttl, lock_delay }
}

pub(crate) fn release(claim: &Claim, token: Option<Token>) -> Release {
    Release { resource: claim.resource.clone(), lease_id: claim.lease_id, token, succeeded: false }
}

pub(crate) async fn granted(client: &Arc<dyn Coordinator>, claim: &Claim) -> Grant {
    match client.acquire(claim.clone()).await.unwrap() {
        Acquired::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn holder(client: &Arc<dyn Coordinator>, claim: &Claim) -> Option<LeaseId> {
    client.inspect(claim.resource.clone()).await.unwrap().record.map(|record| record.lease_id)
}

pub(crate) async fn renewed(
    client: &Arc<dyn Coordinator>,
    claim: &Claim,
    token: Token,
) -> Result<Renewed, Error> {
    client.renew(vec![renewal(claim, token)]).await?.remove(0)
}

/// Asks again and again until the answer is of the kind that is waited for.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let since = Stopwatch::start();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asks until it is granted, whatever goes wrong meanwhile.
pub(crate) async fn until_granted(client: &Arc<dyn Coordinator>, claim: &Claim) -> Grant {
    until("the grant", async || match client.acquire(claim.clone()).await {
        Ok(Acquired::Granted(grant)) => Some(grant),
        _ => None,
    })
    .await
}

/// Asks until a grant is renewed, whatever goes wrong meanwhile.
pub(crate) async fn until_renewed(client: &Arc<dyn Coordinator>, claim: &Claim, token: Token) {
    let answer = until("a renewal", async || renewed(client, claim, token).await.ok()).await;
    assert!(matches!(answer, Renewed::Extended { .. }), "{answer:?}");
}

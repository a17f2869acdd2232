//! What the tests share.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use leasehold::{
    address::Address,
    coordinator::redlock::{Options, connect},
};
use leasehold_core::{
    Coordinator, Error, Label, Namespace, Resource, Token, Ttl,
    record::{Acquired, Grant, Inspection, Renewed},
    request::{Claim, Preparation, Release, Renewal},
};
use leasehold_testkit::{
    clock::Stopwatch,
    random,
    server::{Redis, RedisSetup, Reply},
};

/// The longest TTL of the tests' namespace, and so the length of its quarantine.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(4);
/// How long something that must come may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
const GLANCE: Duration = Duration::from_millis(10);

pub(crate) type Client = Arc<dyn Coordinator>;

/// The key of the resource's record on a node.
pub(crate) const RECORD: &str = "lh:{faults}:r:r";

pub(crate) fn namespace() -> Namespace {
    Namespace::new("faults").unwrap()
}

/// So many independent servers.
pub(crate) fn servers(count: usize, setup: &RedisSetup) -> Vec<Redis> {
    (0..count).map(|_| setup.clone().start().unwrap()).collect()
}

pub(crate) fn url(addresses: impl IntoIterator<Item = SocketAddr>) -> String {
    let hosts: Vec<String> = addresses.into_iter().map(|address| address.to_string()).collect();
    format!("redlock://{}?max_ttl={}ms", hosts.join(","), MAX_TTL.as_millis())
}

pub(crate) fn url_of(servers: &[Redis]) -> String {
    url(servers.iter().map(Redis::address))
}

pub(crate) async fn open(url: &str) -> Result<Client, Error> {
    let (scheme, rest) = url.split_once(':').unwrap();
    connect(Options::read(&Address::parse(scheme, rest)?)?, namespace()).await
}

/// Connects to a namespace that is ready to grant.
pub(crate) async fn ready(url: &str) -> Client {
    let client = open(url).await.unwrap();
    let since = Stopwatch::start();
    loop {
        match client.prepare(Preparation { fresh: true, max_ttl: None }).await {
            Ok(prepared) => {
                assert_eq!(prepared.quarantine, None);
                return client;
            }
            // All of them have to be there.
            Err(error) => assert!(error.is_transient() && since.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(GLANCE).await;
    }
}

pub(crate) fn claim(ttl: Duration) -> Claim {
    Claim {
        resource: Resource::new("r").unwrap(),
        lease_id: random::lease_id(),
        holder_id: random::holder_id(),
        label: Label::from_lossy("host-1:4711:test"),
        ttl: Ttl::new(ttl).unwrap(),
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    }
}

/// A grant, and when it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) claim: Claim,
    pub(crate) token: Token,
    pub(crate) sent: Stopwatch,
}

impl Held {
    pub(crate) fn renewal(&self) -> Renewal {
        Renewal {
            resource: self.claim.resource.clone(),
            lease_id: self.claim.lease_id,
            token: self.token,
            ttl: self.claim.ttl,
            lock_delay: Duration::ZERO,
        }
    }

    pub(crate) fn release(&self) -> Release {
        Release { token: Some(self.token), ..take_back(&self.claim) }
    }
}

/// A release by a claimant who never learnt the token.
pub(crate) fn take_back(claim: &Claim) -> Release {
    Release { resource: claim.resource.clone(), lease_id: claim.lease_id, token: None, succeeded: false }
}

/// The answer to a claim that must be granted.
pub(crate) fn granted(answer: Acquired) -> Grant {
    match answer {
        Acquired::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn take(client: &Client, claim: &Claim) -> Held {
    let sent = Stopwatch::start();
    let grant = granted(client.acquire(claim.clone()).await.unwrap());
    Held { claim: claim.clone(), token: grant.token, sent }
}

/// Claims again and again until it is granted. Errors that may pass are passed over.
pub(crate) async fn until_granted(client: &Client, claim: &Claim) -> Held {
    let since = Stopwatch::start();
    let mut last = None;
    while since.elapsed() < PATIENCE {
        let sent = Stopwatch::start();
        match client.acquire(claim.clone()).await {
            Ok(Acquired::Granted(grant)) => return Held { claim: claim.clone(), token: grant.token, sent },
            Err(error) if !error.is_transient() => panic!("{error}"),
            other => last = Some(other),
        }
        tokio::time::sleep(GLANCE).await;
    }
    panic!("not granted within {PATIENCE:?}: {last:?}");
}

pub(crate) async fn renew(client: &Client, held: &Held) -> Result<Renewed, Error> {
    client.renew(vec![held.renewal()]).await.unwrap().remove(0)
}

/// Renews again and again until it is extended. Errors that may pass are passed over.
pub(crate) async fn until_extended(client: &Client, held: &Held) {
    eventually("a renewal", async || matches!(renew(client, held).await, Ok(Renewed::Extended { .. }))).await;
}

pub(crate) async fn look(client: &Client) -> Inspection {
    client.inspect(Resource::new("r").unwrap()).await.unwrap()
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Stopwatch::start();
    while !holds().await {
        assert!(since.elapsed() < PATIENCE, "{what} did not come about within {PATIENCE:?}");
        tokio::time::sleep(GLANCE).await;
    }
}

/// True when this server has a record of the resource that names this lease.
pub(crate) fn has(server: &Redis, held: &Held) -> bool {
    let Ok(Reply::Bytes(record)) = server.ask(&["GET", RECORD]) else { return false };
    // The grant's lease id stands first, behind the head, the version and its own length.
    record
        .get(5..)
        .is_some_and(|rest| rest.windows(16).take(2).any(|part| part == held.claim.lease_id.as_bytes()))
}

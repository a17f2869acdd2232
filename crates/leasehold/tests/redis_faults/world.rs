//! What the tests share.

use std::{sync::Arc, time::Duration};

use leasehold::{
    address::Address,
    coordinator::redis::{Options, connect},
};
use leasehold_core::{
    Coordinator, Error, Label, Namespace, Resource, Token, Ttl,
    record::{Acquired, Grant, Renewed},
    request::{Claim, Preparation, Release, Renewal},
};
use leasehold_testkit::{clock::Stopwatch, random};

/// The longest TTL of the tests' namespace, and so the length of its quarantine.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(2);
/// How long something that must come may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(10);

pub(crate) type Client = Arc<dyn Coordinator>;

pub(crate) fn namespace() -> Namespace {
    Namespace::new("faults").unwrap()
}

/// The key of the namespace's own record.
pub(crate) const META: &str = "lh:{faults}:m";
/// The key of the resource's record.
pub(crate) const RECORD: &str = "lh:{faults}:r:r";

/// Connects, with the namespace's bound in the URL.
pub(crate) async fn open(url: &str) -> Result<Client, Error> {
    let sign = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{sign}max_ttl={}ms", MAX_TTL.as_millis());
    let (scheme, rest) = url.split_once(':').unwrap();
    connect(Options::read(&Address::parse(scheme, rest)?)?, namespace()).await
}

/// Connects to a namespace that is ready to grant.
pub(crate) async fn ready(url: &str) -> Client {
    let client = open(url).await.unwrap();
    let prepared = client.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    assert_eq!(prepared.quarantine, None);
    client
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
        Release {
            resource: self.claim.resource.clone(),
            lease_id: self.claim.lease_id,
            token: Some(self.token),
            succeeded: false,
        }
    }
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

/// Claims again and again until it is granted. Errors that may pass are passed over; a claim that was granted unnoticed, and is over
/// by the time that it is asked about, begins afresh.
pub(crate) async fn until_granted(client: &Client, claim: &Claim) -> Held {
    let since = Stopwatch::start();
    let (mut claim, mut last) = (claim.clone(), None);
    while since.elapsed() < PATIENCE {
        let sent = Stopwatch::start();
        match client.acquire(claim.clone()).await {
            Ok(Acquired::Granted(grant)) => return Held { claim, token: grant.token, sent },
            Ok(Acquired::Spent(_)) => claim.lease_id = random::lease_id(),
            Err(error) if !error.is_transient() => panic!("{error}"),
            other => last = Some(other),
        }
        tokio::time::sleep(GLANCE).await;
    }
    panic!("not granted within {PATIENCE:?}: {last:?}");
}

/// What becomes of a renewal, once the server can be asked.
pub(crate) async fn renew(client: &Client, held: &Held) -> Renewed {
    let since = Stopwatch::start();
    loop {
        let answer = client.renew(vec![held.renewal()]).await.and_then(|mut answers| answers.remove(0));
        match answer {
            Ok(answer) => return answer,
            Err(error) if since.elapsed() > PATIENCE || !error.is_transient() => panic!("{error}"),
            Err(_) => tokio::time::sleep(GLANCE).await,
        }
    }
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Stopwatch::start();
    while !holds().await {
        assert!(since.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        tokio::time::sleep(GLANCE).await;
    }
}

/// Waits until a quarantine is answered, which must come before any grant.
pub(crate) async fn assert_quarantined(client: &Client) {
    eventually("a clear answer", async || match client.acquire(claim(MAX_TTL)).await {
        Ok(Acquired::Quarantined { remaining, .. }) => {
            assert!(remaining <= MAX_TTL, "{remaining:?}");
            true
        }
        Err(error) if error.is_transient() => false,
        other => panic!("not quarantined: {other:?}"),
    })
    .await;
}

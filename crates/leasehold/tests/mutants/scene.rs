//! What the histories share: clients of one namespace on a real server, and what they write down.

use std::{future::Future, sync::Arc, time::Duration};

use leasehold::{
    address::Address,
    clock::{Clock as _, SystemClock},
    coordinator::redis::{self, Options},
};
use leasehold_core::{
    Coordinator, Label, LeaseId, Namespace, Resource, Ttl,
    record::{Acquired, Grant},
    request::{Claim, Preparation, Renewal},
    window::Reading,
};
use leasehold_testkit::{
    check::{Event, Report, What},
    clock::Stopwatch,
    random,
};

pub(crate) type Client = Arc<dyn Coordinator>;

/// How long something that must come may take.
const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(5);

pub(crate) async fn client(url: &str, namespace: &Namespace) -> Client {
    let (scheme, rest) = url.split_once(':').unwrap();
    let options = Options::read(&Address::parse(scheme, rest).unwrap()).unwrap();
    let client = redis::connect(options, namespace.clone()).await.unwrap();
    // Refused when another client was here before.
    let _ = client.prepare(Preparation { fresh: true, max_ttl: None }).await;
    client
}

/// Lets the server get to know the client's scripts: an answer that is held up later is then that to a request, and not that
/// it should be put differently.
pub(crate) async fn introduce(client: &Client) {
    let claim = Claim { resource: Resource::new("another").unwrap(), ..claim(Duration::from_secs(30)) };
    let (grant, _) = take(client, &claim).await;
    let renewal = Renewal {
        resource: claim.resource,
        lease_id: claim.lease_id,
        token: grant.token,
        ttl: claim.ttl,
        lock_delay: Duration::ZERO,
    };
    assert!(client.renew(vec![renewal]).await.unwrap().remove(0).is_ok());
}

pub(crate) fn resource() -> Resource {
    Resource::new("account").unwrap()
}

pub(crate) fn claim(ttl: Duration) -> Claim {
    Claim {
        resource: resource(),
        lease_id: random::lease_id(),
        holder_id: random::holder_id(),
        label: Label::default(),
        ttl: Ttl::new(ttl).unwrap(),
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    }
}

/// Looks again and again until there is something to see.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let since = Stopwatch::start();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(since.elapsed() < PATIENCE, "{what} did not come");
        tokio::time::sleep(GLANCE).await;
    }
}

/// Asks until it is granted; and when the request that was granted was sent.
pub(crate) async fn take(client: &Client, claim: &Claim) -> (Grant, Reading) {
    until("a grant", || async {
        let sent = SystemClock.read();
        match client.acquire(claim.clone()).await.unwrap() {
            Acquired::Granted(grant) => Some((grant, sent)),
            _ => None,
        }
    })
    .await
}

/// An event of this moment.
pub(crate) fn note(events: &mut Vec<Event>, who: &str, lease_id: LeaseId, what: What) {
    events.push(Event::now(who, resource().as_str(), lease_id, what));
}

/// The right way shows nothing, and the wrong way breaks this.
pub(crate) fn caught(right: &Report, wrong: &Report, invariants: &[&str]) -> Vec<String> {
    assert!(right.is_clean() && right.judged.events > 0, "the right way:\n{right}");
    let broken = wrong.broken();
    for invariant in invariants {
        assert!(broken.iter().any(|name| name.starts_with(invariant)), "{invariant} was not found:\n{wrong}");
    }
    broken.into_iter().map(str::to_owned).collect()
}

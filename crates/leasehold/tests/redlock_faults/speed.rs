//! What a stalled node costs.

use std::time::Duration;

use leasehold_core::{
    Resource,
    record::{Acquired, Released},
};
use leasehold_testkit::{clock::Stopwatch, server::RedisSetup};

use super::world::{Client, Held, MAX_TTL, claim, ready, servers, url_of};

const SPAN: Duration = Duration::from_secs(3);

/// Acquires and releases for a while; how often.
async fn pairs(client: &Client, name: &str) -> u32 {
    let mut wanted = claim(MAX_TTL);
    wanted.resource = Resource::new(name).unwrap();
    let (since, mut pairs) = (Stopwatch::start(), 0);
    while since.elapsed() < SPAN {
        wanted.lease_id = leasehold_testkit::random::lease_id();
        let sent = Stopwatch::start();
        let Acquired::Granted(grant) = client.acquire(wanted.clone()).await.unwrap() else { continue };
        let held = Held { claim: wanted.clone(), token: grant.token, sent };
        assert_eq!(client.release(held.release()).await.unwrap(), Released::Ended);
        pairs += 1;
    }
    pairs
}

#[tokio::test]
async fn one_stalled_node_of_five_slows_nothing_down() {
    let nodes = servers(5, &RedisSetup::new());
    let client = ready(&url_of(&nodes)).await;
    pairs(&client, "warm").await;
    let healthy = pairs(&client, "healthy").await;
    nodes[2].server().pause().unwrap();
    // The first moments, when the connection still seems to stand, and those in which it is given up.
    let (first, then, last) =
        (pairs(&client, "first").await, pairs(&client, "then").await, pairs(&client, "last").await);
    nodes[2].server().resume().unwrap();
    let after = pairs(&client, "after").await;
    // Several times slower machines than this one has been are allowed for: waiting for the node would cost a hundredfold.
    for stalled in [first, then, last, after] {
        assert!(f64::from(stalled) >= 0.3 * f64::from(healthy), "{stalled} pairs instead of {healthy}");
    }
}

//! A server that does not know `HELLO`, as before version 6 or where an operator has taken it away: everything goes on in RESP2.

use std::time::Duration;

use leasehold_core::record::{Acquired, Renewed, Wake};
use leasehold_testkit::server::{Redis, RedisSetup};

use super::world::{MAX_TTL, PATIENCE, claim, ready, renew, take, until_granted};

/// The protocols that the clients of a server speak, as it sees them.
fn spoken(server: &Redis) -> Vec<String> {
    let list = server.ask(&["CLIENT", "LIST"]).unwrap().text();
    let words = list.split_whitespace().filter_map(|word| word.strip_prefix("resp="));
    words.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_server_without_hello_grants_keeps_and_wakes() {
    let server = RedisSetup::new().with("rename-command", "HELLO GREETINGS").start().unwrap();
    assert!(server.ask(&["HELLO", "3"]).is_err(), "the server knows no HELLO");
    let (one, other) = (ready(&server.url()).await, super::world::open(&server.url()).await.unwrap());
    let held = take(&one, &claim(MAX_TTL)).await;
    let mut waiter = claim(MAX_TTL);
    waiter.queue = true;
    let answer = other.acquire(waiter.clone()).await.unwrap();
    assert!(matches!(answer, Acquired::Busy(_)), "{answer:?}");
    assert!(other.profile().capabilities.wakes);
    assert!(matches!(renew(&one, &held).await, Renewed::Extended { .. }));
    assert!(spoken(&server).iter().all(|protocol| protocol == "2"), "{:?}", spoken(&server));

    // The subscription may be made a moment after the claim: then everybody is told to look, and asks again.
    let _ended = one.release(held.release()).await.unwrap();
    let woken = tokio::time::timeout(PATIENCE, async {
        while !matches!(other.next_wake().await, Wake::All | Wake::Lease(_)) {}
    });
    woken.await.expect("a wake");
    let next = until_granted(&other, &waiter).await;
    assert!(next.token > held.token);
}

/// With RESP3 the same server is spoken to in that: the test above sees a difference.
#[tokio::test]
async fn a_server_with_hello_is_spoken_to_in_resp3() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    take(&client, &claim(Duration::from_secs(1))).await;
    assert!(spoken(&server).iter().any(|protocol| protocol == "3"), "{:?}", spoken(&server));
}

//! A server whose wall clock is stepped.

use std::time::Duration;

use leasehold_core::record::{Acquired, Gone, Renewed};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Redis, RedisSetup},
};

use super::world::{Client, MAX_TTL, claim, ready, renew, take, until_granted};

const HOUR: Duration = Duration::from_secs(3_600);

async fn with_clock() -> (Redis, Client) {
    let server = RedisSetup::new().with_clock().start().unwrap();
    let client = ready(&server.url()).await;
    (server, client)
}

/// What assumption A2 excludes: leases end at once, and it shows. Tokens rise all the same.
#[tokio::test]
async fn a_clock_set_forward_ends_leases_early_and_tokens_still_rise() {
    let (server, client) = with_clock().await;
    let held = take(&client, &claim(MAX_TTL)).await;
    server.clock().forward(HOUR).unwrap();
    assert_eq!(renew(&client, &held).await, Renewed::Gone(Gone::Expired), "the holder learns");
    let next = take(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
    server.clock().back(HOUR * 2).unwrap();
    let _ended = client.release(next.release()).await.unwrap();
    let last = take(&client, &claim(MAX_TTL)).await;
    assert!(last.token > next.token, "a clock set back makes no token go back");
}

/// The holder goes on as before; when it dies, the resource is free after its TTL, not after an hour.
#[tokio::test]
async fn a_clock_set_back_locks_nothing_for_ever() {
    let (server, client) = with_clock().await;
    let held = take(&client, &claim(MAX_TTL)).await;
    server.clock().back(HOUR).unwrap();
    assert!(matches!(renew(&client, &held).await, Renewed::Extended { .. }));
    let answer = client.acquire(claim(MAX_TTL)).await.unwrap();
    let Acquired::Busy(busy) = answer else { panic!("a second grant: {answer:?}") };
    assert!(busy.holder.remaining <= MAX_TTL, "{:?}", busy.holder.remaining);
    let _ended = client.release(held.release()).await.unwrap();

    // Now nobody renews: the clock goes back under a holder that is dead.
    let dead = take(&client, &claim(MAX_TTL)).await;
    server.clock().back(HOUR).unwrap();
    let begun = Stopwatch::start();
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(dead.sent.elapsed() >= MAX_TTL, "granted inside the window: {:?}", dead.sent.elapsed());
    assert!(begun.elapsed() < MAX_TTL * 5, "locked for {:?}", begun.elapsed());
    assert!(next.token > dead.token);
}

/// A quarantine and a queue must not last for an hour either.
#[tokio::test]
async fn a_clock_set_back_prolongs_neither_a_quarantine_nor_a_queue() {
    let (server, client) = with_clock().await;
    let held = take(&client, &claim(MAX_TTL)).await;
    let mut dead = claim(MAX_TTL);
    dead.queue = true;
    let answer = client.acquire(dead.clone()).await.unwrap();
    assert!(matches!(answer, Acquired::Busy(_)), "{answer:?}");
    let _ended = client.release(held.release()).await.unwrap();
    server.clock().back(HOUR).unwrap();
    let mut alive = claim(MAX_TTL);
    alive.queue = true;
    let begun = Stopwatch::start();
    let held = until_granted(&client, &alive).await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "a silent waiter in front held it for {:?}",
        begun.elapsed()
    );
    let _ended = client.release(held.release()).await.unwrap();

    server.ask(&["DEL", super::world::META]).unwrap();
    let answer = client.acquire(claim(MAX_TTL)).await.unwrap();
    assert!(matches!(answer, Acquired::Quarantined { .. }), "{answer:?}");
    server.clock().back(HOUR).unwrap();
    let begun = Stopwatch::start();
    let mut patient = claim(MAX_TTL);
    patient.queue = true;
    until_granted(&client, &patient).await;
    assert!(begun.elapsed() < MAX_TTL * 5, "the quarantine lasted {:?}", begun.elapsed());
}

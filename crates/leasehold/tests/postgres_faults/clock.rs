//! A server whose wall clock is stepped by an hour.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Coordinator,
    record::{Acquired, Gone, Renewed},
    request::Claim,
};
use leasehold_testkit::{clock::Stopwatch, server::Postgres};

use super::scene::{again, claim, connect, granted, ms, ready, release, renewed, until_granted};

const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than any step of a test takes, so that only a clock can end it.
const LONG: u64 = 50_000;
const SHORT: u64 = 1_500;

type Step = fn(&Postgres);

fn of(ttl_ms: u64, resource: &str) -> Claim {
    Claim { ttl: ms(ttl_ms), ..claim(resource) }
}

/// Two clients of a server with a clock of its own.
async fn two(settings: &str) -> (Postgres, Arc<dyn Coordinator>, Arc<dyn Coordinator>) {
    let server = Postgres::start_with_clock().unwrap();
    let url = format!("{}{settings}", server.url("postgres"));
    let (one, other) = (ready(&url).await, connect(&url).await);
    (server, one, other)
}

/// How far the server's clock is ahead of this machine's, in whole minutes.
fn ahead_min(server: &Postgres) -> i64 {
    let here = i64::try_from(leasehold::clock::unix_us() / 1_000_000).unwrap();
    let sql = "SELECT extract(epoch FROM clock_timestamp())::bigint";
    (server.psql("postgres", sql).unwrap().parse::<i64>().unwrap() - here) / 60
}

/// What assumption A2 excludes: the lease ends at once, and it shows. Tokens rise all the same.
#[tokio::test]
async fn a_clock_set_forward_ends_leases_early_and_tokens_still_rise() {
    let (server, client, other) = two("").await;
    let (taken, kept) = (of(LONG, "taken"), of(LONG, "kept"));
    let token = granted(&client, &taken).await.token;
    let kept_token = granted(&client, &kept).await.token;
    server.clock().forward(HOUR).unwrap();
    assert!(ahead_min(&server) >= 59, "the step shows in the server");
    let next_claim = again(&taken);
    let next = granted(&other, &next_claim).await;
    assert!(next.token > token);
    let told = renewed(&client, &taken, token).await.unwrap();
    assert_eq!(told, Renewed::Gone(Gone::Superseded { token: next.token }), "the holder is told");
    let told = renewed(&client, &kept, kept_token).await.unwrap();
    assert_eq!(told, Renewed::Gone(Gone::Expired), "although nobody has taken it");

    server.clock().back(HOUR * 2).unwrap();
    assert!(ahead_min(&server) <= -59);
    let _ = other.release(release(&next_claim, Some(next.token))).await.unwrap();
    let last = granted(&client, &again(&taken)).await;
    assert!(last.token > next.token, "a clock set back makes no token go back");
}

/// The holder goes on as before. When it dies the resource is free once somebody has watched it for its TTL, not after an hour.
#[tokio::test]
async fn a_clock_set_back_makes_no_second_holder_and_locks_nothing_for_ever() {
    let (server, client, other) = two("").await;
    let held = of(LONG, "held");
    let token = granted(&client, &held).await.token;
    server.clock().back(HOUR).unwrap();
    assert!(matches!(renewed(&client, &held, token).await.unwrap(), Renewed::Extended { .. }));
    let answer = other.acquire(again(&held)).await.unwrap();
    let Acquired::Busy(busy) = answer else { panic!("a second holder: {answer:?}") };
    assert!(busy.holder.remaining <= held.ttl.as_duration(), "{:?}", busy.holder.remaining);

    // Now the clock goes back under a holder that is dead.
    let dead = of(SHORT, "dead");
    let window = Stopwatch::start();
    let token = granted(&client, &dead).await.token;
    server.clock().back(HOUR).unwrap();
    let next = until_granted(&other, &again(&dead)).await;
    assert!(window.elapsed() >= dead.ttl.as_duration(), "granted after {:?}", window.elapsed());
    assert!(next.token > token);
}

/// `observed` asks no clock of the server's: whatever that does, nobody gets a second grant beside a holder that renews, and a
/// holder that died is followed after its TTL.
#[tokio::test]
async fn observed_expiry_makes_no_second_holder_whatever_the_clock_does() {
    let (server, client, other) = two("?expiry=observed").await;
    let held = of(LONG, "held");
    let mut highest = granted(&client, &held).await.token;
    let token = highest;
    let steps: [Step; 4] = [
        |server| server.clock().forward(HOUR).unwrap(),
        |server| server.clock().back(HOUR * 2).unwrap(),
        |server| server.clock().forward(HOUR * 48).unwrap(),
        |server| server.clock().back(HOUR * 47).unwrap(),
    ];
    for (at, step) in steps.into_iter().enumerate() {
        step(&server);
        // Before the holder has spoken again, and after.
        for _ in 0..2 {
            let answer = other.acquire(again(&held)).await.unwrap();
            assert!(matches!(answer, Acquired::Busy(_)), "step {at}: a second holder: {answer:?}");
            let kept = renewed(&client, &held, token).await.unwrap();
            assert!(matches!(kept, Renewed::Extended { .. }), "step {at}: {kept:?}");
        }
        // A resource that is free is granted at once, with a token above all before.
        let free = of(LONG, "free");
        let grant = granted(&other, &free).await;
        assert!(grant.token > highest, "step {at}: {} after {highest}", grant.token);
        highest = highest.max(grant.token);
        let _ = other.release(release(&free, Some(grant.token))).await.unwrap();
    }

    let dead = of(SHORT, "dead");
    let window = Stopwatch::start();
    let token = granted(&client, &dead).await.token;
    server.clock().forward(HOUR).unwrap();
    assert!(
        matches!(other.acquire(again(&dead)).await.unwrap(), Acquired::Busy(_)),
        "not by the server's clock"
    );
    let next = until_granted(&other, &again(&dead)).await;
    assert!(window.elapsed() >= dead.ttl.as_duration(), "granted after {:?}", window.elapsed());
    assert!(next.token > token);
}

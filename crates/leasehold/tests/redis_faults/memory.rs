//! A server that loses its memory, or gets an older one.

use leasehold_core::record::{Acquired, Gone, Renewed};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Direction, Passage, Proxy, Redis, RedisSetup, redis_pair},
};

use super::world::{
    Client, Held, MAX_TTL, RECORD, assert_quarantined, claim, eventually, open, ready, renew, take,
    until_granted,
};

/// Another claim is granted no sooner than every forgotten grant has ended, and under a higher token.
async fn succeeded_safely(client: &Client, lost: &Held) -> Held {
    let next = until_granted(client, &claim(MAX_TTL)).await;
    let after = lost.sent.elapsed();
    assert!(after >= lost.claim.ttl.as_duration(), "granted {after:?} after a grant that may still run");
    assert!(next.token > lost.token, "{} follows {}", next.token, lost.token);
    next
}

#[tokio::test]
async fn a_restart_without_persistence_grants_nothing_while_forgotten_leases_may_run() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    server.crash().unwrap();
    assert_quarantined(&client).await;
    assert_eq!(renew(&client, &held).await, Renewed::Gone(Gone::Absent), "the holder learns");
    succeeded_safely(&client, &held).await;
}

#[tokio::test]
async fn a_restart_with_persistence_keeps_leases_and_pauses_new_ones() {
    let server = RedisSetup::new().durable().start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    server.crash().unwrap();
    // The first request that arrives is a renewal: it is allowed, and it starts the quarantine.
    assert!(matches!(renew(&client, &held).await, Renewed::Extended { .. }), "what survived goes on");
    let begun = Stopwatch::start();
    let answer = client.acquire(claim(MAX_TTL)).await.unwrap();
    assert!(matches!(&answer, Acquired::Busy(busy) if busy.holder.token == held.token), "{answer:?}");
    let _ended = client.release(held.release()).await.unwrap();
    assert_quarantined(&client).await;
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
    // The quarantine had begun with the renewal, not with the first claim.
    assert!(begun.elapsed() < MAX_TTL * 3, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn flushall_ends_the_holder_and_pauses_new_grants() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    server.ask(&["FLUSHALL"]).unwrap();
    assert_eq!(renew(&client, &held).await, Renewed::Gone(Gone::Absent));
    assert_quarantined(&client).await;
    succeeded_safely(&client, &held).await;
}

/// Somebody lets the server evict while a lease is held, and its memory fills up: the holder is told, and who follows has a higher
/// token.
#[tokio::test]
async fn a_held_lease_that_is_evicted_is_lost_and_its_successor_has_a_higher_token() {
    const FILL: &str = "for n = 1, 200 do redis.call('SET', ARGV[1] .. ':' .. n, string.rep('x', 10000)) end";
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    let used: u64 = server.info("used_memory").unwrap().parse().unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", &(used + (6 << 20)).to_string()]).unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    // The record stays for long after its lease, for the sake of the token: only eviction takes it away.
    let is_there = || server.ask(&["EXISTS", super::world::RECORD]).unwrap().text() != "0";
    assert!(is_there());
    for round in 0..1_000 {
        if !is_there() {
            break;
        }
        server.ask(&["EVAL", FILL, "0", &round.to_string()]).unwrap();
    }
    assert!(!is_there(), "never evicted");
    assert_ne!(server.info("evicted_keys").unwrap(), "0");
    assert_eq!(renew(&client, &held).await, Renewed::Gone(Gone::Absent), "the holder is told");
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token, "{} after {}", next.token, held.token);
}

#[tokio::test]
async fn a_forgotten_script_is_sent_again() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    for _ in 0..3 {
        server.ask(&["SCRIPT", "FLUSH"]).unwrap();
        assert!(matches!(renew(&client, &held).await, Renewed::Extended { .. }));
    }
}

/// A master with a replica that is fed through a proxy.
struct Pair {
    a: Redis,
    b: Redis,
    feed: Proxy,
}

impl Pair {
    fn new() -> Self {
        let (a, b) = redis_pair().unwrap();
        let feed = Proxy::start(a.address()).unwrap();
        b.follow(feed.address()).unwrap();
        Self { a, b, feed }
    }
}

#[tokio::test]
async fn a_replica_promoted_without_the_last_writes_grants_no_second_window() {
    let pair = Pair::new();
    let on_a = ready(&pair.a.url()).await;
    let earlier = take(&on_a, &claim(MAX_TTL)).await;
    pair.b
        .until("the earlier grant at the replica", || pair.b.ask(&["EXISTS", RECORD]).unwrap().text() == "1")
        .unwrap();
    let _ended = on_a.release(earlier.release()).await.unwrap();
    let released = pair.a.ask(&["GET", RECORD]).unwrap();
    pair.b.until("the release at the replica", || pair.b.ask(&["GET", RECORD]).unwrap() == released).unwrap();
    pair.feed.set(Direction::ToClient, Passage::Lost);
    let lost = take(&on_a, &claim(MAX_TTL)).await;
    pair.b.promote().unwrap();
    pair.a.server().kill().unwrap();
    let on_b = open(&pair.b.url()).await.unwrap();
    assert_quarantined(&on_b).await;
    let gone = renew(&on_b, &lost).await;
    assert!(matches!(gone, Renewed::Gone(_)), "the lost grant is not there: {gone:?}");
    succeeded_safely(&on_b, &lost).await;
}

/// A fails over to B and back. A's process is the same as before, and what it knows is B's: only the reign differs.
#[tokio::test]
async fn a_failover_there_and_back_is_noticed_although_the_process_is_the_same() {
    let pair = Pair::new();
    let on_a = ready(&pair.a.url()).await;
    let _first = take(&on_a, &claim(MAX_TTL)).await;
    pair.b
        .until("the meta record at the replica", || pair.b.ask(&["EXISTS", RECORD]).unwrap().text() == "1")
        .unwrap();
    let run_id = pair.a.info("run_id").unwrap();
    // B is cut off; the first grant is over and a second one is made that B never sees.
    pair.feed.set(Direction::ToClient, Passage::Lost);
    let lost = until_granted(&on_a, &claim(MAX_TTL)).await;
    // B becomes master, A its replica, and at once master again. Nobody has asked B for anything.
    pair.b.promote().unwrap();
    pair.a.follow(pair.b.address()).unwrap();
    pair.a.promote().unwrap();
    assert_eq!(pair.a.info("run_id").unwrap(), run_id, "the process is the same");
    assert_quarantined(&on_a).await;
    succeeded_safely(&on_a, &lost).await;
}

#[tokio::test]
async fn the_smallest_memory_loss_is_noticed_too() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    server.ask(&["DEL", super::world::META]).unwrap();
    // The grant itself survived: it goes on, and new ones pause.
    assert!(matches!(renew(&client, &held).await, Renewed::Extended { .. }));
    let _ended = client.release(held.release()).await.unwrap();
    assert_quarantined(&client).await;
}

/// What the documentation says about the size of a held lease.
#[tokio::test]
async fn a_held_lease_takes_no_more_memory_than_promised() {
    const LEASES: u64 = 2_000;
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let used = || server.info("used_memory").unwrap().parse::<u64>().unwrap();
    let _warm = take(&client, &claim(MAX_TTL)).await;
    let before = used();
    let mut last = None;
    for at in 0..LEASES {
        let mut claim = claim(MAX_TTL);
        claim.resource = leasehold_core::Resource::new(&format!("orders/{at}")).unwrap();
        last = Some(take(&client, &claim).await);
    }
    let each = (used() - before) / LEASES;
    let key = format!("lh:{{faults}}:r:{}", last.unwrap().claim.resource.encode());
    let usage = server.ask(&["MEMORY", "USAGE", &key]).unwrap().text();
    assert!(each <= 450, "{each} bytes a held lease in all; MEMORY USAGE of its key says {usage}");
}

#[tokio::test]
async fn idle_names_vanish_with_their_records() {
    let server = RedisSetup::new().with_clock().start().unwrap();
    let client = ready(&server.url()).await;
    let names = || server.ask(&["ZCARD", "lh:{faults}:i"]).unwrap().text().parse::<u64>().unwrap();
    let other = async |at: u64| {
        let mut claim = claim(MAX_TTL);
        claim.resource = leasehold_core::Resource::new(&format!("idle/{at}")).unwrap();
        let held = take(&client, &claim).await;
        let _ended = client.release(held.release()).await.unwrap();
    };
    for at in 0..100 {
        other(at).await;
    }
    server.clock().forward(std::time::Duration::from_secs(8 * 86_400)).unwrap();
    let mut at = 100;
    eventually("the old names to be forgotten", async || {
        other(at).await;
        at += 1;
        names() < at - 50
    })
    .await;
    let listing =
        leasehold_core::request::Listing { free_too: true, ..leasehold_core::request::Listing::new() };
    let page = client.list(listing).await.unwrap();
    assert!(page.items.iter().all(|item| item.last_token.is_some()), "a list shows what is, not names alone");
}

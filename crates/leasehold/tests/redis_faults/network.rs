//! A network and a server that fall silent, one way or both.

use std::time::Duration;

use leasehold_core::{
    Kind,
    record::{Acquired, Renewed, Wake},
};
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Direction, Passage, Proxy, Redis, RedisSetup},
};

use super::world::{Client, MAX_TTL, claim, eventually, granted, open, ready, renew, take, until_granted};

async fn behind_a_proxy() -> (Redis, Proxy, Client) {
    let server = RedisSetup::new().start().unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let client = ready(&format!("redis://{}", proxy.address())).await;
    (server, proxy, client)
}

#[tokio::test]
async fn a_reply_lost_after_its_effect_is_adopted_by_the_repeated_claim() {
    let (_server, proxy, client) = behind_a_proxy().await;
    // The server knows the script from here on, so the answer that is lost is the grant itself.
    let before = take(&client, &claim(MAX_TTL)).await;
    let _ended = client.release(before.release()).await.unwrap();
    proxy.set(Direction::ToClient, Passage::Lost);
    let claim = claim(MAX_TTL);
    let before = proxy.bytes(Direction::ToClient);
    let asking = tokio::spawn({
        let (client, claim) = (client.clone(), claim.clone());
        async move { client.acquire(claim).await }
    });
    eventually("the answer at the proxy", async || proxy.bytes(Direction::ToClient) > before).await;
    proxy.cut();
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    proxy.set(Direction::ToClient, Passage::Open);
    let grant = granted(client.acquire(claim.clone()).await.unwrap());
    assert!(grant.adopted, "the same grant, not a second one");
    let others = client.acquire(super::world::claim(MAX_TTL)).await.unwrap();
    assert!(matches!(&others, Acquired::Busy(busy) if busy.holder.lease_id == claim.lease_id), "{others:?}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_unavailable_and_nothing_was_sent() {
    let (server, proxy, client) = behind_a_proxy().await;
    let held = take(&client, &claim(MAX_TTL)).await;
    let _ended = client.release(held.release()).await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    let mut mine = claim(MAX_TTL);
    // The cut may be noticed by the first request only, which may still have been granted: each is a claim of its own.
    eventually("a certain answer", async || {
        mine = claim(MAX_TTL);
        client.acquire(mine.clone()).await.is_err_and(|error| error.kind() == Kind::Unavailable)
    })
    .await;
    let direct = open(&server.url()).await.unwrap();
    let holder = direct.inspect(mine.resource.clone()).await.unwrap().record;
    assert!(holder.is_none_or(|record| record.lease_id != mine.lease_id), "it was sent all the same");
    proxy.refuse(false);
    until_granted(&client, &mine).await;
}

/// Held back both ways, and the connections stay open.
#[tokio::test]
async fn a_half_open_connection_is_given_up_and_replaced() {
    let (_server, proxy, client) = behind_a_proxy().await;
    proxy.set_both(Passage::Stalled);
    let since = Stopwatch::start();
    let error = client.acquire(claim(MAX_TTL)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    let before = proxy.accepted();
    proxy.set_both(Passage::Open);
    until_granted(&client, &claim(MAX_TTL)).await;
    assert!(proxy.accepted() > before, "the old connection is not used any more");
}

/// Requests are held back, answers would pass; then the other way round. What was held back arrives late, and must not
/// make a second grant.
#[tokio::test]
async fn a_stall_of_one_direction_makes_no_second_grant() {
    let (server, proxy, client) = behind_a_proxy().await;
    let direct = open(&server.url()).await.unwrap();
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.set(direction, Passage::Stalled);
        let late = claim(MAX_TTL);
        let asking = tokio::spawn({
            let (client, late) = (client.clone(), late.clone());
            async move { client.acquire(late).await }
        });
        let bytes = proxy.bytes(direction);
        eventually("something to be held back", async || {
            proxy.bytes(direction) > bytes || asking.is_finished()
        })
        .await;
        let rival = direct.acquire(claim(MAX_TTL)).await.unwrap();
        proxy.set(direction, Passage::Open);
        let outcome = asking.await.unwrap();
        let both = matches!((&rival, &outcome), (Acquired::Granted(_), Ok(Acquired::Granted(_))));
        assert!(!both, "two grants at once: {rival:?}, {outcome:?}");
        // Whoever has it gives it back before the next round.
        for resource in [late.lease_id] {
            let back = leasehold_core::request::Release {
                resource: late.resource.clone(),
                lease_id: resource,
                token: None,
                succeeded: false,
            };
            let _any = direct.release(back).await.unwrap();
        }
        until_granted_and_released(&direct).await;
    }
}

async fn until_granted_and_released(client: &Client) {
    let held = until_granted(client, &claim(MAX_TTL)).await;
    let _ended = client.release(held.release()).await.unwrap();
}

#[tokio::test]
async fn a_stopped_server_is_unknown_and_goes_on_where_it_was() {
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let held = take(&client, &claim(MAX_TTL)).await;
    server.server().pause().unwrap();
    let error = client.renew(vec![held.renewal()]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    server.server().resume().unwrap();
    // Stopped for longer than the TTL: the lease is over, and the next one has a higher token.
    let next = until_granted(&client, &claim(MAX_TTL)).await;
    assert!(next.token > held.token);
    assert!(held.sent.elapsed() >= MAX_TTL);
}

/// The requests' connection and the wakes' are two: each is made again by itself.
#[tokio::test]
async fn a_broken_subscription_is_made_again_and_everybody_looks() {
    let (_server, proxy, client) = behind_a_proxy().await;
    let holder = take(&client, &claim(MAX_TTL)).await;
    let mut waiter = claim(MAX_TTL);
    waiter.queue = true;
    let answer = client.acquire(waiter.clone()).await.unwrap();
    assert!(matches!(answer, Acquired::Busy(_)), "{answer:?}");
    proxy.cut();
    let woken = tokio::time::timeout(super::world::PATIENCE, async {
        loop {
            if client.next_wake().await == Wake::All {
                return;
            }
        }
    });
    woken.await.expect("everybody is told to look");
    let renewed = renew(&client, &holder).await;
    if matches!(renewed, Renewed::Extended { .. }) {
        let _ended = client.release(holder.release()).await.unwrap();
        let woken = tokio::time::timeout(super::world::PATIENCE, async {
            while client.next_wake().await != Wake::Lease(waiter.lease_id) {}
        });
        woken.await.expect("wakes arrive again");
    }
}

/// Whoever takes a connection and closes it at once is asked again and again, and not without a pause: neither for requests nor for
/// wakes.
#[tokio::test]
async fn a_server_that_closes_every_connection_is_not_besieged() {
    let (_server, proxy, client) = behind_a_proxy().await;
    let holder = take(&client, &claim(MAX_TTL)).await;
    let mut waiter = claim(MAX_TTL);
    waiter.queue = true;
    let _busy = client.acquire(waiter.clone()).await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    let (before, since) = (proxy.accepted(), Stopwatch::start());
    while since.elapsed() < Duration::from_secs(2) {
        let _fails = client.renew(vec![holder.renewal()]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (attempts, whole) = (proxy.accepted() - before, since.elapsed());
    assert!(attempts > 0, "nobody tries again");
    // We ask ten times a second; a loop without a pause makes thousands.
    let most = 100 * (whole.as_secs() + 1);
    assert!(attempts < most, "{attempts} connections in {whole:?}");
    proxy.refuse(false);
    until_granted(&client, &waiter).await;
}

/// Nobody asks anything, and still the wakes' connection is found to be dead and made again.
#[tokio::test]
async fn a_half_open_subscription_is_noticed_without_any_request() {
    let (server, proxy, client) = behind_a_proxy().await;
    let direct = open(&server.url()).await.unwrap();
    let holder = take(&direct, &claim(MAX_TTL)).await;
    let mut waiter = claim(MAX_TTL);
    waiter.queue = true;
    let answer = client.acquire(waiter.clone()).await.unwrap();
    assert!(matches!(answer, Acquired::Busy(_)), "{answer:?}");
    let before = proxy.accepted();
    proxy.set_both(Passage::Lost);
    eventually("another attempt to connect", async || proxy.accepted() > before).await;
    proxy.set_both(Passage::Open);
    let woken = tokio::time::timeout(super::world::PATIENCE, async {
        while client.next_wake().await != Wake::All {}
    });
    woken.await.expect("everybody is told to look");
    let _any = direct.release(holder.release()).await.unwrap();
    until_granted(&client, &waiter).await;
}

#[tokio::test]
async fn many_calls_share_one_connection() {
    let (_server, proxy, client) = behind_a_proxy().await;
    let before = proxy.accepted();
    let mut tasks = Vec::new();
    for at in 0..500 {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            let mut claim = claim(MAX_TTL);
            claim.resource = leasehold_core::Resource::new(&format!("r{at}")).unwrap();
            let held = take(&client, &claim).await;
            let _ended = client.release(held.release()).await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(proxy.accepted() <= before + 1, "one more, for wakes, at most");
}

#[tokio::test]
async fn calls_that_were_dropped_before_they_were_sent_leave_no_trace() {
    let (server, proxy, client) = behind_a_proxy().await;
    proxy.refuse(true);
    proxy.cut();
    let mine = claim(MAX_TTL);
    // Until the client knows that the connection is gone, something may be sent.
    eventually("the connection's end to be known", async || {
        client.inspect(mine.resource.clone()).await.is_err()
    })
    .await;
    let dropped = tokio::time::timeout(Duration::from_millis(50), client.acquire(mine.clone())).await;
    assert!(dropped.is_err(), "it waits for a connection: {dropped:?}");
    proxy.refuse(false);
    eventually("a connection", async || client.inspect(mine.resource.clone()).await.is_ok()).await;
    assert_eq!(server.ask(&["EXISTS", super::world::RECORD]).unwrap().text(), "0");
}

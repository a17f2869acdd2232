//! What a server counts, and what it is forbidden to say: round trips, hand-overs, wakes that are never sent.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Leases, Resource,
    address::Address,
    coordinator::redis::{Options, connect},
};
use leasehold_core::{
    record::Renewed,
    request::{Claim, Preparation},
};
use leasehold_testkit::server::{Direction, Proxy, Redis, RedisSetup};

use super::world::{Client, PATIENCE, claim, eventually, namespace, take};

/// Longer than anything here takes.
const TTL: Duration = Duration::from_secs(60);

/// A client of a namespace that grants, with the usual bound.
async fn ready(url: &str) -> Client {
    let (scheme, rest) = url.split_once(':').unwrap();
    let options = Options::read(&Address::parse(scheme, rest).unwrap()).unwrap();
    let client = connect(options, namespace()).await.unwrap();
    client.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    client
}

async fn program(url: &str) -> Leases {
    let leases = Leases::connect(url).await.unwrap();
    let _made = leases.prepare(Preparation { fresh: true, max_ttl: None }).await;
    leases
}

/// How often the server has carried out a command, inside scripts as well.
fn calls(server: &Redis, command: &str) -> u64 {
    let told = server.ask(&["INFO", "commandstats"]).unwrap().text();
    let line = told.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Hundreds of renewals are a few calls of the script, each for many.
#[tokio::test]
async fn hundreds_of_renewals_are_a_few_calls() {
    const MANY: usize = 300;
    let server = RedisSetup::new().start().unwrap();
    let client = ready(&server.url()).await;
    let take = |at| {
        let resource = Resource::new(&format!("orders/{at}")).unwrap();
        let (client, claim) = (Arc::clone(&client), Claim { resource, ..claim(TTL) });
        tokio::spawn(async move { take(&client, &claim).await })
    };
    let mut renewals = Vec::new();
    for one in (0..MANY).map(take).collect::<Vec<_>>() {
        renewals.push(one.await.unwrap().renewal());
    }
    // The first one may have to send the script itself.
    let first = client.renew(vec![renewals[0].clone()]).await.unwrap();
    assert!(matches!(first[..], [Ok(Renewed::Extended { .. })]), "{first:?}");
    let before = calls(&server, "evalsha");
    let answers = client.renew(renewals).await.unwrap();
    let extended = answers.iter().filter(|answer| matches!(answer, Ok(Renewed::Extended { .. }))).count();
    assert_eq!(extended, MANY);
    let made = calls(&server, "evalsha") - before;
    // At most 128 operations go together; somebody's tidying may come in between.
    assert!((1..=8).contains(&made), "{made} calls for {MANY} renewals");
}

/// However many wait, a release wakes one, and it alone asks again: the cost of handing over does not grow with the line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handing_over_costs_the_same_however_many_wait() {
    const WAITERS: u32 = 220;
    let server = RedisSetup::new().start().unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let holder = program(&server.url()).await;
    let waiters = program(&format!("redis://{}", proxy.address())).await;
    let held = holder.lease("r").ttl(TTL).acquire().await.unwrap();
    let wait = |_| {
        let request = waiters.lease("r").ttl(TTL).wait(4 * PATIENCE);
        tokio::spawn(async move { request.acquire().await.unwrap().release().await.map(drop) })
    };
    let waiting: Vec<_> = (0..WAITERS).map(wait).collect();
    let resource = Resource::new("r").unwrap();
    eventually("the line", async || holder.inspect(&resource).await.unwrap().waiting == WAITERS).await;
    let (woken, sent) = (calls(&server, "publish"), proxy.bytes(Direction::ToServer));
    let _ended = held.release().await.unwrap();
    for one in waiting {
        tokio::time::timeout(4 * PATIENCE, one).await.unwrap().unwrap().unwrap();
    }
    let (woken, sent) = (calls(&server, "publish") - woken, proxy.bytes(Direction::ToServer) - sent);
    let handed_over = u64::from(WAITERS);
    println!("{handed_over} handed over: {woken} wakes, {sent} bytes to the server");
    assert!(woken >= handed_over - 1, "each of them was woken: {woken}");
    // The first in line is woken again where it was too slow. Were all of them woken each time, it would be WAITERS² / 2.
    assert!(woken <= 3 * handed_over, "{woken} wakes for {handed_over} hand-overs");
    // A claim, a release and what goes with them; were all asked to look each time, it would be some 20 kB for each.
    assert!(sent <= 4_000 * handed_over, "{sent} bytes for {handed_over} hand-overs");
}

/// A wake that is never sent costs a second, not the lease: the first in line looks again by the clock.
#[tokio::test]
async fn a_waiter_whose_wake_is_lost_is_admitted_by_its_own_look() {
    let server = RedisSetup::new().start().unwrap();
    let waiter = program(&server.url()).await;
    // Whoever releases may not say anything on any channel.
    server.ask(&["ACL", "SETUSER", "mute", "on", ">secret", "~lh:*", "+@all", "resetchannels"]).unwrap();
    let holder = program(&format!("redis://mute:secret@{}", server.address())).await;
    let held = holder.lease("r").ttl(TTL).acquire().await.unwrap();
    let first = held.token();
    let request = waiter.lease("r").ttl(TTL).wait(PATIENCE);
    let waiting = tokio::spawn(async move { request.acquire().await.unwrap().token() });
    let resource = Resource::new("r").unwrap();
    eventually("the line", async || holder.inspect(&resource).await.unwrap().waiting == 1).await;
    // The server notes what it has forbidden a script to do.
    let refused = || server.ask(&["ACL", "LOG"]).unwrap().text().contains("context\nlua\nobject\nlh:wake:");
    assert!(!refused(), "nothing was to be said yet");
    let _ended = held.release().await.unwrap();
    // Half of the holder's TTL at most: nothing but its own look lets it in.
    let next = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(next > first);
    assert!(refused(), "the wake was to be sent, and was refused");
}

//! What a member counts, and what it tells to no purpose: round trips, hand-overs, events that nobody hears.

use std::{sync::Arc, time::Duration};

use leasehold::{Leases, Resource};
use leasehold_core::record::Renewed;
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Cut, Direction, Etcd, Passage, Proxy},
};

use super::world::{Client, GLANCE, PATIENCE, claim, open, ready, renewal, seconds, take};

/// Waits until something holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Stopwatch::start();
    while !holds().await {
        assert!(since.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        tokio::time::sleep(GLANCE).await;
    }
}

fn keepalives(etcd: &Etcd) -> u64 {
    etcd.figure(0, "grpc_server_msg_received_total", &["grpc_method=\"LeaseKeepAlive\""]).unwrap()
}

/// Calls that read or change keys.
fn calls(etcd: &Etcd) -> u64 {
    etcd.calls(0, "Txn").unwrap() + etcd.calls(0, "Range").unwrap()
}

async fn take_many(client: &Client, many: usize) -> Vec<leasehold_core::request::Renewal> {
    let take = |at| {
        let (client, claim) = (Arc::clone(client), claim(&format!("orders/{at}"), seconds(60)));
        tokio::spawn(async move {
            let token = take(&client, &claim).await.token;
            renewal(&claim, token)
        })
    };
    let mut taken = Vec::new();
    for one in (0..many).map(take).collect::<Vec<_>>() {
        taken.push(one.await.unwrap());
    }
    taken
}

/// Grants that hang on leases of their own need a keepalive each. All are on their way before the first is answered, and the
/// marks are compared a hundred at a time.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_renewals_are_one_burst_of_keepalives_and_a_few_comparisons() {
    const MANY: u64 = 250;
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let proxy = Proxy::start(etcd.address(0)).unwrap();
    let client = open(&proxy.address().to_string(), "").await.unwrap();
    let renewals = take_many(&client, usize::try_from(MANY).unwrap()).await;
    let all_extended = |answers: &[Result<Renewed, leasehold::Error>]| {
        answers.iter().all(|answer| matches!(answer, Ok(Renewed::Extended { .. })))
    };
    // The stream on which they go is opened by the answer to the first.
    let _any = client.renew(renewals[..1].to_vec()).await.unwrap();
    // No answer comes back: whoever waited for one before the next keepalive would send one, and no more.
    let before = keepalives(&etcd);
    proxy.set(Direction::ToClient, Passage::Stalled);
    let asked = {
        let (client, renewals) = (Arc::clone(&client), renewals.clone());
        tokio::spawn(async move { client.renew(renewals).await })
    };
    until("all keepalives", async || keepalives(&etcd) - before >= MANY).await;
    proxy.set(Direction::ToClient, Passage::Open);
    // On a busy machine the stall may have been too long for the calls behind it.
    let _any = asked.await.unwrap();
    let since = Stopwatch::start();
    loop {
        let before = (calls(&etcd), keepalives(&etcd));
        let answers = client.renew(renewals.clone()).await.unwrap();
        let after = (calls(&etcd), keepalives(&etcd));
        if all_extended(&answers) && after.0 - before.0 <= 3 {
            assert_eq!(after.1 - before.1, MANY, "one for each lease");
            assert!(after.0 > before.0, "what was kept alive is compared");
            return;
        }
        assert!(since.elapsed() < PATIENCE, "never as few as three calls: {}", after.0 - before.0);
    }
}

/// However many wait, the end of a grant wakes one, and it alone asks: the cost of handing over does not grow with the line.
#[tokio::test(flavor = "multi_thread")]
async fn handing_over_costs_the_same_however_many_wait() {
    const WAITERS: u32 = 220;
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let url = format!("etcd://{}", etcd.hosts());
    let (holder, waiters) = (Leases::connect(&url).await.unwrap(), Leases::connect(&url).await.unwrap());
    let held = holder.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let wait = |_| {
        let request = waiters.lease("r").ttl(Duration::from_secs(60)).wait(4 * PATIENCE);
        tokio::spawn(async move { request.acquire().await.unwrap().release().await.map(drop) })
    };
    let waiting: Vec<_> = (0..WAITERS).map(wait).collect();
    let resource = Resource::new("r").unwrap();
    until("the line", async || holder.inspect(&resource).await.unwrap().waiting == WAITERS).await;
    let before = calls(&etcd);
    let _ended = held.release().await.unwrap();
    for one in waiting {
        tokio::time::timeout(4 * PATIENCE, one).await.unwrap().unwrap().unwrap();
    }
    let (made, handed_over) = (calls(&etcd) - before, u64::from(WAITERS));
    println!("{handed_over} handed over: {made} calls");
    // Read, write and release, and a look of the next in line. Were all of them woken each time, it would be WAITERS² / 2.
    assert!(made <= 25 * handed_over, "{made} calls for {handed_over} hand-overs");
}

/// A watch that is told nothing costs its waiter a second, not the lease: the first in line looks again by the clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_events_are_lost_is_admitted_by_its_own_look() {
    let etcd = Etcd::start(1).unwrap();
    ready(&etcd).await;
    let cut = Cut::start(etcd.address(0)).unwrap();
    cut.set(false);
    let holder = Leases::connect(&format!("etcd://{}", etcd.hosts())).await.unwrap();
    let waiter = Leases::connect(&format!("etcd://{}", cut.address())).await.unwrap();
    let held = holder.lease("r").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let first = held.token();
    cut.deafen(true);
    let request = waiter.lease("r").ttl(Duration::from_secs(60)).wait(PATIENCE);
    let waiting = tokio::spawn(async move { request.acquire().await.unwrap().token() });
    let resource = Resource::new("r").unwrap();
    until("the line", async || holder.inspect(&resource).await.unwrap().waiting == 1).await;
    let _ended = held.release().await.unwrap();
    // Half of the holder's TTL at the latest: nothing but its own look lets it in.
    let next = tokio::time::timeout(PATIENCE / 2, waiting).await.unwrap().unwrap();
    assert!(next > first && cut.unheard() > 0, "{} events were lost", cut.unheard());
}

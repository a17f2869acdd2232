//! Forgetting what is idle, by those who are there anyway.

use std::{sync::Arc, time::Duration};

use leasehold::{
    address::Address,
    coordinator::postgres::{self, Options},
};
use leasehold_core::{Coordinator, Namespace, Token, request::Claim};
use leasehold_testkit::clock::Stopwatch;

use super::{
    scene::{again, claim, granted, ready, release, shared, until},
    trips::Counting,
};

/// A client that forgets as often as this, by itself.
async fn busy_forgetter(url: &str, every: Duration) -> Arc<dyn Coordinator> {
    let (scheme, rest) = url.split_once(':').unwrap();
    let mut options = Options::read(&Address::parse(scheme, rest).unwrap()).unwrap();
    assert_eq!(options.purge_every, Duration::from_secs(60), "what a URL gives");
    options.purge_every = every;
    postgres::connect(options, Namespace::default()).await.unwrap()
}

/// Far enough ahead of every clock that only a counter keeps tokens rising.
fn ahead() -> Token {
    Token::new(leasehold::clock::unix_us() + 500_000_000).unwrap()
}

const AGED: &str = "UPDATE leasehold.slot SET at_us = at_us - 8 * 86400000000 WHERE lease_id IS NULL";
const LEFT: &str = "SELECT count(*) FROM leasehold.slot";

/// Nobody asks for it.
#[tokio::test]
async fn idle_resources_are_forgotten_without_anybody_asking() {
    let server = shared();
    let database = server.database().unwrap();
    let url = server.url(&database);
    let client = ready(&url).await;
    let (old, kept) = (Claim { floor: Some(ahead()), ..claim("old") }, claim("kept"));
    let token = granted(&client, &old).await.token;
    let _ended = client.release(release(&old, Some(token))).await.unwrap();
    granted(&client, &kept).await;
    server.psql(&database, AGED).unwrap();
    let forgetter = busy_forgetter(&url, Duration::from_millis(20)).await;
    until("forgetting", async || (server.psql(&database, LEFT).unwrap() == "1").then_some(())).await;
    drop(forgetter);
    let next = granted(&client, &Claim { floor: None, ..again(&old) }).await.token;
    assert!(next > token, "{next} after {token}");
}

/// Several clients forget at once, again and again, while others take and leave the same resources: nobody is in anybody's way for
/// long, and no token goes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_forget_at_once_and_neither_deadlock_nor_lose_a_floor() {
    const RESOURCES: u64 = 60;
    const ROUNDS: u64 = 6;
    let server = shared();
    let database = server.database().unwrap();
    let url = server.url(&database);
    let client = ready(&url).await;
    let mut forgetters = Vec::new();
    for _ in 0..4 {
        forgetters.push(busy_forgetter(&url, Duration::from_millis(5)).await);
    }
    let mut last: Vec<Option<Token>> = vec![None; usize::try_from(RESOURCES).unwrap()];
    for round in 0..ROUNDS {
        let mut tasks = Vec::new();
        for at in 0..RESOURCES {
            let client = Arc::clone(&client);
            // Ahead of the clock, each by another step, so that the floor has to be raised again and again.
            let floor = (round % 2 == 0).then(|| Token::new(ahead().get() + at * 1_000).unwrap());
            let claim = Claim { floor, ..claim(&format!("orders/{at}")) };
            tasks.push(tokio::spawn(async move {
                let token = granted(&client, &claim).await.token;
                let _ended = client.release(release(&claim, Some(token))).await.unwrap();
                token
            }));
        }
        for (last, task) in last.iter_mut().zip(tasks) {
            let token = task.await.unwrap();
            assert!(last.is_none_or(|last| token > last), "{token} after {last:?} in round {round}");
            *last = Some(token);
        }
        server.psql(&database, AGED).unwrap();
        until("forgetting", async || (server.psql(&database, LEFT).unwrap() == "0").then_some(())).await;
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(server.psql(&database, deadlocks).unwrap(), "0");
    drop(forgetters);
}

/// Ten clients that would each forget ten times a second do so no more often than one would.
#[tokio::test]
async fn however_many_clients_there_are_they_take_turns_at_forgetting() {
    let server = Counting::start();
    let every = Duration::from_millis(100);
    let since = Stopwatch::start();
    let _client = ready(&server.url()).await;
    let mut forgetters = Vec::new();
    for _ in 0..10 {
        forgetters.push(busy_forgetter(&server.url(), every).await);
    }
    let turns = || server.sum("calls", "purge_1(");
    until("twenty turns", async || (turns() >= 20).then_some(())).await;
    drop(forgetters);
    let (turns, most) = (turns(), since.elapsed().as_millis() / every.as_millis() + 1);
    assert!(u128::from(turns) <= most, "{turns} turns in a time for {most}");
}

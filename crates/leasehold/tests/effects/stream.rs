//! Events in a Redis stream, on real servers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use leasehold::{
    address::Secret,
    coordinator::memory::MemoryStore,
    effects::{
        failpoint::{Hook, Point},
        relay::{Pace, RedisStream, Relay, Turn, Until},
    },
};
use leasehold_testkit::server::{Redis, RedisCluster, RedisSetup, Reply, redis_pair};
use serde_json::Value;

use crate::{
    common::{client, faulty},
    relay::{PACE, freed, waiting},
    world::{BODY, Bank, Worker, die, to_its_end},
};

const NAME: &str = "shop:events";

/// A bank with so many events, called `0`, `1` …
async fn bank(events: u32) -> Bank {
    let bank = Bank::sqlite();
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    for n in 0..events {
        worker.pay(&n.to_string(), BODY).await.unwrap();
    }
    bank
}

async fn relay(bank: &Bank, stream: RedisStream) -> Relay {
    Relay::new(bank.ledger().await, "main", Box::new(stream)).unwrap().pace(PACE)
}

/// One turn under a lease of its own.
async fn turn(bank: &Bank, stream: RedisStream) -> Turn {
    let lease = client(&MemoryStore::default(), "relay").await.lease("outbox/main").acquire().await.unwrap();
    let mut relay = relay(bank, stream).await;
    relay.seal(&lease).await.unwrap();
    let turn = relay.turn(&lease).await.unwrap();
    let _ = lease.release().await.unwrap();
    turn
}

/// Why nothing was taken.
async fn why(bank: &Bank, stream: RedisStream) -> String {
    let turn = turn(bank, stream).await;
    assert_eq!((turn.published, turn.failed, turn.set_aside), (0, 0, 0));
    turn.down.unwrap().0
}

/// Each entry: Redis' own number, and the fields.
fn entries(redis: &Redis) -> Vec<(String, BTreeMap<String, String>)> {
    let Reply::Many(entries) = redis.ask(&["XRANGE", NAME, "-", "+"]).unwrap() else { panic!("no entries") };
    let entry = |entry: &Reply| {
        let Reply::Many(parts) = entry else { panic!("{entry:?}") };
        let Reply::Many(words) = &parts[1] else { panic!("{entry:?}") };
        let fields = words.chunks(2).map(|pair| (pair[0].text(), pair[1].text()));
        (parts[0].text(), fields.collect())
    };
    entries.iter().map(entry).collect()
}

/// A relay that dies between an entry and its note adds it again: with another number, and the same word by which it is known.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_comes_twice_is_known_by_a_word_of_fixed_length() {
    let redis = RedisSetup::new().start().unwrap();
    let (bank, store) = (bank(3).await, MemoryStore::default());
    let stream = || RedisStream::new(&redis.url(), NAME).unwrap();
    let (leases, faults) = faulty(&store).await;
    let mut doomed = relay(&bank, stream()).await.failing(Hook::new(move |point| {
        let faults = Arc::clone(&faults);
        Box::pin(async move {
            if point == Point::Published {
                die(&faults);
            }
        })
    }));
    let died =
        to_its_end(async move { doomed.run(&leases, Until::Empty).await.map_err(|error| error.to_string()) });
    assert!(died.await.is_none());
    relay(&bank, stream()).await.run(&freed(&store).await, Until::Empty).await.unwrap();

    let entries = entries(&redis);
    let of = |name: &str| entries.iter().map(|(_, fields)| fields[name].clone()).collect::<Vec<_>>();
    let first = of("id")[0].clone();
    assert_eq!(entries.len(), 4);
    assert_eq!(of("id")[1], first, "in order, and the first one twice");
    let dedup = of("dedup");
    assert!(dedup[0] == dedup[1] && dedup[1] != dedup[2] && dedup[2] != dedup[3], "{dedup:?}");
    assert!(dedup.iter().all(|word| word.len() == 64));
    assert_ne!(entries[0].0, entries[1].0);
    assert_eq!(of("source")[0], "/leasehold/outbox/main");
    let keys: Vec<Value> = of("event")
        .iter()
        .map(|event| serde_json::from_str::<Value>(event).unwrap()["leaseholdkey"].clone())
        .collect();
    assert_eq!(keys, ["0", "0", "1", "2"]);
    assert!(waiting(&bank).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_costs_no_event_an_attempt() {
    let redis = RedisSetup::new().start().unwrap();
    let (bank, store) = (bank(1).await, MemoryStore::default());
    let lease = client(&store, "relay").await.lease("outbox/main").acquire().await.unwrap();
    let mut relay = relay(&bank, RedisStream::new(&redis.url(), NAME).unwrap()).await;
    relay.seal(&lease).await.unwrap();
    assert_eq!(relay.turn(&lease).await.unwrap().published, 1);
    Worker::new(&bank, &store).await.pay("later", BODY).await.unwrap();
    redis.server().kill().unwrap();
    for _ in 0..10 {
        assert!(relay.turn(&lease).await.unwrap().down.is_some());
    }
    redis.start().unwrap();
    assert_eq!(relay.turn(&lease).await.unwrap().published, 1);
    let _ = lease.release().await.unwrap();
    let event = bank.ledger().await.event(2).await.unwrap().unwrap();
    assert_eq!((event.attempts, entries(&redis).len()), (0, 1), "what it forgot is its own affair");
}

/// No refusal of a server's is about one event, and none sets one aside.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_refuses_is_told_without_its_password_and_waits() {
    let redis = RedisSetup::new().with("requirepass", "right").start().unwrap();
    let bank = bank(1).await;
    let url = |login: &str| redis.url().replace("redis://", &format!("redis://{login}"));
    let told = why(&bank, RedisStream::new(&redis.url(), NAME).unwrap()).await;
    assert!(told.contains("does not accept this user and password"), "{told}");
    let told = why(&bank, RedisStream::new(&url(":hunter2@"), NAME).unwrap()).await;
    assert!(!told.contains("hunter2") && told.contains("password"), "{told}");
    let stream = RedisStream::with_password(&redis.url(), NAME, &Secret::new("right")).unwrap();
    assert_eq!(turn(&bank, stream).await.published, 1);

    let open = RedisSetup::new().start().unwrap();
    open.ask(&["SET", NAME, "something else"]).unwrap();
    let bank = self::bank(1).await;
    let told = why(&bank, RedisStream::new(&open.url(), NAME).unwrap()).await;
    assert!(told.contains("something else than a stream") && told.contains(NAME), "{told}");
    open.ask(&["ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@read", "+hello", "+client"]).unwrap();
    let reader = open.url().replace("redis://", "redis://reader:x@");
    let told = why(&bank, RedisStream::new(&reader, NAME).unwrap()).await;
    assert!(told.contains("does not permit this user to XADD"), "{told}");
    open.ask(&["DEL", NAME]).unwrap();
    open.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let told = why(&bank, RedisStream::new(&open.url(), NAME).unwrap()).await;
    assert!(told.contains("memory"), "{told}");
    open.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eq!(turn(&bank, RedisStream::new(&open.url(), NAME).unwrap()).await.published, 1);
}

/// With `wait_replicas` an entry counts when replicas have it.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_counts_when_so_many_replicas_have_it() {
    let alone = RedisSetup::new().start().unwrap();
    let bank = bank(1).await;
    let waits = |redis: &Redis| format!("{}?wait_replicas=1", redis.url());
    let told = why(&bank, RedisStream::new(&waits(&alone), NAME).unwrap()).await;
    assert!(told.contains("only 0 of 1 replicas"), "{told}");
    let (master, replica) = redis_pair().unwrap();
    master.until("a replica", || master.info("connected_slaves").unwrap_or_default() == "1").unwrap();
    // A replica that has just come may take its time with the first entry.
    let pace = Pace { retry: Duration::from_millis(50), ..PACE };
    let stream = RedisStream::new(&waits(&master), NAME).unwrap();
    let mut relay = relay(&bank, stream).await.pace(pace);
    relay.run(&client(&MemoryStore::default(), "relay").await, Until::Empty).await.unwrap();
    let id = |redis: &Redis| entries(redis).last().unwrap().1["id"].clone();
    assert_eq!((id(&master), id(&replica)), ("1".into(), "1".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_gets_entries_where_the_stream_is() {
    let cluster = RedisCluster::start(false).unwrap();
    let bank = bank(3).await;
    assert_eq!(turn(&bank, RedisStream::new(&cluster.url(), NAME).unwrap()).await.published, 3);
    let Reply::Number(slot) = cluster.node_of(0).unwrap().ask(&["CLUSTER", "KEYSLOT", NAME]).unwrap() else {
        panic!("no slot")
    };
    let node = cluster.node_of(u16::try_from(slot).unwrap()).unwrap();
    assert_eq!(entries(node).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_may_forget_is_kept_short() {
    // Redis forgets whole blocks of entries: here a block is one entry.
    let redis = RedisSetup::new().with("stream-node-max-entries", "1").start().unwrap();
    let bank = bank(20).await;
    let leases = client(&MemoryStore::default(), "relay").await;
    let stream = RedisStream::new(&redis.url(), NAME).unwrap().at_most(2);
    relay(&bank, stream).await.run(&leases, Until::Empty).await.unwrap();
    let kept = entries(&redis);
    assert!((2..=4).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept.last().unwrap().1["id"], "20");
}

//! Where operations are in Redis: on a Cluster, beside other fences; and under names that could be taken for something else.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    Kind,
    coordinator::memory::MemoryStore,
    effects::{
        Event, Events, Key, Keys, Ledger, NotDone, Queue, Request, Rules, Working,
        redis::RedisEffects,
        relay::{NotPublished, Relay, Sink, Until},
    },
    fence::{Fence, redis::redis},
};
use leasehold_testkit::server::{Redis, RedisCluster, RedisSetup};
use serde_json::{Value, json};

use crate::{
    common::client,
    redis::{cmd, named, owned, run},
    world::{BODY, Bank, Worker, connection},
};

/// What a far end got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(pub(crate) Arc<Mutex<Vec<String>>>);

impl Sink for Heard {
    fn publish<'a>(&'a mut self, event: &'a Event, _: &'a Value) -> Working<'a, (), NotPublished> {
        self.0.lock().unwrap().push(event.key.as_str().to_owned());
        Box::pin(async { Ok(()) })
    }
}

/// On a Cluster everything is in the slot of the tag, on whichever node that is.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_cluster_one_tag_holds_everything_together() {
    let cluster = RedisCluster::start(false).unwrap();
    let nodes: Vec<String> = cluster.nodes.iter().map(Redis::url).collect();
    let patient = redis::cluster::ClusterClient::builder(nodes)
        .response_timeout(Duration::from_secs(60))
        .connection_timeout(Duration::from_secs(60))
        .build()
        .unwrap();
    let mut db = patient.get_async_connection().await.unwrap();
    let leases = client(&MemoryStore::default(), "cluster").await;
    let effects = RedisEffects::new(&leases, Rules::default()).unwrap();
    let push = |tag: &str| vec![owned(&["RPUSH", &format!("{{{tag}}}:effect"), "x"])];
    // Without a tag the keys would be anywhere.
    let told = run(&effects, &mut db, &named("k", "a"), &push("shop-0")).await.unwrap_err();
    assert!(told.to_string().contains("within"), "{told}");
    let told = Ledger::connect(&cluster.url()).await.unwrap_err();
    assert!(told.to_string().contains("effects_tag"), "{told}");
    // Several tags, so that every node has some.
    for tag in ["shop-0", "shop-1", "shop-2", "shop-3", "shop-4"] {
        let effects = effects.clone().within(tag).unwrap();
        for repetition in [false, true] {
            let answer = run(&effects, &mut db, &named("k", "a"), &push(tag)).await.unwrap();
            assert_eq!(answer.replayed, repetition, "{tag}");
        }
        let length: i64 = cmd(&["LLEN", &format!("{{{tag}}}:effect")]).query_async(&mut db).await.unwrap();
        assert_eq!(length, 1);
        let ledger = Ledger::connect(&format!("{}&effects_tag={tag}", cluster.url())).await.unwrap();
        let records = ledger.records(Keys { limit: 10, ..Keys::default() }).await.unwrap();
        assert_eq!(records.len(), 1, "{tag}");
        let heard = Heard::default();
        let mut relay = Relay::new(ledger.clone(), tag, Box::new(heard.clone())).unwrap();
        relay.run(&leases, Until::Empty).await.unwrap();
        assert_eq!(*heard.0.lock().unwrap(), ["k"], "{tag}");
        let waiting = Events { queue: Some(Queue::Waiting), limit: 10, ..Events::default() };
        assert!(ledger.events(waiting).await.unwrap().is_empty());
        // A key of another slot is refused before anything happens.
        let told = run(&effects, &mut db, &named("far", "a"), &push("elsewhere")).await.unwrap_err();
        assert!(matches!(&told, NotDone::Failed(error) if error.kind() == Kind::Invalid), "{told}");
    }
}

/// Without a tag of their own operations share the fence with whatever else is fenced on the server, and an operator may raise it.
#[tokio::test(flavor = "multi_thread")]
async fn operations_without_a_tag_use_the_fence_of_the_server() {
    let server = RedisSetup::new().start().unwrap();
    let leases = client(&MemoryStore::default(), "plain").await;
    let effects = RedisEffects::new(&leases, Rules::default()).unwrap();
    let mut db = connection(&server.url()).await;
    let push = [owned(&["RPUSH", "effect", "x"])];
    let paid = run(&effects, &mut db, &named("k", "a"), &push).await.unwrap();
    let fence = Fence::connect(&server.url()).await.unwrap();
    let (namespace, resource) = (leases.namespace().clone(), leasehold::Resource::new("a").unwrap());
    assert_eq!(fence.look(&namespace, &resource).await.unwrap().unwrap().token, paid.token);
    let ledger = Ledger::connect(&server.url()).await.unwrap();
    assert!(ledger.record(&Key::new("pay", "k").unwrap()).await.unwrap().is_some());
    let higher = leasehold::Token::new(paid.token.get() + 60_000_000).unwrap();
    fence.raise(&namespace, &resource, higher, &leasehold::Label::default()).await.unwrap();
    let told = run(&effects, &mut db, &named("later", "a"), &push).await.unwrap_err();
    assert!(matches!(&told, NotDone::NotAdmitted(no) if no.is_stale()), "{told}");
    // The next grant is above it.
    assert!(!run(&effects, &mut db, &named("later", "a"), &push).await.unwrap().replayed);
}

/// Names and values that could be taken for something else: for a hash tag, a command, a script, the end of a word.
const HOSTILE: [&str; 10] = [
    "{x}",
    "}",
    "a\r\nSET b 1",
    "'; redis.call('FLUSHALL') --",
    "]]",
    "%s%n\\",
    "\u{1b}[2J",
    "*3\r\n$3\r\nDEL",
    "ключ 🗝",
    "(\u{1}",
];

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_and_values_are_only_names_and_values() {
    let bank = Bank::redis();
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let (effects, mut db) = (worker.redis(), bank.connection().await);
    let long = "x".repeat(255);
    let names: Vec<&str> = HOSTILE.iter().copied().chain([long.as_str()]).collect();
    for name in &names {
        let key = Key::new(name, name).unwrap();
        let request = Request::new(name, name).unwrap();
        let list = bank.list(name);
        for repetition in [false, true] {
            let ran = effects.run(&mut db, &key, &request, |tx| {
                let (list, name) = (list.clone(), (*name).to_owned());
                Box::pin(async move {
                    tx.command(&cmd(&["RPUSH", &list, &name]), &[&list])
                        .map_err(|error| error.to_string())?;
                    tx.emit(&name, &json!({ &name: &name })).map_err(|error| error.to_string())?;
                    Ok::<_, String>(json!(name))
                })
            });
            let answer = ran.await.unwrap();
            assert_eq!((answer.response, answer.replayed), (json!(name), repetition), "{name:?}");
        }
        let stored: Vec<String> = cmd(&["LRANGE", &list, "0", "-1"]).query_async(&mut db).await.unwrap();
        assert_eq!(stored, [*name]);
        let scope = Keys { scope: Some((*name).to_owned()), limit: 10, ..Keys::default() };
        let found = bank.ledger().await.records(scope).await.unwrap();
        assert_eq!(found.iter().map(|record| &record.key).collect::<Vec<_>>(), [&key], "{name:?}");
    }
    // All of them, in order, page by page.
    let (ledger, mut after, mut all) = (bank.ledger().await, None, Vec::new());
    loop {
        let page = ledger.records(Keys { after, limit: 2, ..Keys::default() }).await.unwrap();
        all.extend(page.iter().map(|record| record.key.as_str().to_owned()));
        if page.len() < 2 {
            break;
        }
        after = page.last().map(|record| record.key.clone());
    }
    let mut expected: Vec<&str> = names.clone();
    expected.sort_unstable();
    assert_eq!(all, expected);
    let events = ledger.events(Events { limit: 100, ..Events::default() }).await.unwrap();
    assert_eq!(events.iter().map(|event| event.topic.as_str()).collect::<Vec<_>>(), names);
}

/// Keys of ours under which somebody else has put something are found before anything happens.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_somebody_else_has_written_to_stop_an_operation_before_its_effect() {
    for key in ["keys", "open", "old", "outbox", "waiting", "last", "key:pay\0k"] {
        let bank = Bank::redis();
        let Bank::Redis { tag, .. } = &bank else { unreachable!() };
        let mut db = bank.connection().await;
        cmd(&["SET", &format!("lheffects:{{{tag}}}:{key}"), "x"]).exec_async(&mut db).await.unwrap();
        let worker = Worker::new(&bank, &MemoryStore::default()).await;
        let told = worker.pay("k", BODY).await.unwrap_err();
        assert!(matches!(&told, NotDone::Failed(error) if error.kind() == Kind::Corrupt), "{key}: {told}");
        assert_eq!(bank.lua("return redis.call('EXISTS', ARGV[1])").await, 0, "{key}");
    }
}

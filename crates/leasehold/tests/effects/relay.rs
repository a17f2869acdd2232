//! The outbox and its relay.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Bytes, http::StatusCode, routing::post};
use leasehold::{
    address::Secret,
    coordinator::memory::MemoryStore,
    effects::{
        Event, Events, Fate, Queue, Working,
        failpoint::{Hook, Point},
        relay::{Lines, NotPublished, Pace, Relay, Sink, Until, Webhook},
        sqlite,
    },
};
use serde_json::Value;

use crate::{
    common::{client, eventually, faulty},
    world::{BODY, Bank, Worker, die, to_its_end},
};

/// A far end that keeps what it gets, and refuses what it is told to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf {
    got: Arc<Mutex<Vec<Event>>>,
    refused: Arc<Mutex<HashMap<u64, u32>>>,
    pub(crate) down: Arc<AtomicBool>,
}

impl Shelf {
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.got.lock().unwrap().iter().map(|event| event.id).collect()
    }
}

impl Sink for Shelf {
    fn publish<'a>(&'a mut self, event: &'a Event, envelope: &'a Value) -> Working<'a, (), NotPublished> {
        Box::pin(async move {
            assert_eq!(envelope["id"], event.id.to_string());
            if self.down.load(Ordering::SeqCst) {
                return Err(NotPublished::Down { why: "closed".into(), again_in: None });
            }
            if let Some(times) = self.refused.lock().unwrap().get_mut(&event.id).filter(|times| **times > 0) {
                *times -= 1;
                return Err(NotPublished::Event("indigestible".into()));
            }
            self.got.lock().unwrap().push(event.clone());
            Ok(())
        })
    }
}

pub(crate) const PACE: Pace = Pace {
    poll: Duration::from_millis(10),
    recheck: Duration::from_millis(10),
    batch: 3,
    retry: Duration::from_millis(1),
    retry_cap: Duration::from_millis(5),
    attempts: 3,
};

async fn relay(bank: &Bank, sink: &Shelf) -> Relay {
    Relay::new(bank.ledger().await, "main", Box::new(sink.clone())).unwrap().pace(PACE)
}

/// Waits until so many events are settled: other tests have transactions on the same server, and older ones are waited for.
async fn settled(bank: &Bank, many: usize) {
    let ledger = bank.ledger().await;
    for _ in 0..12_000 {
        if ledger.due(100).await.unwrap().events.len() == many {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{many} events are not settled");
}

pub(crate) async fn waiting(bank: &Bank) -> Vec<u64> {
    let which = Events { queue: Some(Queue::Waiting), limit: 100, ..Events::default() };
    bank.ledger().await.events(which).await.unwrap().iter().map(|event| event.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_published_in_order_and_noted() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        let worker = Worker::new(&bank, &store).await;
        for n in 0..7 {
            worker.pay_on("accounts/a", &format!("{n}"), BODY).await.unwrap();
        }
        let shelf = Shelf::default();
        relay(&bank, &shelf).await.run(&client(&store, "relay").await, Until::Empty).await.unwrap();
        let keys: Vec<String> =
            shelf.got.lock().unwrap().iter().map(|event| event.key.as_str().to_owned()).collect();
        assert_eq!(keys, ["0", "1", "2", "3", "4", "5", "6"], "{}", bank.name());
        assert!(waiting(&bank).await.is_empty());
    }
}

/// How long the oldest event has waited, by the database's clock, and that nothing waits any more.
#[tokio::test(flavor = "multi_thread")]
async fn the_lag_is_that_of_the_oldest_event_that_waits() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        let worker = Worker::new(&bank, &store).await;
        let ledger = bank.ledger().await;
        assert_eq!(ledger.due(10).await.unwrap().lag, Duration::ZERO, "{}", bank.name());
        worker.pay("old", BODY).await.unwrap();
        eventually("a lag", async || ledger.due(10).await.unwrap().lag > Duration::from_millis(50)).await;
        worker.pay("new", BODY).await.unwrap();
        let due = ledger.due(10).await.unwrap();
        assert!(due.waiting == 2 && due.lag > Duration::from_millis(50), "{}: {due:?}", bank.name());
        let shelf = Shelf::default();
        relay(&bank, &shelf).await.run(&client(&store, "relay").await, Until::Empty).await.unwrap();
        let due = ledger.due(10).await.unwrap();
        assert_eq!((due.waiting, due.lag), (0, Duration::ZERO), "{}", bank.name());
    }
}

/// Numbers are drawn before commits: the higher one may be committed first. Nothing is skipped, and the order is that of commits.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_transaction_that_commits_late_is_not_skipped() {
    let bank = Bank::postgres().await;
    let store = MemoryStore::default();
    let leases = client(&store, "relay").await;
    let mut slow = bank.client().await;
    let tx = slow.transaction().await.unwrap();
    tx.batch_execute(
        "INSERT INTO leasehold.outbox (namespace, resource, token, scope, key, topic, op_seq, payload)
         VALUES ('default', 'accounts/slow', 1, 'pay', 'slow', 'paid', 1, '{}')",
    )
    .await
    .unwrap();
    Worker::new(&bank, &store).await.pay("quick", BODY).await.unwrap();
    let shelf = Shelf::default();
    let mut relay = relay(&bank, &shelf).await;
    let lease = leases.lease("outbox/main").acquire().await.unwrap();
    relay.seal(&lease).await.unwrap();
    let turn = relay.turn(&lease).await.unwrap();
    assert_eq!((turn.published, turn.waiting), (0, 1), "an older transaction may still bring something");
    tx.commit().await.unwrap();
    settled(&bank, 2).await;
    relay.turn(&lease).await.unwrap();
    let keys: Vec<String> =
        shelf.got.lock().unwrap().iter().map(|event| event.key.as_str().to_owned()).collect();
    assert_eq!(keys, ["slow", "quick"]);
    let _ = lease.release().await.unwrap();
}

/// A relay that dies between a delivery and its note delivers again; the inbox of the consumer drops it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_note_delivers_twice_and_the_inbox_drops_it() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        Worker::new(&bank, &store).await.pay("k", BODY).await.unwrap();
        let shelf = Shelf::default();
        let (leases, faults) = faulty(&store).await;
        let doomed = relay(&bank, &shelf).await.failing(Hook::new(move |point| {
            let faults = Arc::clone(&faults);
            Box::pin(async move {
                if point == Point::Published {
                    die(&faults);
                }
            })
        }));
        let mut doomed = doomed;
        assert!(
            to_its_end(async move { doomed.run(&leases, Until::Empty).await.map_err(|e| e.to_string()) })
                .await
                .is_none()
        );
        relay_for(&bank, &shelf, &store).await;
        let ids = shelf.ids();
        assert!(ids.len() == 2 && ids[0] == ids[1], "{}: {ids:?}", bank.name());
        // The consumer, in its own transaction with what it does.
        let mut acted = 0;
        for id in ids {
            acted += u32::from(receive(&bank, id).await);
        }
        assert_eq!(acted, 1, "{}", bank.name());
    }
}

async fn relay_for(bank: &Bank, shelf: &Shelf, store: &MemoryStore) {
    let leases = freed(store).await;
    relay(bank, shelf).await.run(&leases, Until::Empty).await.unwrap();
}

/// A client that need not wait for a relay which has died.
pub(crate) async fn freed(store: &MemoryStore) -> leasehold::Leases {
    // The lease of a relay lasts for 30 s; an operator frees that of the dead one.
    let leases = client(store, "relay").await;
    let resource = leasehold::Resource::new("outbox/main").unwrap();
    if let Some(record) = leases.inspect(&resource).await.unwrap().record {
        let revocation = leasehold::core::request::Revocation {
            resource,
            token: record.token,
            by: leasehold::Label::new("test").unwrap(),
            reason: leasehold::Label::default(),
            now: true,
        };
        let _ = leases.revoke(revocation).await.unwrap();
    }
    leases
}

async fn receive(bank: &Bank, id: u64) -> bool {
    match bank {
        Bank::Sqlite { .. } => {
            let mut db = bank.file();
            let tx = db.transaction().unwrap();
            let first = sqlite::receive(&tx, "bank", id).unwrap();
            tx.commit().unwrap();
            first
        }
        Bank::Postgres { .. } => {
            let worker = Worker::new(bank, &MemoryStore::default()).await;
            let mut client = bank.client().await;
            let tx = client.transaction().await.unwrap();
            let first = worker.postgres().receive(&tx, "bank", id).await.unwrap();
            tx.commit().await.unwrap();
            first
        }
        // In Redis the inbox is an operation whose key is the event's.
        Bank::Redis { .. } => {
            let worker = Worker::new(bank, &MemoryStore::default()).await;
            !worker.pay_on("consumer", &format!("inbox bank {id}"), BODY).await.unwrap().replayed
        }
    }
}

/// An event that is refused is tried again, holds up what comes behind it on its resource and nothing else, and is set aside in the
/// end. A person decides about it then.
#[tokio::test(flavor = "multi_thread")]
async fn a_poisonous_event_is_set_aside_and_holds_up_only_its_own_resource() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        let worker = Worker::new(&bank, &store).await;
        for (resource, key) in [("a", "poison"), ("a", "behind"), ("b", "elsewhere")] {
            worker.pay_on(resource, key, BODY).await.unwrap();
        }
        settled(&bank, 3).await;
        let ids = waiting(&bank).await;
        let shelf = Shelf::default();
        shelf.refused.lock().unwrap().insert(ids[0], 3);
        let leases = client(&store, "relay").await;
        let lease = leases.lease("outbox/main").acquire().await.unwrap();
        let mut relay = relay(&bank, &shelf).await;
        relay.seal(&lease).await.unwrap();
        let first = relay.turn(&lease).await.unwrap();
        assert_eq!((first.published, first.failed, first.set_aside), (1, 1, 0), "{}", bank.name());
        assert_eq!(shelf.ids(), [ids[2]], "what is elsewhere goes on");
        let mut set_aside = 0;
        while set_aside == 0 {
            let turn = relay.turn(&lease).await.unwrap();
            assert_eq!(turn.published, 0, "nothing passes it");
            set_aside = turn.set_aside;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let _ = lease.release().await.unwrap();
        relay_for(&bank, &shelf, &store).await;
        assert_eq!(shelf.ids(), [ids[2], ids[1]]);
        let ledger = bank.ledger().await;
        let aside = ledger.event(ids[0]).await.unwrap().unwrap();
        assert_eq!(
            (aside.queue(), aside.attempts, aside.error.as_deref()),
            (Queue::SetAside, 3, Some("indigestible"))
        );
        let by = leasehold::Label::new("ada").unwrap();
        assert!(ledger.decide(ids[0], Fate::Retry, &by).await.unwrap());
        relay_for(&bank, &shelf, &store).await;
        assert_eq!(shelf.ids(), [ids[2], ids[1], ids[0]]);
        assert!(!ledger.decide(ids[0], Fate::SetAside, &by).await.unwrap(), "what is published is published");
    }
}

/// A far end that takes nothing is no event's fault.
#[tokio::test(flavor = "multi_thread")]
async fn a_far_end_that_is_down_costs_no_event_an_attempt() {
    let bank = Bank::sqlite();
    let store = MemoryStore::default();
    Worker::new(&bank, &store).await.pay("k", BODY).await.unwrap();
    let shelf = Shelf::default();
    shelf.down.store(true, Ordering::SeqCst);
    let lease = client(&store, "relay").await.lease("outbox/main").acquire().await.unwrap();
    let mut relay = relay(&bank, &shelf).await;
    relay.seal(&lease).await.unwrap();
    for _ in 0..10 {
        assert!(relay.turn(&lease).await.unwrap().down.is_some());
    }
    shelf.down.store(false, Ordering::SeqCst);
    assert_eq!(relay.turn(&lease).await.unwrap().published, 1);
    assert_eq!(shelf.got.lock().unwrap()[0].attempts, 0);
    let _ = lease.release().await.unwrap();
}

/// A relay that was overtaken notes nothing: its successor's notes stand.
#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_relay_notes_nothing() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        Worker::new(&bank, &store).await.pay("k", BODY).await.unwrap();
        settled(&bank, 1).await;
        let id = waiting(&bank).await[0];
        let shelf = Shelf::default();
        shelf.refused.lock().unwrap().insert(id, 1);
        let leases = client(&store, "relay").await;
        let old = leases.lease("outbox/main").acquire().await.unwrap();
        let mut relay = relay(&bank, &shelf).await;
        relay.seal(&old).await.unwrap();
        // The later one has another coordinator; its token is higher.
        let new = client(&MemoryStore::default(), "new").await.lease("outbox/main").acquire().await.unwrap();
        assert!(new.token() > old.token());
        relay.seal(&new).await.unwrap();
        assert!(relay.turn(&old).await.is_err());
        assert_eq!(bank.ledger().await.event(id).await.unwrap().unwrap().attempts, 0, "{}", bank.name());
        assert_eq!(relay.turn(&new).await.unwrap().published, 1);
        drop((old, new));
    }
}

/// Headers and body of a request.
type Got = (BTreeMap<String, String>, Value);

/// The JSON that leaves, as lines and as requests to an endpoint that is not always well.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gets_cloud_events_and_is_believed_only_when_it_says_yes() {
    let bank = Bank::sqlite();
    let store = MemoryStore::default();
    let answer = Worker::new(&bank, &store).await.pay("k", BODY).await.unwrap();
    let got: Arc<Mutex<Vec<Got>>> = Arc::default();
    let answers = Arc::new(Mutex::new(vec![
        StatusCode::OK,
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::SERVICE_UNAVAILABLE,
    ]));
    let (seen, next) = (got.clone(), answers.clone());
    let endpoint = move |headers: axum::http::HeaderMap, body: Bytes| async move {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        seen.lock().unwrap().push((headers, serde_json::from_slice(&body).unwrap()));
        next.lock().unwrap().pop().unwrap_or(StatusCode::OK)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let app: Router = Router::new().route("/events", post(endpoint));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let hook = Webhook::new(&url).unwrap().authorization(&Secret::new("Bearer s3cret")).unwrap();
    let mut relay = Relay::new(bank.ledger().await, "main", Box::new(hook)).unwrap().pace(PACE);
    relay.run(&client(&store, "relay").await, Until::Empty).await.unwrap();
    let got = got.lock().unwrap().clone();
    assert_eq!(got.len(), 3, "503, 500, 200");
    let (headers, event) = &got[2];
    assert_eq!(headers["content-type"], "application/cloudevents+json");
    assert_eq!(headers["authorization"], "Bearer s3cret");
    assert_eq!(headers["idempotency-key"], "\"/leasehold/outbox/main/1\"");
    assert_eq!(
        (&event["id"], &event["type"], &event["subject"]),
        (&"1".into(), &"paid".into(), &"accounts/k".into())
    );
    assert_eq!(
        (&event["leaseholdtoken"], &event["data"]["key"]),
        (&answer.token.to_string().into(), &"k".into())
    );

    let lease = client(&store, "lines").await.lease("outbox/lines").acquire().await.unwrap();
    Worker::new(&bank, &store).await.pay("line", BODY).await.unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = Lines::new(file.reopen().unwrap());
    let mut relay = Relay::new(bank.ledger().await, "lines", Box::new(lines)).unwrap();
    relay.seal(&lease).await.unwrap();
    assert_eq!(relay.turn(&lease).await.unwrap().published, 1);
    let line: Value = serde_json::from_str(std::fs::read_to_string(file.path()).unwrap().trim()).unwrap();
    assert_eq!((&line["source"], &line["id"]), (&"/leasehold/outbox/lines".into(), &"2".into()));
    let _ = lease.release().await.unwrap();
}

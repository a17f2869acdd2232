//! A relay that rests is woken by what commits, and those who commit say nothing while none rests.

use std::{sync::atomic::Ordering, time::Duration};

use leasehold::{
    Label, Leases,
    coordinator::memory::MemoryStore,
    effects::{
        Fate, Ledger,
        relay::{Pace, Relay, Until},
    },
};
use leasehold_testkit::server::PgBouncer;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_postgres::{AsyncMessage, NoTls};

use crate::{
    common::client,
    relay::{PACE, Shelf, waiting},
    world::{BODY, Bank, Worker},
};

/// So long that only word explains what is published before. What is visible and not settled yet is polled for.
const RESTFUL: Pace = Pace { recheck: Duration::from_secs(3_600), ..PACE };

/// Whoever has the lock for itself: a relay that rests.
const RESTING: &str = "SELECT coalesce(max(l.pid), 0)::int8 FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
     WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' \
     AND l.objid = 'leasehold.outbox'::regclass::oid AND l.classid = hashtext('leasehold outbox')::oid";

/// A condition that comes, on the busiest of machines.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..6_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come about within a minute");
}

/// The process id of the resting relay's session.
async fn resting(bank: &Bank, other_than: i64) -> i64 {
    let mut pid = 0;
    until("a relay that rests", async || {
        pid = bank.number(RESTING).await;
        pid != 0 && pid != other_than
    })
    .await;
    pid
}

async fn start(bank: &Bank, shelf: &Shelf) -> (Leases, JoinHandle<()>) {
    let leases = client(&MemoryStore::default(), "relay").await;
    let mut relay = Relay::new(bank.ledger().await, "main", Box::new(shelf.clone())).unwrap().pace(RESTFUL);
    let its = leases.clone();
    let task = tokio::spawn(async move { relay.run(&its, Until::Forever).await.unwrap() });
    (leases, task)
}

async fn published(shelf: &Shelf, many: usize) {
    until("an event", async || shelf.ids().len() == many).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_relay_is_woken_by_the_commit_of_an_event() {
    let bank = Bank::postgres().await;
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let shelf = Shelf::default();
    let (_leases, task) = start(&bank, &shelf).await;
    for n in 0..3 {
        resting(&bank, 0).await;
        worker.pay(&n.to_string(), BODY).await.unwrap();
        published(&shelf, n + 1).await;
    }
    // Also by a person's decision.
    worker.pay("aside", BODY).await.unwrap();
    published(&shelf, 4).await;
    let id = shelf.ids()[3];
    bank.execute(&format!(
        "UPDATE leasehold.outbox SET published_at = NULL, set_aside_at = clock_timestamp() WHERE id = {id}"
    ))
    .await;
    until("nothing that waits", async || waiting(&bank).await.is_empty()).await;
    resting(&bank, 0).await;
    assert!(bank.ledger().await.decide(id, Fate::Retry, &Label::new("ada").unwrap()).await.unwrap());
    published(&shelf, 5).await;
    task.abort();
    // A relay that is gone rests no more.
    let _ = task.await;
    until("the end of its session", async || bank.number(RESTING).await == 0).await;
}

/// Each is asked for the moment the one before it is published, which is when the relay is about to rest.
#[tokio::test(flavor = "multi_thread")]
async fn no_event_falls_between_looking_and_resting() {
    let bank = Bank::postgres().await;
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let shelf = Shelf::default();
    let (_leases, task) = start(&bank, &shelf).await;
    for n in 0..60 {
        worker.pay(&n.to_string(), BODY).await.unwrap();
        published(&shelf, n + 1).await;
    }
    task.abort();
}

/// A relay with something to do looks by itself, and lets those who commit be silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_waits_for_its_far_end_asks_nobody_for_word() {
    let bank = Bank::postgres().await;
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let shelf = Shelf::default();
    let (_leases, task) = start(&bank, &shelf).await;
    resting(&bank, 0).await;
    shelf.down.store(true, Ordering::SeqCst);
    worker.pay("k", BODY).await.unwrap();
    until("a relay that does not rest", async || bank.number(RESTING).await == 0).await;
    shelf.down.store(false, Ordering::SeqCst);
    published(&shelf, 1).await;
    resting(&bank, 0).await;
    task.abort();
}

/// The lock is what makes it exact: no relay goes to rest while a transaction is under way that has added an event in silence.
#[tokio::test(flavor = "multi_thread")]
async fn no_relay_rests_behind_the_back_of_an_open_transaction() {
    let bank = Bank::postgres().await;
    let mut slow = bank.client().await;
    let tx = slow.transaction().await.unwrap();
    tx.batch_execute(
        "INSERT INTO leasehold.outbox (namespace, resource, token, scope, key, topic, op_seq, payload)
         VALUES ('default', 'accounts/slow', 1, 'pay', 'slow', 'paid', 1, '{}')",
    )
    .await
    .unwrap();
    let shelf = Shelf::default();
    let (_leases, task) = start(&bank, &shelf).await;
    until("an attempt to rest", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' \
             AND query LIKE '%pg_try_advisory_lock(%'";
        bank.number(sql).await > 0
    })
    .await;
    assert_eq!(bank.number(RESTING).await, 0);
    tx.commit().await.unwrap();
    published(&shelf, 1).await;
    resting(&bank, 0).await;
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_cut_off_looks_at_once_and_listens_again() {
    let bank = Bank::postgres().await;
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let shelf = Shelf::default();
    let (_leases, task) = start(&bank, &shelf).await;
    let first = resting(&bank, 0).await;
    let cut = bank.number(&format!("SELECT pg_terminate_backend({first})::int::int8")).await;
    assert_eq!(cut, 1);
    resting(&bank, first).await;
    worker.pay("k", BODY).await.unwrap();
    published(&shelf, 1).await;
    task.abort();
}

/// Tables of an earlier version give no word: then the relay looks from time to time, as ever.
#[tokio::test(flavor = "multi_thread")]
async fn tables_without_the_trigger_are_looked_at_from_time_to_time() {
    let bank = Bank::postgres().await;
    bank.execute("DROP TRIGGER outbox_wake ON leasehold.outbox").await;
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let shelf = Shelf::default();
    let (_leases, task) = start(&bank, &shelf).await;
    for n in 0..3 {
        worker.pay(&n.to_string(), BODY).await.unwrap();
        published(&shelf, n + 1).await;
    }
    assert_eq!(bank.number(RESTING).await, 0);
    task.abort();
    // `install` brings them up to date.
    bank.ledger().await.install(Vec::new()).await.unwrap();
    let triggers =
        "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'leasehold.outbox'::regclass AND NOT tgisinternal";
    assert_eq!(bank.number(triggers).await, 1);
}

/// A pooler lends its sessions out: nothing is heard there, and a lock that is kept would be somebody else's.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_no_relay_rests_unless_a_direct_address_is_named() {
    let bank = Bank::postgres().await;
    let Bank::Postgres { server, name, .. } = &bank else { panic!("no server") };
    let bouncer = PgBouncer::start(server, 4).unwrap();
    bouncer.warm(name).unwrap();
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let direct = bank.url();
    for (url, rests) in
        [(bouncer.url(name), false), (format!("{}?listen_url={direct}", bouncer.url(name)), true)]
    {
        let shelf = Shelf::default();
        let leases = client(&MemoryStore::default(), "relay").await;
        let ledger = Ledger::connect(&url).await.unwrap();
        let mut relay = Relay::new(ledger, "main", Box::new(shelf.clone())).unwrap().pace(RESTFUL);
        let its = leases.clone();
        let task = tokio::spawn(async move { relay.run(&its, Until::Forever).await });
        if rests {
            resting(&bank, 0).await;
        }
        worker.pay(&format!("{rests}"), BODY).await.unwrap();
        published(&shelf, 1).await;
        if !rests {
            assert_eq!(bank.number(RESTING).await, 0);
        }
        task.abort();
    }
}

/// Commits that notify wait for one another; so nobody notifies while no relay rests.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_gives_word_while_no_relay_rests() {
    let bank = Bank::postgres().await;
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let (listener, mut connection) = tokio_postgres::connect(&bank.url(), NoTls).await.unwrap();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                tell.send(notification.payload().to_owned()).unwrap();
            }
        }
    });
    let oid = bank.number("SELECT 'leasehold.outbox'::regclass::oid::int8").await;
    listener.batch_execute(&format!("LISTEN leasehold_outbox_{oid}")).await.unwrap();
    worker.pay("in silence", BODY).await.unwrap();
    let rests = bank.client().await;
    rests
        .query_one(
            "SELECT pg_advisory_lock(hashtext('leasehold outbox'), 'leasehold.outbox'::regclass::oid::int4)",
            &[],
        )
        .await
        .unwrap();
    worker.pay("aloud", BODY).await.unwrap();
    rests.batch_execute(&format!("NOTIFY leasehold_outbox_{oid}, 'end'")).await.unwrap();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|word| word != "end") {
        heard.push(told.recv().await.unwrap());
    }
    assert_eq!(heard, ["", "end"]);
}

//! What a key does for one request, its repetitions, and others.

use std::time::Duration;

use leasehold::{
    Kind, Leases, Wait,
    coordinator::memory::MemoryStore,
    effects::{Events, Found, Keep, Key, Keys, NotDone, Queue, Request, State, sqlite::SqliteEffects},
};
use serde_json::json;

use crate::{
    common::client,
    world::{BODY, Bank, Worker, rules},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_is_answered_and_not_carried_out() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        let worker = Worker::new(&bank, &store).await;
        let first = worker.pay("k", BODY).await.unwrap();
        assert!(!first.replayed);
        let again = Worker::new(&bank, &store).await.pay("k", BODY).await.unwrap();
        assert!(again.replayed);
        assert_eq!((&again.response, again.token), (&first.response, first.token));
        assert_eq!(bank.counts().await, (1, 1, 1));
    }
}

/// A key that is done is answered whoever has the resource, with a coordinator that cannot be reached.
#[tokio::test(flavor = "multi_thread")]
async fn a_done_key_is_answered_without_a_lease_whatever_its_token() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        let worker = Worker::new(&bank, &store).await;
        let first = worker.pay("k", BODY).await.unwrap();
        let other = client(&store, "other").await;
        let held = other.lease("accounts/k").wait(Duration::from_secs(30)).acquire().await.unwrap();
        assert!(held.token() > first.token);
        worker.faults.unreachable.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(worker.pay("k", BODY).await.unwrap().replayed);
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_under_the_same_key_is_refused() {
    for bank in Bank::all().await {
        let worker = Worker::new(&bank, &MemoryStore::default()).await;
        worker.pay("k", BODY).await.unwrap();
        let other_body = worker.pay("k", r#"{"amount": 31}"#).await;
        assert!(
            matches!(&other_body, Err(NotDone::KeyReused(record)) if record.key.as_str() == "k"),
            "{other_body:?}"
        );
        let other_resource = worker.pay_on("accounts/other", "k", BODY).await;
        assert!(matches!(other_resource, Err(NotDone::KeyReused(_))), "{other_resource:?}");
        assert!(!other_resource.unwrap_err().is_transient());
        assert_eq!(bank.counts().await, (1, 1, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_resource_is_told_and_nothing_is_done() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        let held = client(&store, "other").await.lease("accounts/k").acquire().await.unwrap();
        let worker = Worker::new(&bank, &store).await.ruled(rules().wait(Wait::No));
        let busy = worker.pay("k", BODY).await.unwrap_err();
        assert!(matches!(&busy, NotDone::Busy(no) if no.is_contended()) && busy.is_transient(), "{busy}");
        let _ = held.release().await.unwrap();
        assert_eq!(bank.counts().await, (0, 0, 0));
    }
}

/// Work that fails takes everything with it: key, effect and events.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_fails_leaves_nothing_and_may_be_repeated() {
    let bank = Bank::sqlite();
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let (key, request) = (Key::new("pay", "k").unwrap(), Request::new("accounts/k", BODY).unwrap());
    let failed = worker
        .sqlite()
        .run(&mut bank.file(), &key, &request, |tx| {
            tx.execute("INSERT INTO effect VALUES ('k', 1)", []).unwrap();
            tx.emit("paid", &json!({})).unwrap();
            Err("no money".to_owned())
        })
        .await;
    assert!(matches!(&failed, Err(NotDone::Effect(why)) if why == "no money"), "{failed:?}");
    let bank = Bank::postgres().await;
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let failed = worker
        .postgres()
        .run(&mut bank.client().await, &key, &request, |tx| {
            Box::pin(async move {
                tx.execute("INSERT INTO effect VALUES ('k', 1)", &[]).await.unwrap();
                tx.emit("paid", &json!({})).await.unwrap();
                Err("no money".to_owned())
            })
        })
        .await;
    assert!(matches!(&failed, Err(NotDone::Effect(why)) if why == "no money"), "{failed:?}");
    assert_eq!(bank.counts().await, (0, 0, 0));
    assert!(!worker.pay("k", BODY).await.unwrap().replayed);
    let bank = Bank::redis();
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let list = bank.list("effect");
    let failed = worker
        .redis()
        .run(&mut bank.connection().await, &key, &request, |tx| {
            Box::pin(async move {
                let mut push = leasehold::fence::redis::redis::cmd("RPUSH");
                push.arg(&list).arg("k");
                tx.command(&push, &[&list]).unwrap();
                tx.emit("paid", &json!({})).unwrap();
                Err("no money".to_owned())
            })
        })
        .await;
    assert!(matches!(&failed, Err(NotDone::Effect(why)) if why == "no money"), "{failed:?}");
    assert_eq!(bank.counts().await, (0, 0, 0));
    assert!(!worker.pay("k", BODY).await.unwrap().replayed);
}

/// Work that takes too long is rolled back, and does not hold its successor up.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_takes_longer_than_max_exec_is_rolled_back() {
    let bank = Bank::postgres().await;
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let worker = worker.ruled(rules().ttl(Duration::from_secs(30)).max_exec(Duration::from_millis(200)));
    let (key, request) = (Key::new("pay", "k").unwrap(), Request::new("accounts/k", BODY).unwrap());
    let late = worker
        .postgres()
        .run(&mut bank.client().await, &key, &request, |tx| {
            Box::pin(async move {
                tx.execute("INSERT INTO effect VALUES ('k', 1)", &[])
                    .await
                    .map_err(|error| error.to_string())?;
                std::future::pending::<()>().await;
                Ok::<_, String>(json!(null))
            })
        })
        .await
        .unwrap_err();
    assert!(matches!(late, NotDone::TooLong(_)), "{late}");
    assert_eq!(bank.counts().await, (0, 0, 0));
    let bank = Bank::redis();
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    let worker = worker.ruled(rules().ttl(Duration::from_secs(30)).max_exec(Duration::from_millis(200)));
    let late = worker
        .redis()
        .run(&mut bank.connection().await, &key, &request, |_| {
            Box::pin(std::future::pending::<Result<_, String>>())
        })
        .await
        .unwrap_err();
    assert!(matches!(late, NotDone::TooLong(_)), "{late}");
    assert_eq!(bank.counts().await, (0, 0, 0));
}

/// Lets the time of all keys be over but `new`'s, un-does `started`, and publishes all events but that of `waiting`.
async fn grow_old(bank: &Bank) {
    if bank.is_redis() {
        let script = r"
            for _, name in ipairs(redis.call('ZRANGE', KEYS[1] .. 'keys', 0, -1)) do
                local record, key = KEYS[1] .. 'key:' .. name, string.match(name, '%a+$')
                if key ~= 'new' then
                    redis.call('HSET', record, 'expires', '1')
                    redis.call('ZADD', KEYS[1] .. 'old', '1', name)
                end
                if key == 'started' then
                    redis.call('HSET', record, 'state', 'started')
                    redis.call('HDEL', record, 'done')
                    redis.call('ZADD', KEYS[1] .. 'open', 0, name)
                end
                if key ~= 'waiting' then
                    local id = redis.call('HGET', record, 'events')
                    redis.call('HSET', KEYS[1] .. 'event:' .. id, 'published', '1')
                    redis.call('ZREM', KEYS[1] .. 'waiting', id)
                end
            end";
        bank.lua(script).await;
        return;
    }
    let keys = bank.table("idempotency");
    let (past, column) =
        if bank.is_sqlite() { ("1", "expires_unix") } else { ("now() - interval '1 second'", "expires_at") };
    bank.execute(&format!("UPDATE {keys} SET {column} = {past} WHERE key <> 'new'")).await;
    let undone = if bank.is_sqlite() { "done_unix" } else { "done_at" };
    bank.execute(&format!("UPDATE {keys} SET state = 'started', {undone} = NULL WHERE key = 'started'"))
        .await;
    let (published, now) = if bank.is_sqlite() { ("published_unix", "1") } else { ("published_at", "now()") };
    let outbox = bank.table("outbox");
    bank.execute(&format!("UPDATE {outbox} SET {published} = {now} WHERE key <> 'waiting'")).await;
}

/// Keys are forgotten when their time is over by the database's clock: those that are done, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn only_done_keys_are_purged_and_only_when_their_time_is_over() {
    for bank in Bank::all().await {
        let worker = Worker::new(&bank, &MemoryStore::default()).await;
        let kept = rules().retry_horizon(Duration::from_secs(60));
        let worker = worker.ruled(kept.keep(Keep::For(kept.least())));
        for key in ["old", "new", "waiting", "started"] {
            worker.pay(key, BODY).await.unwrap();
        }
        grow_old(&bank).await;
        let ledger = bank.ledger().await;
        assert_eq!(ledger.purge().await.unwrap(), 1, "{}", bank.name());
        let left = ledger.records(Keys { limit: 10, ..Keys::default() }).await.unwrap();
        let left: Vec<&str> = left.iter().map(|record| record.key.as_str()).collect();
        assert_eq!(left, ["new", "started", "waiting"], "{}", bank.name());
        // After its time a late duplicate is carried out again: that is what the time is for.
        assert!(!worker.pay("old", BODY).await.unwrap().replayed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_would_be_forgotten_too_early_are_refused_with_the_figures() {
    let leases = Leases::connect("memory:").await.unwrap();
    let short = rules().keep(Keep::For(Duration::from_secs(60)));
    let told = SqliteEffects::new(&leases, short).unwrap_err();
    assert_eq!(told.kind(), Kind::Invalid);
    assert!(told.to_string().contains("retry_horizon 86400s") && told.to_string().contains("60s"), "{told}");
}

/// A compensation happens once however often it is asked for, under a later token; what never happened cannot be undone.
#[tokio::test(flavor = "multi_thread")]
async fn a_compensation_happens_once_and_under_the_fence() {
    use leasehold::{
        Error,
        effects::{postgres, redis, sqlite},
        fence::redis::redis::cmd as command,
    };
    let key = Key::new("pay", "k").unwrap();
    for bank in Bank::all().await {
        let worker = Worker::new(&bank, &MemoryStore::default()).await;
        let undo = async |key: &Key| match &bank {
            Bank::Sqlite { .. } => {
                let how = sqlite::Compensations::default().on("pay", |tx, record| {
                    assert_eq!(record.response.as_ref().unwrap()["paid"], record.key.as_str());
                    tx.execute("DELETE FROM effect WHERE key = ?1", [record.key.as_str()]).unwrap();
                    tx.emit("refunded", &json!({"key": record.key.as_str()}))?;
                    Ok(json!("refunded"))
                });
                worker.sqlite().compensate(&mut bank.file(), &how, key).await
            }
            Bank::Postgres { .. } => {
                let how = postgres::Compensations::default().on("pay", |tx, record| {
                    Box::pin(async move {
                        tx.execute("DELETE FROM effect WHERE key = $1", &[&record.key.as_str()])
                            .await
                            .unwrap();
                        tx.emit("refunded", &json!({"key": record.key.as_str()})).await?;
                        Ok::<_, Error>(json!("refunded"))
                    })
                });
                worker.postgres().compensate(&mut bank.client().await, &how, key).await
            }
            Bank::Redis { .. } => {
                let list = bank.list("effect");
                let how = redis::Compensations::default().on("pay", move |tx, record| {
                    let list = list.clone();
                    Box::pin(async move {
                        let mut remove = command("LREM");
                        remove.arg(&list).arg(0).arg(format!("{} {}", record.key.as_str(), record.token));
                        tx.command(&remove, &[&list])?;
                        tx.emit("refunded", &json!({"key": record.key.as_str()}))?;
                        Ok::<_, Error>(json!("refunded"))
                    })
                });
                worker.redis().compensate(&mut bank.connection().await, &how, key).await
            }
        };
        let nothing = undo(&key).await.unwrap_err();
        assert!(matches!(&nothing, NotDone::Failed(error) if error.kind() == Kind::Invalid), "{nothing}");
        let other = undo(&Key::new("other", "k").unwrap()).await.unwrap_err();
        assert!(matches!(&other, NotDone::Failed(error) if error.kind() == Kind::Unsupported), "{other}");
        let paid = worker.pay("k", BODY).await.unwrap();
        let (first, again) = (undo(&key).await.unwrap(), undo(&key).await.unwrap());
        assert!(
            !first.replayed && again.replayed && first.token > paid.token && first.response == "refunded"
        );
        assert_eq!(bank.counts().await, (2, 0, 2), "two operations, no effect left, two events");
        // What was undone stays done: a late repetition does not pay again.
        assert!(worker.pay("k", BODY).await.unwrap().replayed);
    }
}

/// What people see and settle.
#[tokio::test(flavor = "multi_thread")]
async fn people_see_what_is_there_and_settle_what_is_stuck() {
    for bank in Bank::all().await {
        let worker = Worker::new(&bank, &MemoryStore::default()).await;
        let answer = worker.pay("k", BODY).await.unwrap();
        let ledger = bank.ledger().await;
        let record = ledger.record(&Key::new("pay", "k").unwrap()).await.unwrap().unwrap();
        assert_eq!(
            (record.state, record.token, record.response),
            (State::Done, answer.token, Some(answer.response))
        );
        assert_eq!(record.lease_id, worker.faults.claims.lock().unwrap()[0], "the grant that did it");
        let waiting = Events { queue: Some(Queue::Waiting), limit: 10, ..Events::default() };
        let event = ledger.events(waiting).await.unwrap().pop().unwrap();
        assert_eq!((event.topic.as_str(), event.key.as_str(), event.token), ("paid", "k", answer.token));
        assert_eq!(ledger.event(event.id).await.unwrap().unwrap(), event);
        let by = "ada".parse_label();
        assert!(!ledger.resolve(&record.key, Found::NotDone, &by).await.unwrap(), "what is done stays done");
        let nobody = Key::new("pay", "nobody").unwrap();
        assert!(!ledger.resolve(&nobody, Found::NotDone, &by).await.unwrap());
        assert!(ledger.record(&nobody).await.unwrap().is_none());
        let missing =
            ledger.records(Keys { state: Some(State::Started), limit: 10, ..Keys::default() }).await.unwrap();
        assert!(missing.is_empty());
    }
}

trait ParseLabel {
    fn parse_label(&self) -> leasehold::Label;
}

impl ParseLabel for str {
    fn parse_label(&self) -> leasehold::Label {
        leasehold::Label::new(self).unwrap()
    }
}

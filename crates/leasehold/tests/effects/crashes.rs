//! The table of crashes and pauses, row by row: what is left, and what the next attempt does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Wait,
    coordinator::memory::MemoryStore,
    effects::{NotDone, failpoint::Point},
};
use leasehold_testkit::server::{Direction, Passage, Postgres, Proxy};
use tokio::sync::Notify;

use crate::world::{BODY, Bank, Outcome, TTL, Worker, rules, to_its_end};

/// Every point of an operation, and how many effects there are after a crash there.
const POINTS: [(Point, i64); 7] = [
    (Point::BeforeAcquire, 0),
    (Point::Acquired, 0),
    (Point::Sealed, 0),
    (Point::BeforeCheck, 0),
    (Point::Inserted, 0),
    (Point::BeforeCommit, 0),
    (Point::Committed, 1),
];

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_anywhere_the_next_attempt_does_the_rest() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        // In Redis there is nothing between the key and the effect.
        let reached = |(point, _): &(Point, i64)| !bank.is_redis() || *point != Point::Inserted;
        for (at, (point, left)) in POINTS.into_iter().filter(reached).enumerate() {
            let key = format!("{point:?}");
            let before = bank.counts().await;
            let doomed = Worker::new(&bank, &store).await.crashing_at(point);
            let named = key.clone();
            let ended = to_its_end(async move { doomed.pay(&named, BODY).await }).await;
            assert!(ended.is_none(), "{point:?} was not reached");
            let after = bank.counts().await;
            assert_eq!(after.1 - before.1, left, "{} {point:?}", bank.name());
            let next = Worker::new(&bank, &store).await.pay(&key, BODY).await.unwrap();
            assert_eq!(next.replayed, left == 1, "{} {point:?}", bank.name());
            let done = i64::try_from(at).unwrap() + 1;
            assert_eq!(bank.counts().await, (done, done, done), "{} {point:?}", bank.name());
        }
    }
}

/// The claim was granted and nobody heard of it: the same claim, asked again, has the same grant.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_of_the_coordinator_changes_nothing() {
    for bank in Bank::all().await {
        let worker = Worker::new(&bank, &MemoryStore::default()).await;
        worker.faults.lose_acquire_answers.store(1, Ordering::SeqCst);
        assert!(!worker.pay("k", BODY).await.unwrap().replayed);
        assert_eq!(bank.counts().await, (1, 1, 1));
    }
}

/// A worker that stops at a point until it is told to go on.
struct Stopped {
    reached: Arc<Notify>,
    go_on: Arc<Notify>,
    task: tokio::task::JoinHandle<Outcome>,
}

fn stopped_at(worker: Worker, stop: Point, resource: &'static str, key: &'static str) -> Stopped {
    let (reached, go_on, once) =
        (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (tell, wait) = (Arc::clone(&reached), Arc::clone(&go_on));
    let worker = worker.hooked(move |point| {
        let (tell, wait, once) = (Arc::clone(&tell), Arc::clone(&wait), Arc::clone(&once));
        Box::pin(async move {
            if point == stop && !once.swap(true, Ordering::SeqCst) {
                tell.notify_one();
                wait.notified().await;
            }
        })
    });
    let task = tokio::spawn(async move { worker.pay_on(resource, key, BODY).await });
    Stopped { reached, go_on, task }
}

/// Paused before the fence is asked; a successor has sealed meanwhile. Its write is refused, and nothing of it is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_before_the_fence_check_is_stale_once_a_successor_has_sealed() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        // In Redis the check comes with everything else.
        let point = if bank.is_redis() { Point::BeforeCommit } else { Point::BeforeCheck };
        let late = stopped_at(Worker::new(&bank, &store).await, point, "accounts/a", "late");
        late.reached.notified().await;
        // The lease of the paused one is taken by a successor, for another operation on the same resource. The paused
        // process keeps its lease alive here, so an operator ends it.
        let successor = Worker::new(&bank, &store).await;
        revoke(&successor, "accounts/a").await;
        successor.pay_on("accounts/a", "next", BODY).await.unwrap();
        late.go_on.notify_one();
        let told = late.task.await.unwrap().unwrap_err();
        assert!(matches!(&told, NotDone::NotAdmitted(no) if no.is_stale()), "{}: {told}", bank.name());
        assert_eq!(bank.counts().await, (1, 1, 1));
        // It asks again, as it is told to.
        let again = Worker::new(&bank, &store).await.pay_on("accounts/a", "late", BODY).await.unwrap();
        assert!(!again.replayed);
        assert_eq!(bank.counts().await, (2, 2, 2));
    }
}

async fn revoke(by: &Worker, resource: &str) {
    use leasehold::core::request::Revocation;
    let resource = leasehold::Resource::new(resource).unwrap();
    let record = by.leases.inspect(&resource).await.unwrap().record.unwrap();
    let _ = by
        .leases
        .revoke(Revocation {
            resource,
            token: record.token,
            by: leasehold::Label::new("test").unwrap(),
            reason: leasehold::Label::default(),
            now: true,
        })
        .await
        .unwrap();
}

/// Paused inside the transaction while its lease ends: the successor's seal waits for it, and the two never interleave. The one
/// inside finds its lease lost and rolls back.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_inside_the_transaction_holds_the_successor_up_and_never_interleaves() {
    let bank = Bank::postgres().await;
    let store = MemoryStore::default();
    let inside = stopped_at(Worker::new(&bank, &store).await, Point::Inserted, "accounts/a", "k");
    inside.reached.notified().await;
    let successor = Worker::new(&bank, &store).await;
    revoke(&successor, "accounts/a").await;
    let twin = tokio::spawn(async move { successor.pay_on("accounts/a", "k", BODY).await });
    somebody_waits(&bank).await;
    assert!(!twin.is_finished());
    inside.go_on.notify_one();
    let (inside, twin) = (inside.task.await.unwrap(), twin.await.unwrap().unwrap());
    match inside {
        Ok(_) => assert!(twin.replayed),
        Err(no) => assert!(matches!(no, NotDone::Lost(_)) && !twin.replayed),
    }
    assert_eq!(bank.counts().await, (1, 1, 1));
}

/// Paused before the commit with everything written: it commits, and the successor finds the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_before_the_commit_ends_in_one_effect() {
    let bank = Bank::postgres().await;
    let store = MemoryStore::default();
    let inside = stopped_at(Worker::new(&bank, &store).await, Point::BeforeCommit, "accounts/a", "k");
    inside.reached.notified().await;
    let successor = Worker::new(&bank, &store).await;
    revoke(&successor, "accounts/a").await;
    let twin = tokio::spawn(async move { successor.pay_on("accounts/a", "k", BODY).await });
    somebody_waits(&bank).await;
    inside.go_on.notify_one();
    assert!(!inside.task.await.unwrap().unwrap().replayed);
    assert!(twin.await.unwrap().unwrap().replayed);
    assert_eq!(bank.counts().await, (1, 1, 1));
}

/// A process that is stopped for good inside the transaction holds its successor up for `max_exec`, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_never_goes_on_is_ended_by_the_database() {
    let bank = Bank::postgres().await;
    let store = MemoryStore::default();
    let short = rules().max_exec(Duration::from_millis(500));
    let inside =
        stopped_at(Worker::new(&bank, &store).await.ruled(short), Point::BeforeCommit, "accounts/a", "k");
    inside.reached.notified().await;
    let successor = Worker::new(&bank, &store).await;
    revoke(&successor, "accounts/a").await;
    assert!(!successor.pay_on("accounts/a", "k", BODY).await.unwrap().replayed);
    inside.go_on.notify_one();
    assert!(inside.task.await.unwrap().is_err());
    assert_eq!(bank.counts().await, (1, 1, 1));
}

pub(crate) async fn somebody_waits(bank: &Bank) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let client = bank.client().await;
    for _ in 0..6_000 {
        if client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody waits for a lock");
}

/// The commit is sent and its answer is lost. Nobody knows; the key does, on the next connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_unknown_and_settled_by_the_key() {
    for arrives in [true, false] {
        let bank = Bank::postgres().await;
        let Bank::Postgres { server, name, .. } = &bank else { unreachable!() };
        let proxy = Arc::new(Proxy::start(server.address()).unwrap());
        let far = Postgres::url_at(proxy.address(), name);
        let (mut client, connection) = tokio_postgres::connect(&far, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let store = MemoryStore::default();
        let cut = Arc::clone(&proxy);
        let worker = Worker::new(&bank, &store).await.hooked(move |point| {
            let cut = Arc::clone(&cut);
            Box::pin(async move {
                if point == Point::BeforeCommit {
                    let lost = if arrives { Direction::ToClient } else { Direction::ToServer };
                    cut.set(lost, Passage::Lost);
                    // The commit needs a moment to arrive before the line is dead, or the moment in which it does not.
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        cut.cut();
                    });
                }
            })
        });
        let (key, request) = (
            leasehold::effects::Key::new("pay", "k").unwrap(),
            leasehold::effects::Request::new("accounts/k", BODY).unwrap(),
        );
        let told = worker
            .postgres()
            .run(&mut client, &key, &request, |tx| {
                Box::pin(async move {
                    tx.execute("INSERT INTO effect VALUES ('k', 1)", &[])
                        .await
                        .map_err(|error| error.to_string())?;
                    tx.emit("paid", &serde_json::json!({})).await.map_err(|error| error.to_string())?;
                    Ok::<_, String>(serde_json::json!("paid"))
                })
            })
            .await
            .unwrap_err();
        assert!(told.is_unknown() && told.is_transient(), "{told}");
        assert!(told.to_string().contains("same key"), "{told}");
        let settled = Worker::new(&bank, &store).await.pay("k", BODY).await.unwrap();
        assert!(settled.replayed || !arrives, "what had arrived was carried out again");
        assert_eq!(bank.counts().await, (1, 1, 1));
    }
}

/// After the commit and before the release: the answer is there at once, the resource after the TTL at the latest.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_behind_the_commit_the_resource_is_busy_for_no_longer_than_the_ttl() {
    for bank in Bank::all().await {
        let store = MemoryStore::default();
        let doomed = Worker::new(&bank, &store).await.crashing_at(Point::Committed);
        assert!(to_its_end(async move { doomed.pay_on("accounts/a", "k", BODY).await }).await.is_none());
        let next = Worker::new(&bank, &store).await.ruled(rules().wait(Wait::No));
        assert!(next.pay_on("accounts/a", "k", BODY).await.unwrap().replayed);
        let patient = Worker::new(&bank, &store).await.ruled(rules().wait(Wait::For(TTL * 100)));
        assert!(!patient.pay_on("accounts/a", "other", BODY).await.unwrap().replayed);
    }
}

/// The coordinator loses its memory and gives one resource to two; the fence was told a higher token before. Lower ones bounce.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_forgot_cannot_undo_what_the_fence_remembers() {
    for bank in Bank::all().await {
        let first = Worker::new(&bank, &MemoryStore::default()).await;
        let done = first.pay_on("accounts/a", "one", BODY).await.unwrap();
        // Another store knows nothing of the first. Its tokens are floored by time, so that they are above.
        let second = Worker::new(&bank, &MemoryStore::default()).await;
        let next = second.pay_on("accounts/a", "two", BODY).await.unwrap();
        assert!(next.token > done.token);
        assert!(second.pay_on("accounts/a", "one", BODY).await.unwrap().replayed);
        assert_eq!(bank.counts().await, (2, 2, 2));
    }
}

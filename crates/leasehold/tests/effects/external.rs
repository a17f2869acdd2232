//! Effects at a far end: a provider that counts what it was asked, and what it has done.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use leasehold::{
    Error, Kind,
    coordinator::memory::MemoryStore,
    effects::{Found, Key, NotDone, Provider, Repeat, State, Working, failpoint::Point},
};
use serde_json::{Value, json};

use crate::world::{Bank, Worker, to_its_end};

/// A payment provider.
#[derive(Clone)]
struct Acme {
    repeat: Repeat,
    book: Arc<Mutex<Book>>,
}

#[derive(Default)]
struct Book {
    /// How often each key was charged.
    charges: BTreeMap<String, u32>,
    calls: u32,
    queries: u32,
    /// What the next calls answer instead.
    failures: Vec<Kind>,
}

impl Acme {
    fn new(repeat: Repeat) -> Self {
        Self { repeat, book: Arc::default() }
    }

    fn charges(&self) -> Vec<u32> {
        self.book.lock().unwrap().charges.values().copied().collect()
    }
}

impl Provider for Acme {
    fn repeat(&self) -> Repeat {
        self.repeat
    }

    fn call<'a>(&'a self, key: &'a Key) -> Working<'a, Value, Error> {
        Box::pin(async move {
            let mut book = self.book.lock().unwrap();
            book.calls += 1;
            let failure = book.failures.pop();
            if let Some(kind) = failure.filter(|kind| *kind != Kind::Unknown) {
                return Err(Error::new(kind, "acme refuses to begin"));
            }
            // One that knows keys charges none of them twice; the others do as they are told.
            let knows = self.repeat == Repeat::SameKey;
            let charged = book.charges.entry(key.as_str().to_owned()).or_default();
            *charged = if knows { 1 } else { *charged + 1 };
            match failure {
                Some(kind) => Err(Error::new(kind, "acme's answer was lost")),
                None => Ok(json!({"charge": key.as_str()})),
            }
        })
    }

    fn query<'a>(&'a self, key: &'a Key) -> Working<'a, Option<Value>, Error> {
        Box::pin(async move {
            let mut book = self.book.lock().unwrap();
            book.queries += 1;
            Ok(book.charges.get(key.as_str()).map(|_| json!({"charge": key.as_str()})))
        })
    }
}

const ALL: [Repeat; 3] = [Repeat::SameKey, Repeat::Query, Repeat::Never];

#[tokio::test(flavor = "multi_thread")]
async fn a_far_effect_happens_once_and_is_answered_from_then_on() {
    for bank in Bank::all().await {
        for repeat in ALL {
            let (acme, key) = (Acme::new(repeat), format!("{repeat:?}"));
            let store = MemoryStore::default();
            let first = Worker::new(&bank, &store).await.call(&key, &acme).await.unwrap();
            let again = Worker::new(&bank, &store).await.call(&key, &acme).await.unwrap();
            assert!(!first.replayed && again.replayed && first.response == again.response);
            assert_eq!((acme.charges(), acme.book.lock().unwrap().calls), (vec![1], 1), "{repeat:?}");
        }
        assert_eq!(bank.counts().await, (3, 0, 3), "keys and events");
    }
}

/// `started` and a crash, before the call and after it: taken over by a later token, and settled as the far end allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_started_effect_is_taken_over_as_the_far_end_allows() {
    for bank in Bank::all().await {
        let mut done = 0;
        for repeat in ALL {
            for point in [Point::Started, Point::Called] {
                let (acme, key) = (Acme::new(repeat), format!("{repeat:?}-{point:?}"));
                let store = MemoryStore::default();
                let doomed = Worker::new(&bank, &store).await.crashing_at(point);
                let (far, name) = (acme.clone(), key.clone());
                assert!(to_its_end(async move { doomed.call(&name, &far).await }).await.is_none());
                let next = Worker::new(&bank, &store).await;
                let started = next.look("far", &key).await.unwrap();
                assert_eq!(started.state, State::Started);
                let answer = next.call(&key, &acme).await;
                let (calls, queries) = {
                    let book = acme.book.lock().unwrap();
                    (book.calls, book.queries)
                };
                let called = u32::from(point == Point::Called);
                if repeat == Repeat::Never {
                    assert!(
                        matches!(&answer, Err(NotDone::Unsettled(record)) if record.state == State::NeedsReconciliation)
                    );
                    assert_eq!((calls, queries), (called, 0), "never a silent repetition");
                    // Nor at the next attempt.
                    assert!(next.call(&key, &acme).await.is_err());
                    assert_eq!(acme.book.lock().unwrap().calls, called);
                    settle(&bank, &key, &next, &acme, called == 1).await;
                } else {
                    let answer = answer.unwrap();
                    assert!(!answer.replayed && answer.token > started.token);
                    assert_eq!(queries, u32::from(repeat == Repeat::Query));
                    let repeated = if repeat == Repeat::Query { 1 } else { called + 1 };
                    assert_eq!(calls, repeated, "{repeat:?} {point:?}");
                }
                assert_eq!(acme.charges(), [1], "{} {repeat:?} {point:?}", bank.name());
                done += 1;
                assert_eq!(bank.counts().await.0, done);
            }
        }
    }
}

/// A person looks at the far end and says what is there.
async fn settle(bank: &Bank, key: &str, next: &Worker, acme: &Acme, happened: bool) {
    let (ledger, name) = (bank.ledger().await, Key::new("far", key).unwrap());
    let by = leasehold::Label::new("ada").unwrap();
    let found = if happened { Found::Done(json!("seen at acme")) } else { Found::NotDone };
    assert!(ledger.resolve(&name, found, &by).await.unwrap());
    let answer = next.call(key, acme).await.unwrap();
    assert_eq!(answer.replayed, happened);
    if happened {
        assert_eq!(answer.response, json!("seen at acme"));
        let note = ledger.record(&name).await.unwrap().unwrap().note.unwrap();
        assert_eq!(note, "resolved by ada");
    }
}

/// A call that certainly had no effect gives the key back; one whose answer was lost keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn what_certainly_did_not_happen_gives_the_key_back() {
    for bank in Bank::all().await {
        let acme = Acme::new(Repeat::Never);
        acme.book.lock().unwrap().failures = vec![Kind::Unavailable];
        let worker = Worker::new(&bank, &MemoryStore::default()).await;
        let told = worker.call("k", &acme).await.unwrap_err();
        assert!(!told.is_unknown() && worker.look("far", "k").await.is_none(), "{told}");
        assert!(worker.call("k", &acme).await.is_ok());

        let acme = Acme::new(Repeat::SameKey);
        acme.book.lock().unwrap().failures = vec![Kind::Unknown];
        let told = worker.call("lost", &acme).await.unwrap_err();
        assert!(told.is_unknown(), "{told}");
        assert_eq!(worker.look("far", "lost").await.unwrap().state, State::Started);
        assert!(!worker.call("lost", &acme).await.unwrap().replayed);
        assert_eq!(acme.charges(), [1]);
    }
}

/// An older holder that wakes up after its key was taken over can neither finish nor give the key back.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_holder_of_a_started_key_stores_nothing() {
    for bank in Bank::all().await {
        let (acme, store) = (Acme::new(Repeat::SameKey), MemoryStore::default());
        let (reached, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let (tell, wait) = (reached.clone(), go_on.clone());
        // In Redis the fence is asked with everything else.
        let stop = if bank.is_redis() { Point::BeforeCommit } else { Point::Called };
        let late = Worker::new(&bank, &store).await.hooked(move |point| {
            let (tell, wait) = (tell.clone(), wait.clone());
            Box::pin(async move {
                if point == stop {
                    tell.notify_one();
                    wait.notified().await;
                }
            })
        });
        let faults = late.faults.clone();
        let far = acme.clone();
        let late = tokio::spawn(async move { late.call("k", &far).await });
        reached.notified().await;
        // It is cut off from the coordinator, and its lease ends.
        faults.unreachable.store(true, std::sync::atomic::Ordering::SeqCst);
        let next = Worker::new(&bank, &store).await.call("k", &acme).await.unwrap();
        go_on.notify_one();
        let told = late.await.unwrap().unwrap_err();
        assert!(matches!(&told, NotDone::NotAdmitted(no) if no.is_stale()), "{told}");
        assert_eq!((acme.charges(), bank.counts().await), (vec![1], (1, 0, 1)));
        assert_eq!(Worker::new(&bank, &store).await.call("k", &acme).await.unwrap().token, next.token);
    }
}

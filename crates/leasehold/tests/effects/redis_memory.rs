//! A server that forgets, one that does not, and what goes by itself.

use std::{fs::OpenOptions, path::PathBuf, sync::Arc, time::Duration};

use leasehold::{
    Leases,
    coordinator::memory::MemoryStore,
    effects::{
        Events, Keep,
        failpoint::Point,
        relay::{Relay, Until},
    },
};
use leasehold_testkit::server::{Redis, RedisSetup};

use crate::{
    common::client,
    redis_places::Heard,
    world::{BODY, Bank, Worker, rules},
};

/// A server that forgets between the seal and the script: nothing is done, and asking again does it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_forgotten_the_seal_does_nothing_and_is_asked_again() {
    let server = Arc::new(RedisSetup::new().start().unwrap());
    let bank = Bank::redis_on(&server);
    let store = MemoryStore::default();
    let worker = Worker::new(&bank, &store).await.hooked({
        let server = Arc::clone(&server);
        move |point| {
            if point == Point::BeforeCommit {
                server.ask(&["FLUSHALL"]).unwrap();
            }
            Box::pin(async {})
        }
    });
    let told = worker.pay("k", BODY).await.unwrap_err();
    assert!(told.is_transient() && !told.is_unknown() && told.to_string().contains("forgotten"), "{told}");
    assert!(!Worker::new(&bank, &store).await.pay("k", BODY).await.unwrap().replayed);
    assert_eq!(bank.counts().await, (1, 1, 1));
}

/// The weaker label, shown: a server without a disk forgets what it has answered, effect and key together, and a repetition is carried
/// out again. No number of an event comes a second time.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_forgotten_as_a_whole_and_carried_out_again() {
    let server = Arc::new(RedisSetup::new().start().unwrap());
    let bank = Bank::redis_on(&server);
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    assert!(!worker.pay("k", BODY).await.unwrap().replayed);
    let before = bank.ledger().await.events(Events { limit: 10, ..Events::default() }).await.unwrap();
    server.crash().unwrap();
    assert_eq!(bank.counts().await, (0, 0, 0), "neither effect nor key nor event");
    assert!(!worker.pay("k", BODY).await.unwrap().replayed, "it was answered, and is forgotten");
    assert_eq!(bank.counts().await, (1, 1, 1));
    let after = bank.ledger().await.events(Events { limit: 10, ..Events::default() }).await.unwrap();
    assert!(after[0].id > before[0].id, "consumers would drop it as known");
}

/// So often the file is cut within the second operation.
const CUTS: u64 = 6;

/// The file to which the server appends.
fn appended(server: &Redis) -> PathBuf {
    let folder = server.folder().join("appendonlydir");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|path| path.to_string_lossy().ends_with(".incr.aof")).unwrap()
}

/// With `appendfsync always` a crash forgets nothing; and a file that ends in the middle of an operation has none of it.
#[tokio::test(flavor = "multi_thread")]
async fn on_disk_an_operation_is_there_as_a_whole_or_not_at_all() {
    let server = Arc::new(RedisSetup::new().durable().start().unwrap());
    let bank = Bank::redis_on(&server);
    let worker = Worker::new(&bank, &MemoryStore::default()).await;
    worker.pay("one", BODY).await.unwrap();
    let file = appended(&server);
    let first = std::fs::metadata(&file).unwrap().len();
    worker.pay("two", BODY).await.unwrap();
    let whole = std::fs::read(&file).unwrap();
    let second = whole.len() as u64;
    server.crash().unwrap();
    assert_eq!(bank.counts().await, (2, 2, 2), "what was answered is there");
    assert!(worker.pay("two", BODY).await.unwrap().replayed);
    for cut in 1..=CUTS {
        server.server().kill().unwrap();
        std::fs::write(&file, &whole).unwrap();
        let at = first + (second - first) * cut / (CUTS + 1);
        OpenOptions::new().write(true).open(&file).unwrap().set_len(at).unwrap();
        server.start().unwrap();
        let counts = bank.counts().await;
        assert!(counts == (1, 1, 1), "cut at {at} of {first}..{second}: {counts:?}");
    }
    assert!(!worker.pay("two", BODY).await.unwrap().replayed);
    assert_eq!(bank.counts().await, (2, 2, 2));
}

/// Keys whose time is over go by themselves, a few at each operation, by the server's clock.
#[tokio::test(flavor = "multi_thread")]
async fn keys_whose_time_is_over_are_cleared_away_by_those_that_come() {
    let server = Arc::new(RedisSetup::new().with_clock().start().unwrap());
    let bank = Bank::redis_on(&server);
    let kept = rules().retry_horizon(Duration::from_secs(600));
    let kept = kept.keep(Keep::For(kept.least()));
    let worker = Worker::new(&bank, &MemoryStore::default()).await.ruled(kept);
    for key in ["a", "b", "c"] {
        worker.pay(key, BODY).await.unwrap();
    }
    let heard = Heard::default();
    let leases: Leases = client(&MemoryStore::default(), "relay").await;
    let mut relay = Relay::new(bank.ledger().await, "main", Box::new(heard.clone())).unwrap();
    relay.run(&leases, Until::Empty).await.unwrap();
    assert_eq!(*heard.0.lock().unwrap(), ["a", "b", "c"]);
    server.clock().forward(Duration::from_secs(3_600)).unwrap();
    worker.pay("d", BODY).await.unwrap();
    assert_eq!(bank.counts().await.0, 2, "two of three went, and one came");
    assert_eq!(bank.ledger().await.purge().await.unwrap(), 1);
    assert_eq!((bank.counts().await.0, bank.counts().await.2), (1, 1));
}

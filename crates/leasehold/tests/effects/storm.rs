//! The storm: every key is sent by three clients, who crash and stall past their leases at random points. However it blows, there
//! are as many effects and as many events as keys. Beside it the flow that many write first, which must lose.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Leases, Wait,
    coordinator::memory::MemoryStore,
    effects::{
        Event, Working,
        failpoint::{Hook, Point},
        relay::{NotPublished, Pace, Relay, Sink, Until},
    },
    fence::redis::redis::{self, aio::MultiplexedConnection},
};
use serde_json::Value;

use crate::{
    common::{client, faulty},
    world::{BODY, Bank, Killed, TTL, Worker, die, rules, to_its_end},
};

const CLIENTS: u64 = 3;
/// How many operations of one client are under way at once.
const LANES: u64 = 8;

/// A small generator, so that a storm can be had again.
#[derive(Clone)]
struct Dice(Arc<AtomicU64>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// 0 … below.
    fn roll(&self, below: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

#[derive(Default)]
struct Tally {
    crashes: AtomicU64,
    pauses: AtomicU64,
    replays: AtomicU64,
}

/// A worker whom misfortune follows: at each point it is killed once in `fatal` times, and stalls past its lease once in `slow`.
async fn unlucky(bank: &Bank, store: &MemoryStore, dice: &Dice, tally: &Arc<Tally>) -> Worker {
    let worker = Worker::new(bank, store).await.ruled(rules().wait(Wait::For(Duration::from_secs(120))));
    let (faults, dice, tally, is_file) =
        (worker.faults.clone(), dice.clone(), tally.clone(), bank.is_sqlite());
    worker.hooked(move |point| {
        let (faults, dice, tally) = (faults.clone(), dice.clone(), tally.clone());
        Box::pin(async move {
            if dice.roll(25) == 0 {
                tally.crashes.fetch_add(1, Ordering::Relaxed);
                die(&faults);
            }
            // Inside its transaction a SQLite worker would only hold everybody up.
            let inside = matches!(point, Point::Inserted | Point::BeforeCommit | Point::Committed);
            if !(is_file && inside) && dice.roll(60) == 0 {
                tally.pauses.fetch_add(1, Ordering::Relaxed);
                // The stalled process renews nothing either.
                faults.unreachable.store(true, Ordering::SeqCst);
                tokio::time::sleep(TTL * 3 / 2).await;
                faults.unreachable.store(false, Ordering::SeqCst);
            }
        })
    })
}

/// One client sends every key once, and sends again when it crashed or was told to.
async fn send_all(bank: Bank, store: MemoryStore, keys: Vec<u64>, dice: Dice, tally: Arc<Tally>) {
    for key in keys {
        loop {
            let worker = unlucky(&bank, &store, &dice, &tally).await;
            let sent = to_its_end(async move { worker.pay(&format!("{key}"), BODY).await }).await;
            match sent {
                Some(Ok(answer)) => {
                    tally.replays.fetch_add(u64::from(answer.replayed), Ordering::Relaxed);
                    break;
                }
                Some(Err(no)) => assert!(no.is_transient(), "{no}"),
                None => {}
            }
        }
    }
}

/// What a consumer has acted on, and how often it was told.
#[derive(Clone, Debug, Default)]
struct Consumer(Arc<Mutex<(BTreeSet<u64>, u64)>>);

impl Sink for Consumer {
    fn publish<'a>(&'a mut self, event: &'a Event, _: &'a Value) -> Working<'a, (), NotPublished> {
        Box::pin(async move {
            let mut seen = self.0.lock().unwrap();
            seen.0.insert(event.id);
            seen.1 += 1;
            Ok(())
        })
    }
}

/// Relays until nothing waits, dying on the way.
async fn relay_all(bank: &Bank, dice: &Dice, consumer: &Consumer) -> u64 {
    let mut deaths = 0;
    loop {
        // A store of its own each time: the dead relay's lease is not waited for. The fence keeps the order.
        let (leases, faults) = faulty(&MemoryStore::default()).await;
        let pace = Pace { poll: Duration::from_millis(5), batch: 20, ..Pace::default() };
        let relay = Relay::new(bank.ledger().await, "main", Box::new(consumer.clone())).unwrap().pace(pace);
        let dice = dice.clone();
        let mut relay = relay.failing(Hook::new(move |_| {
            let (dice, faults) = (dice.clone(), faults.clone());
            Box::pin(async move {
                if dice.roll(60) == 0 {
                    die(&faults);
                }
            })
        }));
        match to_its_end(async move { relay.run(&leases, Until::Empty).await }).await {
            Some(ended) => {
                ended.unwrap();
                return deaths;
            }
            None => deaths += 1,
        }
    }
}

async fn storm(bank: &Bank, keys: u64, seed: u64) {
    let (store, dice, tally) = (MemoryStore::default(), Dice::new(seed), Arc::new(Tally::default()));
    let mut lanes = Vec::new();
    for client in 0..CLIENTS {
        for lane in 0..LANES {
            // Each client in an order of its own, so that they meet at different keys.
            let mut mine: Vec<u64> = (0..keys).filter(|key| (key + client) % LANES == lane).collect();
            if client == 1 {
                mine.reverse();
            }
            let (bank, store, dice, tally) = (bank.clone(), store.clone(), dice.clone(), tally.clone());
            lanes.push(tokio::spawn(send_all(bank, store, mine, dice, tally)));
        }
    }
    for lane in lanes {
        lane.await.unwrap();
    }
    let consumer = Consumer::default();
    let deaths = relay_all(bank, &dice, &consumer).await;
    let (known, effects, events) = bank.counts().await;
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (acted, told) = {
        let seen = consumer.0.lock().unwrap();
        (seen.0.len(), seen.1)
    };
    println!(
        "{}: {keys} keys sent {} times, {} crashes, {} pauses past the lease, {} answers from the key: \
         keys {known} = effects {effects} = events {events}; the relay died {deaths} times and told {told} times of {acted}",
        bank.name(),
        keys * CLIENTS,
        of(&tally.crashes),
        of(&tally.pauses),
        of(&tally.replays),
    );
    let sent = i64::try_from(keys).unwrap();
    assert_eq!((known, effects, events), (sent, sent, sent), "{}", bank.name());
    assert_eq!(i64::try_from(acted).unwrap(), sent);
    assert!(of(&tally.crashes) > 0 && of(&tally.pauses) > 0 && of(&tally.replays) > 0, "it was a calm day");
    assert_eq!(bank.distinct().await, sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_storms_on_sqlite_keys_effects_and_events_are_equal() {
    storm(&Bank::sqlite(), 150, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_storms_on_postgres_keys_effects_and_events_are_equal() {
    storm(&Bank::postgres().await, 240, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_storms_on_redis_keys_effects_and_events_are_equal() {
    storm(&Bank::redis(), 240, 4).await;
}

/// A connection on which each step is one of its own.
enum Steps {
    Postgres(tokio_postgres::Client),
    Redis(MultiplexedConnection, Bank),
}

impl Steps {
    async fn on(bank: &Bank) -> Self {
        match bank {
            Bank::Redis { .. } => Self::Redis(bank.connection().await, bank.clone()),
            _ => Self::Postgres(bank.client().await),
        }
    }

    async fn knows(&mut self, name: &str) -> bool {
        match self {
            Self::Postgres(client) => client
                .query_opt("SELECT response FROM seen WHERE key = $1", &[&name])
                .await
                .unwrap()
                .is_some(),
            Self::Redis(db, bank) => {
                redis::cmd("HEXISTS").arg(bank.list("seen")).arg(name).query_async(db).await.unwrap()
            }
        }
    }

    /// Adds to `effect`, `seen` or `told`.
    async fn add(&mut self, table: &str, name: &str) {
        match self {
            Self::Postgres(client) => {
                let sql = match table {
                    "effect" => "INSERT INTO effect VALUES ($1, 1)",
                    "seen" => "INSERT INTO seen VALUES ($1, 'paid') ON CONFLICT DO NOTHING",
                    _ => "INSERT INTO told VALUES ($1)",
                };
                client.execute(sql, &[&name]).await.unwrap();
            }
            Self::Redis(db, bank) => {
                let mut add = redis::cmd(if table == "effect" { "RPUSH" } else { "HSET" });
                add.arg(bank.list(table)).arg(name);
                if table != "effect" {
                    add.arg("paid");
                }
                add.query_async::<i64>(db).await.unwrap();
            }
        }
    }
}

/// The flow that many write first: look the key up, take the lease, look again, do it, write the key, tell the world, release.
/// Each in a transaction of its own.
async fn naive(bank: &Bank, leases: &Leases, key: u64, dice: &Dice) {
    let mut steps = Steps::on(bank).await;
    let crash = || {
        if dice.roll(12) == 0 {
            std::panic::resume_unwind(Box::new(Killed));
        }
    };
    let name = key.to_string();
    if steps.knows(&name).await {
        return;
    }
    let lease = leases
        .lease(&format!("accounts/{key}"))
        .wait(Duration::from_secs(60))
        .ttl(TTL)
        .acquire()
        .await
        .unwrap();
    if steps.knows(&name).await {
        return;
    }
    for table in ["effect", "seen", "told"] {
        crash();
        steps.add(table, &name).await;
    }
    let _ = lease.release().await.unwrap();
}

/// The control: the same storm, without pauses even, and the numbers differ.
async fn loses(bank: Bank, seed: u64) {
    const KEYS: u64 = 150;
    let (store, dice) = (MemoryStore::default(), Dice::new(seed));
    let mut lanes = Vec::new();
    for sender in 0..CLIENTS {
        let (bank, store, dice) = (bank.clone(), store.clone(), dice.clone());
        lanes.push(tokio::spawn(async move {
            let leases = client(&store, &format!("naive-{sender}")).await;
            for key in 0..KEYS {
                loop {
                    let (bank, leases, dice) = (bank.clone(), leases.clone(), dice.clone());
                    if to_its_end(async move { naive(&bank, &leases, key, &dice).await }).await.is_some() {
                        break;
                    }
                }
            }
        }));
    }
    for lane in lanes {
        lane.await.unwrap();
    }
    let [keys, effects, events] = bank.naive_counts().await;
    println!("naive on {}: keys {keys}, effects {effects}, events {events}", bank.name());
    assert_eq!(keys, i64::try_from(KEYS).unwrap());
    assert!(effects > keys, "somebody was charged twice: {effects}");
    assert!(events < keys, "somebody was never told: {events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_naive_flow_loses_in_the_same_storm() {
    loses(Bank::postgres().await, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_naive_flow_loses_in_the_same_storm_on_redis() {
    loses(Bank::redis(), 5).await;
}

//! What the SQLite engine costs, against the least that could work: two durable commits of one row, by rusqlite, in the
//! same thread and on the same file system.
//!
//! ```sh
//! cargo run --release -p leasehold --example bench_sqlite -- [FOLDER]
//! ```
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::disallowed_methods)]
#![allow(clippy::cast_precision_loss)]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::coordinator::sqlite::{Options, SqliteCoordinator};
use leasehold_core::{
    Coordinator, HolderId, Label, LeaseId, Namespace, Resource, Ttl,
    record::{Acquired, Released, Renewed, Wake},
    request::{Claim, Release, Renewal},
};

/// Rounds are short and interleaved, and the ratios are medians over rounds: disks and neighbours are noisy.
const SECONDS: f64 = 0.3;
const ROUNDS: usize = 11;

fn main() {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let folder = tempfile::tempdir_in(folder).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let single = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let path = |name: &str| folder.path().join(format!("{name}-{round}.db"));
        let floor = floor(&path("floor"));
        let one = single.block_on(pairs(&path("one"), 1));
        let many = runtime.block_on(pairs(&path("many"), 64));
        let many_single = single.block_on(pairs(&path("single"), 64));
        rounds.push([floor, one, many, many_single]);
    }
    let of = |value: fn(&[f64; 4]) -> f64| median(rounds.iter().map(value).collect());
    println!("floor                {:>9.0} pairs/s", of(|r| r[0]));
    println!("1 task               {:>9.0} pairs/s  {:.2} of the floor", of(|r| r[1]), of(|r| r[1] / r[0]));
    println!("64 tasks, 2 threads  {:>9.0} pairs/s  {:.1} times one task", of(|r| r[2]), of(|r| r[2] / r[1]));
    println!("64 tasks, 1 thread   {:>9.0} pairs/s  {:.1} times one task", of(|r| r[3]), of(|r| r[3] / r[1]));
    let renewal = runtime.block_on(renewals(&folder.path().join("renew.db"), 10_000));
    println!("10,000 renewals          {renewal:>9.2} us each");
    let (median, p99) = single.block_on(handover(&folder.path().join("hand.db")));
    println!(
        "hand-over                {median:>9.0} us median, {p99:.0} us p99 (two coordinators, one process)"
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn floor(path: &Path) -> f64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
             CREATE TABLE t (k TEXT PRIMARY KEY, v INTEGER); INSERT INTO t VALUES ('a', 0)",
        )
        .unwrap();
    let mut pairs = 0.0;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < SECONDS {
        for _ in 0..2 {
            connection.prepare_cached("UPDATE t SET v = v + 1 WHERE k = 'a'").unwrap().execute([]).unwrap();
        }
        pairs += 1.0;
    }
    pairs / start.elapsed().as_secs_f64()
}

fn open(path: &Path) -> Arc<SqliteCoordinator> {
    Arc::new(SqliteCoordinator::open(path, Namespace::default(), Options::default()).unwrap())
}

fn claim(resource: &str, number: u64) -> Claim {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    Claim {
        resource: Resource::new(resource).unwrap(),
        lease_id: LeaseId::from_bytes(id),
        holder_id: HolderId::from_bytes([1; 16]),
        label: Label::new("host:1234:bench").unwrap(),
        ttl: Ttl::DEFAULT,
        lock_delay: Duration::ZERO,
        floor: None,
        queue: true,
        once_per: None,
    }
}

async fn pair(coordinator: &SqliteCoordinator, claim: Claim) {
    let (resource, lease_id) = (claim.resource.clone(), claim.lease_id);
    let Acquired::Granted(grant) = coordinator.acquire(claim).await.unwrap() else { panic!("not granted") };
    let release = Release { resource, lease_id, token: Some(grant.token), succeeded: false };
    assert_eq!(coordinator.release(release).await.unwrap(), Released::Ended);
}

async fn pairs(path: &Path, tasks: u64) -> f64 {
    let coordinator = open(path);
    let start = Instant::now();
    let workers: Vec<_> = (0..tasks)
        .map(|task| {
            let coordinator = Arc::clone(&coordinator);
            tokio::spawn(async move {
                let mut done = 0u64;
                while start.elapsed().as_secs_f64() < SECONDS {
                    pair(&coordinator, claim(&format!("orders/{task}"), task << 32 | done)).await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut total = 0.0;
    for worker in workers {
        total += worker.await.unwrap() as f64;
    }
    total / start.elapsed().as_secs_f64()
}

async fn renewals(path: &Path, count: u64) -> f64 {
    let coordinator = open(path);
    let mut all = Vec::new();
    for number in 0..count {
        let claim = claim(&format!("orders/{number}"), number);
        let (resource, lease_id) = (claim.resource.clone(), claim.lease_id);
        all.push(async move { (resource, lease_id, claim) });
    }
    let mut renewals = Vec::new();
    let mut waiting = tokio::task::JoinSet::new();
    for entry in all {
        let (resource, lease_id, claim) = entry.await;
        let coordinator = Arc::clone(&coordinator);
        waiting.spawn(async move {
            let Acquired::Granted(grant) = coordinator.acquire(claim).await.unwrap() else {
                panic!("not granted")
            };
            Renewal { resource, lease_id, token: grant.token, ttl: Ttl::DEFAULT, lock_delay: Duration::ZERO }
        });
    }
    while let Some(renewal) = waiting.join_next().await {
        renewals.push(renewal.unwrap());
    }
    let mut times = Vec::new();
    for _ in 0..5 {
        let batch = renewals.clone();
        let start = Instant::now();
        let answers = coordinator.renew(batch).await.unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e6 / count as f64);
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Renewed::Extended { .. }))));
    }
    median(times)
}

async fn handover(path: &Path) -> (f64, f64) {
    let sides = [open(path), open(path)];
    let mut number = 1;
    let mut holder = claim("hand", number);
    let Acquired::Granted(mut grant) = sides[0].acquire(holder.clone()).await.unwrap() else {
        panic!("not granted")
    };
    let mut times = Vec::new();
    for round in 0..1_000 {
        let (from, to) = (&sides[round % 2], &sides[(round + 1) % 2]);
        number += 1;
        let next = claim("hand", number);
        let _ = to.acquire(next.clone()).await.unwrap();
        let start = Instant::now();
        let release = Release {
            resource: holder.resource.clone(),
            lease_id: holder.lease_id,
            token: Some(grant.token),
            succeeded: false,
        };
        let wait = async {
            while to.next_wake().await != Wake::Lease(next.lease_id) {}
            to.acquire(next.clone()).await.unwrap()
        };
        let (released, granted) = tokio::join!(from.release(release), wait);
        times.push(start.elapsed().as_secs_f64() * 1e6);
        assert_eq!(released.unwrap(), Released::Ended);
        let Acquired::Granted(now) = granted else { panic!("not granted: {granted:?}") };
        (holder, grant) = (next, now);
    }
    times.sort_by(f64::total_cmp);
    (times[500], times[990])
}

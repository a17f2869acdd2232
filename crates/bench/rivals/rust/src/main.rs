//! Locks of other people, measured: one JSON task as the last argument, one JSON line of figures on standard output.

use std::{
    collections::BTreeMap,
    error::Error,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde::Deserialize;

const WARM: Duration = Duration::from_millis(250);
const TTL: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

/// As much of a task as is needed here.
#[derive(Deserialize)]
struct Task {
    what: String,
    who: String,
    size: usize,
    millis: u64,
    hosts: Vec<String>,
    folder: PathBuf,
}

fn main() -> Result<(), Failure> {
    let text = std::env::args().next_back().ok_or("no task")?;
    let task: Task = serde_json::from_str(&text)?;
    if task.what != "pairs" && task.what != "stalled" {
        return Err(format!("{} does not do {}", task.who, task.what).into());
    }
    let rate = match task.who.as_str() {
        "rslock" => rslock(&task)?,
        "redb" => redb(&task)?,
        "fjall" => fjall(&task)?,
        "sled" => sled(&task)?,
        other => return Err(format!("nobody here is called {other}").into()),
    };
    println!("{}", serde_json::to_string(&BTreeMap::from([("per_second", rate)]))?);
    Ok(())
}

fn rslock(task: &Task) -> Result<f64, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let hosts = task.hosts.iter().map(|host| format!("redis://{host}/")).collect();
    let manager = rslock::LockManager::new(hosts);
    let done = Arc::new(AtomicU64::new(0));
    let from = Instant::now() + WARM;
    let until = from + Duration::from_millis(task.millis);
    runtime.block_on(async {
        let mut running = Vec::new();
        for at in 0..task.size {
            let (manager, done) = (manager.clone(), Arc::clone(&done));
            running.push(tokio::spawn(async move {
                let name = format!("rslock/{at}");
                while Instant::now() < until {
                    let lock = manager.lock(name.as_str(), TTL).await?;
                    manager.unlock(&lock).await;
                    let now = Instant::now();
                    if now >= from && now < until {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok::<_, rslock::LockError>(())
            }));
        }
        for task in running {
            task.await??;
        }
        Ok::<_, Failure>(())
    })?;
    Ok(done.load(Ordering::Relaxed) as f64 / Duration::from_millis(task.millis).as_secs_f64())
}

/// Pairs of two durable changes by one thread.
fn rate(task: &Task, mut pair: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let from = Instant::now() + WARM;
    let until = from + Duration::from_millis(task.millis);
    let mut done = 0_u64;
    while Instant::now() < until {
        pair()?;
        let now = Instant::now();
        done += u64::from(now >= from && now < until);
    }
    Ok(done as f64 / Duration::from_millis(task.millis).as_secs_f64())
}

fn redb(task: &Task) -> Result<f64, Failure> {
    const TABLE: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("t");
    let database = redb::Database::create(task.folder.join("redb"))?;
    let mut value = 0;
    let mut change = move || -> Result<(), Failure> {
        let transaction = database.begin_write()?;
        value += 1;
        transaction.open_table(TABLE)?.insert("a", value)?;
        Ok(transaction.commit()?)
    };
    rate(task, || change().and_then(|()| change()))
}

fn fjall(task: &Task) -> Result<f64, Failure> {
    let keyspace = fjall::Config::new(task.folder.join("fjall")).open()?;
    let rows = keyspace.open_partition("t", fjall::PartitionCreateOptions::default())?;
    let value = std::cell::Cell::new(0_u64);
    let change = || -> Result<(), Failure> {
        value.set(value.get() + 1);
        rows.insert("a", value.get().to_be_bytes())?;
        Ok(keyspace.persist(fjall::PersistMode::SyncData)?)
    };
    rate(task, || change().and_then(|()| change()))
}

fn sled(task: &Task) -> Result<f64, Failure> {
    let database = sled::open(task.folder.join("sled"))?;
    let value = std::cell::Cell::new(0_u64);
    let change = || -> Result<(), Failure> {
        value.set(value.get() + 1);
        let _before = database.insert("a", &value.get().to_be_bytes())?;
        let _bytes = database.flush()?;
        Ok(())
    };
    rate(task, || change().and_then(|()| change()))
}

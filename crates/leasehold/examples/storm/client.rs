//! What a process of the storm does: it asks for payments until each is answered, or carries events to the consumer.
//!
//! A client writes a line before it asks and a line when it is answered, so that its successor knows where to go on, and the
//! report what was cut off.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use leasehold::{
    Leases, Wait,
    blocking::block_on,
    effects::{
        Event, NotDone, Rules, Working,
        relay::{NotPublished, Pace, Relay, Sink, Until},
    },
};
use leasehold_testkit::process::{Fleet, Spawn, end_with_parent};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::{
    Failure, Setting,
    bank::{self, Bank},
    teller::Teller,
};

pub(crate) const ROLE: &str = "LEASEHOLD_STORM_ROLE";
const LEASES: &str = "LEASEHOLD_STORM_LEASES";
const BANK: &str = "LEASEHOLD_STORM_BANK";
const JOURNAL: &str = "LEASEHOLD_STORM_JOURNAL";
const KEYS: &str = "LEASEHOLD_STORM_KEYS";
const NAIVE: &str = "LEASEHOLD_STORM_NAIVE";
/// What the last relay is told: to end when nothing waits.
pub(crate) const LAST: &str = "LEASEHOLD_STORM_LAST";

/// So many clients ask for every payment.
pub(crate) const SENDERS: u64 = 3;
/// So many processes are one client.
pub(crate) const PARTS: u64 = 2;
/// So many payments of one process are under way at once.
const LANES: u64 = 2;
/// Short, so that pauses outlast it.
pub(crate) const TTL: Duration = Duration::from_secs(1);
/// How long a payment waits for another on its account.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// How to start a process: `client-SENDER-PART` or `relay`.
pub(crate) fn spawn(
    role: &str,
    setting: &Setting,
    leases_at: &str,
    bank: &Bank,
    folder: &Path,
) -> Result<Spawn, Failure> {
    Ok(Spawn::new(std::env::current_exe()?)
        .env(ROLE, role)
        .env(LEASES, leases_at)
        .env(BANK, bank.url())
        .env(JOURNAL, journal(folder, role))
        .env(KEYS, setting.keys.to_string())
        .env(NAIVE, setting.naive.to_string()))
}

/// Where all incarnations of a process write.
pub(crate) fn journal(folder: &Path, role: &str) -> std::path::PathBuf {
    folder.join(format!("{role}.journal"))
}

/// What a process knows.
struct Task {
    leases: Leases,
    bank: Bank,
    rules: Rules,
    journal: File,
    naive: bool,
}

impl Task {
    /// One write each: whoever is killed right behind it leaves it whole.
    fn note(&self, line: &str) -> Result<(), Failure> {
        Ok((&self.journal).write_all(format!("{line}\n").as_bytes())?)
    }
}

/// Lives a process of the storm to its end.
pub(crate) fn live(role: &str) -> Result<(), Failure> {
    end_with_parent(std::env::var(Fleet::STARTER)?.parse()?)?;
    let path = std::env::var(JOURNAL)?;
    let task = Arc::new(Task {
        leases: block_on(bank::connect(&std::env::var(LEASES)?))?,
        bank: Bank::parse(&std::env::var(BANK)?),
        // Twenty seconds are for busy machines: what is stopped inside a transaction holds others up for that long at most.
        rules: Rules::default().ttl(TTL).wait(Wait::For(PATIENCE)).max_exec(Duration::from_secs(20)),
        journal: OpenOptions::new().create(true).append(true).open(&path)?,
        naive: std::env::var(NAIVE)? == "true",
    });
    if role == "relay" {
        return runtime()?.block_on(relay(&task));
    }
    let mut lanes = Vec::new();
    for mine in shares(role, std::env::var(KEYS)?.parse()?, &fs::read_to_string(&path)?)? {
        let task = Arc::clone(&task);
        lanes.push(thread::spawn(move || runtime()?.block_on(send(&task, &mine))));
    }
    for lane in lanes {
        lane.join().map_err(|_| "a lane has panicked")??;
    }
    let leases = task.leases.clone();
    drop(task);
    block_on(leases.close(Duration::from_secs(10)));
    Ok(())
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// The payments that each lane still has to ask for.
fn shares(role: &str, keys: u64, journal: &str) -> Result<Vec<Vec<u64>>, Failure> {
    let mut numbers = role.split('-').skip(1).map(str::parse::<u64>);
    let (Some(Ok(sender)), Some(Ok(part))) = (numbers.next(), numbers.next()) else {
        return Err(format!("no role {role}").into());
    };
    let answered: HashSet<u64> =
        journal.lines().filter_map(|line| line.strip_prefix("< ")?.split(' ').next()?.parse().ok()).collect();
    let mut mine: Vec<u64> = (0..keys).filter(|key| key % PARTS == part && !answered.contains(key)).collect();
    // Two meet at every payment, and the third comes from the other end.
    if sender == SENDERS - 1 {
        mine.reverse();
    }
    let lane = |lane| mine.iter().copied().filter(|key| key / PARTS % LANES == lane).collect();
    Ok((0..LANES).map(lane).collect())
}

/// Asks for each payment until it is answered.
async fn send(task: &Task, mine: &[u64]) -> Result<(), Failure> {
    let mut teller: Option<Teller> = None;
    for &key in mine {
        loop {
            task.note(&format!("> {key}"))?;
            match ask(task, &mut teller, key).await? {
                Ok(known) => {
                    task.note(&format!("< {key} {}", if known { "known" } else { "done" }))?;
                    break;
                }
                Err(why) => task.note(&format!("! {key} {}", why.replace('\n', " ")))?,
            }
            // After an unknown outcome a connection is of no more use.
            teller = None;
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Asks once. What may help when asked again is an answer; anything else ends the process.
async fn ask(task: &Task, slot: &mut Option<Teller>, key: u64) -> Result<Result<bool, String>, Failure> {
    let teller = match slot {
        Some(teller) => teller,
        None => match task.bank.open(&task.leases, task.rules).await {
            Ok(teller) => slot.insert(teller),
            Err(error) => return Ok(Err(error.to_string())),
        },
    };
    if task.naive {
        return Ok(teller.pay_naively(&task.leases, key).await.map_err(|error| error.to_string()));
    }
    match teller.pay(key).await {
        Ok(known) => Ok(Ok(known)),
        Err(no) if no.is_transient() => Ok(Err(no.to_string())),
        Err(NotDone::Effect(error)) => Err(error),
        Err(no) => Err(no.to_string().into()),
    }
}

/// The consumer of the events: with an inbox, because events come at least once.
#[derive(Debug)]
struct Consumer {
    task: Arc<Task>,
    /// A connection to a file is for one thread at a time.
    teller: Mutex<Teller>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("bank", &self.bank).finish_non_exhaustive()
    }
}

impl Sink for Consumer {
    fn publish<'a>(&'a mut self, event: &'a Event, envelope: &'a Value) -> Working<'a, (), NotPublished> {
        Box::pin(async move {
            let source = envelope["source"].as_str().unwrap_or_default();
            let teller = self.teller.get_mut().unwrap_or_else(PoisonError::into_inner);
            let received = teller.receive(source, event).await;
            let is_new =
                received.map_err(|error| NotPublished::Down { why: error.to_string(), again_in: None })?;
            let noted = self.task.note(if is_new { "told" } else { "dropped" });
            noted.map_err(|error| NotPublished::Gone(error.to_string()))
        })
    }
}

async fn relay(task: &Arc<Task>) -> Result<(), Failure> {
    let teller = task.bank.open(&task.leases, task.rules).await?;
    let consumer = Consumer { task: Arc::clone(task), teller: Mutex::new(teller) };
    let pace = Pace {
        poll: Duration::from_millis(20),
        retry: Duration::from_millis(50),
        batch: 20,
        ..Pace::default()
    };
    let relay = Relay::new(task.bank.ledger().await?, bank::NAME, Box::new(consumer))?;
    let until = if std::env::var_os(LAST).is_some() { Until::Empty } else { Until::Forever };
    Ok(relay.pace(pace).ttl(TTL).run(&task.leases, until).await?)
}

//! `SQLite`, by threads that block as its callers do: durable commits of one row, and the hand-over between processes.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::fd::AsFd as _,
    time::Duration,
};

use leasehold::blocking;
use leasehold_testkit::clock::boot_ns;
use nix::fcntl::{Flock, FlockArg};

use super::{
    hand_over::{spread, wanted},
    keep, ours,
    pairs::{rate, rate_blocking},
    processes::again,
    runtime, who,
};
use crate::task::{Answer, Failure, Task, What, failed, figure, number};

/// What a hand-over between processes rests for.
const REST: Duration = Duration::from_millis(3);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn measure(task: &Task) -> Result<Answer, Failure> {
    match (task.what, task.who.as_str()) {
        (What::Pairs, who::OURS) if task.size > 1 => {
            runtime()?.block_on(async { rate(ours::Ours::connect(task).await?, task).await })
        }
        (What::Pairs, who::OURS) => Ok(rated(own_pairs(task)?)),
        (What::Pairs, who::FLOOR) => Ok(rated(floor(task)?)),
        (What::HandOver, who::OURS) => hand_over(task),
        (What::HandOver, who::FLOOR) => cold_commits(task),
        (What::HandOver, who::FLOCK) => flock(task),
        (What::Keep, who::OURS) => runtime()?.block_on(keep::keep(task)),
        (What::Rest, who::OURS) => runtime()?.block_on(keep::rest(task)),
        (what, other) => failed(format!("nobody called {other} does {what:?} on sqlite")),
    }
}

fn rated(rate: f64) -> Answer {
    Answer::from([(figure::RATE.to_owned(), rate)])
}

/// One thread, a resource of its own.
fn own_pairs(task: &Task) -> Result<f64, Failure> {
    let leases = ours::connect_blocking(task)?;
    let name = format!("own/{}", std::process::id());
    rate_blocking(task, || {
        let lease = leases.lease(&name, |request| request.wait(PATIENCE)).acquire()?;
        ours::whole(lease.release()?)
    })
}

/// One row in a file that is written as durably as ours.
fn one_row(task: &Task) -> Result<rusqlite::Connection, Failure> {
    let connection = rusqlite::Connection::open(task.folder.join("floor"))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         CREATE TABLE IF NOT EXISTS t (k TEXT PRIMARY KEY, v INTEGER); INSERT OR IGNORE INTO t VALUES ('a', 0)",
    )?;
    Ok(connection)
}

fn commit(connection: &rusqlite::Connection) -> Result<(), Failure> {
    connection.prepare_cached("UPDATE t SET v = v + 1 WHERE k = 'a'")?.execute([])?;
    Ok(())
}

fn floor(task: &Task) -> Result<f64, Failure> {
    let connection = one_row(task)?;
    rate_blocking(task, || {
        commit(&connection)?;
        commit(&connection)
    })
}

/// A durable commit by a thread that has slept for as long as that of a hand-over has: caches, processor and disk are cold, as
/// they are when somebody has waited.
fn cold_commits(task: &Task) -> Result<Answer, Failure> {
    let connection = one_row(task)?;
    let mut took_us = Vec::new();
    for _ in 0..wanted(task) {
        rest();
        let begun = boot_ns();
        commit(&connection)?;
        took_us.push(number(boot_ns().saturating_sub(begun)) / 1e3);
    }
    Ok(spread(took_us))
}

fn rest() {
    std::thread::park_timeout(REST);
}

/// From the release in one process to the grant in another that waits for it.
fn hand_over(task: &Task) -> Result<Answer, Failure> {
    let leases = ours::connect_blocking(task)?;
    let resource = leasehold::Resource::new("handed-over")?;
    let acquire = || leases.lease(resource.as_str(), |request| request.wait(PATIENCE)).acquire();
    handed_over(
        task,
        &acquire,
        |lease| Ok(lease.release().map(drop)?),
        || Ok(blocking::block_on(leases.inner().inspect(&resource))?.waiting > 0),
    )
}

/// The same with `flock`, which is not durable and has no queue.
fn flock(task: &Task) -> Result<Answer, Failure> {
    let acquire = || lock_file(task);
    // Whoever waits for it cannot be seen; it has had the rest for it.
    handed_over(task, &acquire, |lock| Ok(lock.unlock().map(drop).map_err(|(_, error)| error)?), || Ok(true))
}

fn lock_file(task: &Task) -> Result<Flock<std::fs::File>, Failure> {
    let path = task.folder.join("flock");
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    let _usable = file.as_fd();
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
}

fn handed_over<L, E: Into<Failure>>(
    task: &Task,
    acquire: &dyn Fn() -> Result<L, E>,
    release: impl Fn(L) -> Result<(), Failure>,
    somebody_waits: impl Fn() -> Result<bool, Failure>,
) -> Result<Answer, Failure> {
    let mut waiter = again(task, "waiter")?;
    let mut orders = waiter.stdin.take().ok_or("no way to the waiter")?;
    let mut answers = BufReader::new(waiter.stdout.take().ok_or("no way back")?).lines();
    let mut took_us = Vec::new();
    for _ in 0..wanted(task) {
        let held = acquire().map_err(Into::into)?;
        writeln!(orders)?;
        while !somebody_waits()? {
            std::thread::yield_now();
        }
        rest();
        let released_ns = boot_ns();
        release(held)?;
        let granted_ns: u64 = answers.next().ok_or("the waiter has ended")??.trim().parse()?;
        took_us.push(number(granted_ns.saturating_sub(released_ns)) / 1e3);
    }
    drop(orders);
    let _ended = waiter.wait()?;
    Ok(spread(took_us))
}

/// The other process: for each line, acquires, says when, and releases.
pub(super) fn role_waiter(task: &Task) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let mut say = |at: u64| {
        writeln!(out, "{at}")?;
        out.flush()
    };
    if task.who == who::FLOCK {
        for order in std::io::stdin().lines() {
            let _line = order?;
            let lock = lock_file(task)?;
            say(boot_ns())?;
            let _file = lock.unlock().map_err(|(_, error)| error)?;
        }
        return Ok(());
    }
    let leases = ours::connect_blocking(task)?;
    for order in std::io::stdin().lines() {
        let _line = order?;
        let lease = leases.lease("handed-over", |request| request.wait(PATIENCE)).acquire()?;
        say(boot_ns())?;
        let _ended = lease.release()?;
    }
    Ok(())
}

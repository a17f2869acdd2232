//! Nothing grows without end: not the memory, descriptors and connections of a program that holds leases for a long time, nor of
//! one whose clients come and go, nor what an engine keeps for names that are used once. On every engine, for some seconds each.
//!
//! Alone in its program: it looks at the whole process.
#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", feature = "etcd"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod engines;

use std::{fs, time::Duration};

use leasehold::{Leases, Namespace};
use leasehold_core::request::Preparation;
use leasehold_testkit::clock::Stopwatch;

use engines::{Engine, Kept};

const PATIENCE: Duration = Duration::from_secs(90);
const GLANCE: Duration = Duration::from_millis(20);
/// As long as anybody needs at once; what is abandoned is over after it.
const TTL: Duration = Duration::from_secs(5);
/// What nobody gets who waits for it.
const TAKEN: &str = "taken";
/// Who works at once.
const TASKS: u32 = 8;
/// Names a task uses once in one go.
const NAMES: u32 = 6;
/// Rounds before anything is measured, and how long it goes on after that.
const WARM_UP: u32 = 4;
const LENGTH: Duration = Duration::from_secs(3);
/// Clients that come and go.
const VISITORS: u32 = 4;
/// What a process may grow by for reasons of its allocator, and for each lease that it had: a leak of a kilobyte a lease is more.
const SLACK: u64 = 6 << 20;
const EACH: u64 = 512;
/// Descriptors that are not there for good: a file that is being looked at.
const DESCRIPTORS: usize = 3;

/// What this process takes up.
#[derive(Clone, Copy, Debug)]
struct Usage {
    memory: u64,
    descriptors: usize,
}

impl Usage {
    fn now() -> Self {
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
        Self { memory: pages * 4_096, descriptors }
    }
}

/// The names that were used so far.
#[derive(Clone, Copy, Debug, Default)]
struct Used(u32);

impl Used {
    /// A go of every task: names that are used once, one that all want, and a claim that is given up while it waits.
    async fn round(&mut self, leases: &Leases) {
        let first = self.0;
        self.0 += TASKS * NAMES;
        let task = |task: u32| {
            let leases = leases.clone();
            async move {
                for name in 0..NAMES {
                    let name = format!("once/{}", first + task * NAMES + name);
                    let lease = leases.lease(&name).ttl(TTL).wait(PATIENCE).acquire().await.unwrap();
                    if task == 0 {
                        // Dropped: released in the background.
                        drop(lease);
                    } else {
                        let _ = lease.release().await.unwrap();
                    }
                }
                // Somebody has it all the time. Long enough for a place in the line, mostly.
                let given_up = leases.lease(TAKEN).ttl(TTL).wait(PATIENCE).acquire();
                drop(tokio::time::timeout(Duration::from_millis(4), given_up).await);
                // Lost on a machine that stands still; that is no leak.
                let wanted = leases.lease("wanted").ttl(TTL).wait(PATIENCE).acquire().await;
                let _ = wanted.unwrap().release().await;
            }
        };
        let tasks: Vec<_> = (0..TASKS).map(|at| tokio::spawn(task(at))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> Result<(), String>) {
    let since = Stopwatch::start();
    loop {
        match holds() {
            Ok(()) => return,
            Err(why) => assert!(since.elapsed() < PATIENCE, "{what}: {why}"),
        }
        tokio::time::sleep(GLANCE).await;
    }
}

async fn connect(engine: &dyn Engine, namespace: &Namespace) -> Leases {
    Leases::builder(&engine.url()).namespace(namespace.clone()).connect().await.unwrap()
}

/// It has as many descriptors as before, and the server as many connections.
async fn is_at_rest(engine: &dyn Engine, before: Usage, connections: usize, leases: &Leases) {
    until(engine.name(), || {
        let (now, there) = (Usage::now(), engine.connections());
        let rests =
            leases.held() == 1 && now.descriptors <= before.descriptors + DESCRIPTORS && there <= connections;
        let held = leases.held();
        if rests {
            Ok(())
        } else {
            Err(format!("{held} held, {now:?} after {before:?}, {there} connections after {connections}"))
        }
    })
    .await;
}

fn has_grown_little(what: &str, before: Usage, leases: u32) {
    let (now, bound) = (Usage::now(), SLACK + EACH * u64::from(leases));
    let grown = now.memory.saturating_sub(before.memory);
    println!("{what}: {leases} leases, {} KiB more, {} descriptors", grown >> 10, now.descriptors);
    assert!(grown <= bound, "{what}: {grown} bytes more after {leases} leases");
}

async fn soak(engine: &dyn Engine) {
    let namespace = leasehold_testkit::random::namespace();
    let leases = connect(engine, &namespace).await;
    leases.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
    let taken = leases.lease(TAKEN).ttl(TTL).acquire().await.unwrap();
    let mut used = Used::default();
    for _ in 0..WARM_UP {
        used.round(&leases).await;
    }
    until("what was dropped is released", || if leases.held() == 1 { Ok(()) } else { Err(String::new()) })
        .await;

    let (before, connections, warm) = (Usage::now(), engine.connections(), used);
    let since = Stopwatch::start();
    while since.elapsed() < LENGTH {
        used.round(&leases).await;
    }
    is_at_rest(engine, before, connections, &leases).await;
    has_grown_little(&format!("{}, one client", engine.name()), before, used.0 - warm.0);

    let (before, stayed) = (Usage::now(), used);
    for _ in 0..VISITORS {
        let visitor = connect(engine, &namespace).await;
        used.round(&visitor).await;
        visitor.close(PATIENCE).await;
    }
    is_at_rest(engine, before, connections, &leases).await;
    has_grown_little(&format!("{}, clients that come and go", engine.name()), before, used.0 - stayed.0);

    let _ = taken.release().await.unwrap();
    leases.close(PATIENCE).await;
    // Beside what is remembered of each name for a week, nothing.
    let names = usize::try_from(used.0).unwrap() + 2;
    until(engine.name(), || match engine.kept(&namespace) {
        Kept { names: kept, waiting: 0, held: 0, for_ever: 0 } if kept == names => Ok(()),
        kept => Err(format!("{kept:?} after {names} names")),
    })
    .await;
}

#[test]
fn nothing_grows_without_end() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for engine in engines::all() {
        runtime.block_on(soak(&*engine));
    }
}

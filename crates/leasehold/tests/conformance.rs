//! The contract's suite, on the engines of this crate.
#![allow(clippy::unwrap_used)]

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    clock::{Clock, SystemClock},
    coordinator::{
        memory::{MemoryCoordinator, MemoryStore},
        sqlite::{Options, SqliteCoordinator},
    },
};
use leasehold_core::{
    Coordinator, Namespace, Ttl,
    profile::{Capabilities, QueueOrder},
    request::Preparation,
    window::Reading,
};
use leasehold_testkit::suite::{self, Connecting, Engine, Hook};
use tempfile::TempDir;

/// This machine's clocks, ahead by what was skipped.
#[derive(Debug, Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn read(&self) -> Reading {
        SystemClock.read().plus(Duration::from_micros(self.0.load(Ordering::SeqCst)))
    }
}

impl Ahead {
    fn skip(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

/// What an engine keeps per namespace; a namespace has a store of its own, so that its time can pass alone.
struct Spaces<T>(Mutex<Vec<(Namespace, Arc<Ahead>, T)>>);

impl<T: Clone> Spaces<T> {
    fn get(&self, namespace: &Namespace, make: impl FnOnce(Arc<Ahead>) -> T) -> (Arc<Ahead>, T) {
        let mut spaces = self.0.lock().unwrap();
        if let Some((_, clock, space)) = spaces.iter().find(|(name, _, _)| name == namespace) {
            return (Arc::clone(clock), space.clone());
        }
        let clock = Arc::new(Ahead::default());
        let space = make(Arc::clone(&clock));
        spaces.push((namespace.clone(), Arc::clone(&clock), space.clone()));
        (clock, space)
    }
}

const CAN: Capabilities = Capabilities {
    queue: QueueOrder::Fifo,
    wakes: true,
    once_per: true,
    ttl_step_ms: std::num::NonZeroU32::MIN,
};
const NOTHING_IS_LOST: &str = "an embedded engine has no way on which something could be lost";

struct Memory(Spaces<MemoryStore>);

impl Memory {
    fn store(&self, namespace: &Namespace) -> (Arc<Ahead>, MemoryStore) {
        self.0.get(namespace, |clock| MemoryStore::with_clock(clock))
    }
}

impl Engine for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        CAN
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        let client = MemoryCoordinator::new(self.store(namespace).1, namespace.clone());
        Box::pin(async move { Ok(Arc::new(client) as Arc<dyn Coordinator>) })
    }

    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        let store = self.store(namespace).1;
        Hook::Here(Box::pin(async move {
            let client = MemoryCoordinator::new(store.clone(), namespace.clone());
            client.prepare(Preparation { fresh: false, max_ttl: Some(max_ttl) }).await?;
            store.forget(namespace);
            Ok(Arc::new(client) as Arc<dyn Coordinator>)
        }))
    }

    fn crash<'a>(&'a self, _namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        Hook::Absent("memory ends with its process, its holders included")
    }

    fn lossy<'a>(&'a self, _: &'a Namespace, _: leasehold_testkit::reference::Loss) -> Hook<Connecting<'a>> {
        Hook::Absent(NOTHING_IS_LOST)
    }

    fn pass_time<'a>(&'a self, namespace: &'a Namespace, by: Duration) -> Hook<()> {
        self.store(namespace).0.skip(by);
        Hook::Here(())
    }
}

struct Sqlite {
    folder: TempDir,
    spaces: Spaces<PathBuf>,
}

impl Sqlite {
    fn open(&self, namespace: &Namespace, max_ttl: Option<Ttl>) -> SqliteCoordinator {
        let (clock, path) =
            self.spaces.get(namespace, |_| self.folder.path().join(format!("{namespace}.db")));
        SqliteCoordinator::open(&path, namespace.clone(), Options { max_ttl, clock, ..Options::default() })
            .unwrap()
    }
}

impl Engine for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> Capabilities {
        CAN
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        let client = self.open(namespace, None);
        Box::pin(async move { Ok(Arc::new(client) as Arc<dyn Coordinator>) })
    }

    /// The database is removed, and what the lock file knew with it.
    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        let (_, path) = self.spaces.get(namespace, |_| self.folder.path().join(format!("{namespace}.db")));
        let _ = std::fs::remove_file(&path);
        std::fs::write(self.folder.path().join(format!(".{namespace}.db-lock")), "damaged").unwrap();
        let client = self.open(namespace, Some(max_ttl));
        Hook::Here(Box::pin(async move { Ok(Arc::new(client) as Arc<dyn Coordinator>) }))
    }

    fn crash<'a>(&'a self, _namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        Hook::Absent("processes are killed in sqlite_processes.rs")
    }

    fn lossy<'a>(&'a self, _: &'a Namespace, _: leasehold_testkit::reference::Loss) -> Hook<Connecting<'a>> {
        Hook::Absent(NOTHING_IS_LOST)
    }

    fn pass_time<'a>(&'a self, namespace: &'a Namespace, by: Duration) -> Hook<()> {
        self.spaces.get(namespace, |_| self.folder.path().join(format!("{namespace}.db"))).0.skip(by);
        Hook::Here(())
    }
}

fn main() -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    suite::run(vec![
        Box::new(Memory(Spaces(Mutex::default()))),
        Box::new(Sqlite { folder, spaces: Spaces(Mutex::default()) }),
    ])
}

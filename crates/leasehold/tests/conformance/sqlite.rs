//! SQLite: a file for each namespace.

use std::{path::PathBuf, sync::Arc, time::Duration};

use leasehold::coordinator::sqlite::{Options, SqliteCoordinator};
use leasehold_core::{Coordinator, Namespace, Ttl, profile::Capabilities};
use leasehold_testkit::suite::{Connecting, Engine, Hook, Loss};
use tempfile::TempDir;

use crate::{CAN, NOTHING_IS_LOST, spaces::Spaces};

pub(crate) struct Sqlite {
    folder: TempDir,
    spaces: Spaces<PathBuf>,
}

impl Sqlite {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), spaces: Spaces::new() }
    }

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

    /// What `kill -9` of everybody at this moment would leave: the file, its log and its lock file, which others go on with. Not
    /// the index of the log, which a process that finds itself alone makes anew.
    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        let (clock, path) =
            self.spaces.get(namespace, |_| self.folder.path().join(format!("{namespace}.db")));
        let left = self.folder.path().join(format!("{namespace}-crashed"));
        std::fs::create_dir(&left).unwrap();
        for name in
            [format!("{namespace}.db"), format!("{namespace}.db-wal"), format!(".{namespace}.db-lock")]
        {
            std::fs::copy(path.with_file_name(&name), left.join(&name)).unwrap();
        }
        let options = Options { clock, ..Options::default() };
        let path = left.join(format!("{namespace}.db"));
        let client = SqliteCoordinator::open(&path, namespace.clone(), options).unwrap();
        Hook::Here(Box::pin(async move { Ok(Arc::new(client) as Arc<dyn Coordinator>) }))
    }

    fn lossy<'a>(&'a self, _: &'a Namespace, _: Loss) -> Hook<Connecting<'a>> {
        Hook::Inapplicable(NOTHING_IS_LOST)
    }

    fn pass_time<'a>(&'a self, namespace: &'a Namespace, by: Duration) -> Hook<()> {
        self.spaces.get(namespace, |_| self.folder.path().join(format!("{namespace}.db"))).0.skip(by);
        Hook::Here(())
    }
}

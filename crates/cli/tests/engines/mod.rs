//! The coordinators on which the command line must do and say the same.

use std::{
    path::Path,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use leasehold_testkit::server::{Etcd, Postgres, Redis, RedisSetup};

/// One coordinator.
pub(crate) trait Engine: Send + Sync + 'static {
    /// One word, for the test's name.
    fn name(&self) -> &'static str;

    /// A place of its own, with nothing in it, for TTLs of up to a day. Starts the server if it does not run yet.
    fn url(&self, folder: &Path) -> String;

    /// Whether grants that have ended are remembered.
    #[allow(dead_code, reason = "the transcripts do not ask")]
    fn has_history(&self) -> bool {
        true
    }

    /// Whether waiters have an order, and can be seen.
    #[allow(dead_code, reason = "only those who wait ask")]
    fn has_queue(&self) -> bool {
        true
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Box<dyn Engine>> {
    vec![
        Box::new(Sqlite),
        Box::new(OnPostgres::default()),
        Box::new(OnRedis::default()),
        Box::new(OnRedlock::default()),
        Box::new(OnEtcd::default()),
    ]
}

/// A lease file.
pub(crate) struct Sqlite;

impl Engine for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn url(&self, folder: &Path) -> String {
        format!("sqlite:{}", folder.join("leases.db").display())
    }
}

/// One server; a database for each place.
#[derive(Default)]
struct OnRedis {
    server: OnceLock<Redis>,
    places: AtomicU32,
}

impl Engine for OnRedis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn url(&self, _: &Path) -> String {
        let server = self.server.get_or_init(|| RedisSetup::new().with("databases", "1000").start().unwrap());
        let place = self.places.fetch_add(1, Ordering::Relaxed);
        format!("{}/{place}?max_ttl=24h", server.url())
    }
}

/// One member; a prefix for each place.
#[derive(Default)]
struct OnEtcd {
    server: OnceLock<Etcd>,
    places: AtomicU32,
}

impl Engine for OnEtcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn url(&self, _: &Path) -> String {
        let server = self.server.get_or_init(|| Etcd::start(1).unwrap());
        let place = self.places.fetch_add(1, Ordering::Relaxed);
        format!("etcd://{}/place-{place}?max_ttl=24h", server.hosts())
    }
}

/// One server; a database for each place.
#[derive(Default)]
struct OnPostgres {
    server: OnceLock<Postgres>,
}

impl Engine for OnPostgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn url(&self, _: &Path) -> String {
        let server = self.server.get_or_init(|| Postgres::start().unwrap());
        format!("{}?max_ttl=24h", server.url(&server.database().unwrap()))
    }
}

/// Three servers for each place.
#[derive(Default)]
struct OnRedlock {
    nodes: Mutex<Vec<Redis>>,
}

impl Engine for OnRedlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn url(&self, _: &Path) -> String {
        let nodes: Vec<Redis> = (0..3).map(|_| RedisSetup::new().start().unwrap()).collect();
        let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
        self.nodes.lock().unwrap().extend(nodes);
        format!("redlock://{}?max_ttl=24h", hosts.join(","))
    }

    fn has_queue(&self) -> bool {
        false
    }

    fn has_history(&self) -> bool {
        false
    }
}

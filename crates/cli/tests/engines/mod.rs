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

    /// What the coordinator has of a namespace of the place that it gave last, in its own words. For one place at a time.
    #[allow(dead_code, reason = "only `verify` leaves nothing")]
    fn traces(&self, _folder: &Path, _namespace: &str) -> Vec<String> {
        // A place that nobody can look at is not known to be clean.
        vec!["not looked at".to_owned()]
    }

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

    fn traces(&self, folder: &Path, namespace: &str) -> Vec<String> {
        let file = rusqlite::Connection::open(folder.join("leases.db")).unwrap();
        let count = |sql: &str, parameters: &[&dyn rusqlite::ToSql]| -> u32 {
            file.query_row(sql, parameters, |row| row.get(0)).unwrap()
        };
        let own = count("SELECT count(*) FROM space WHERE name = ?1", &[&namespace]);
        // Nobody else uses the file.
        let rows = ["slot", "queue", "past"].map(|table| (table, format!("SELECT count(*) FROM {table}")));
        let rows = rows.map(|(table, sql)| (table, count(&sql, &[])));
        rows.into_iter().chain([("space", own)]).filter(|(_, rows)| *rows > 0).map(told).collect()
    }
}

fn told((what, count): (&str, u32)) -> String {
    format!("{count} of {what}")
}

fn lines(said: &str) -> Vec<String> {
    said.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
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

    /// Whatever is in that database: nobody else uses it.
    fn traces(&self, _: &Path, _: &str) -> Vec<String> {
        let database = format!("db{}:", self.places.load(Ordering::Relaxed) - 1);
        let all = self.server.get().unwrap().ask(&["INFO", "keyspace"]).unwrap().text();
        lines(&all).into_iter().filter(|line| line.starts_with(&database)).collect()
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

    /// Keys, and leases; the first line of those says how many follow.
    fn traces(&self, _: &Path, namespace: &str) -> Vec<String> {
        let server = self.server.get().unwrap();
        let prefix = format!("place-{}/{namespace}/", self.places.load(Ordering::Relaxed) - 1);
        let keys = server.ctl(&["get", &prefix, "--prefix", "--keys-only"]).unwrap();
        let leases = server.ctl(&["lease", "list"]).unwrap();
        [lines(&keys), lines(&leases).split_off(1)].concat()
    }
}

/// One server; a database for each place.
#[derive(Default)]
struct OnPostgres {
    server: OnceLock<Postgres>,
    last: Mutex<String>,
}

impl Engine for OnPostgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn url(&self, _: &Path) -> String {
        let server = self.server.get_or_init(|| Postgres::start().unwrap());
        let database = server.database().unwrap();
        self.last.lock().unwrap().clone_from(&database);
        format!("{}?max_ttl=24h", server.url(&database))
    }

    fn traces(&self, _: &Path, namespace: &str) -> Vec<String> {
        let (server, database) = (self.server.get().unwrap(), self.last.lock().unwrap());
        let rows = |table: &str| {
            let sql = format!("SELECT count(*) FROM leasehold.{table} WHERE namespace = '{namespace}'");
            server.psql(&database, &sql).unwrap().parse().unwrap()
        };
        let tables = ["space", "slot", "queue", "past"].map(|table| (table, rows(table)));
        tables.into_iter().filter(|(_, rows)| *rows > 0).map(told).collect()
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

    /// Whatever is on any node: nobody else uses them.
    fn traces(&self, _: &Path, _: &str) -> Vec<String> {
        let nodes = self.nodes.lock().unwrap();
        nodes
            .iter()
            .flat_map(|node| lines(&node.ask(&["INFO", "keyspace"]).unwrap().text()))
            .filter(|line| line.starts_with("db"))
            .collect()
    }

    fn has_queue(&self) -> bool {
        false
    }

    fn has_history(&self) -> bool {
        false
    }
}

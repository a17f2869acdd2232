//! The engines, and what they have of us.

use leasehold::fence::sqlite::rusqlite::Connection;
use leasehold_core::Namespace;
use leasehold_testkit::server::{Etcd, Postgres, Redis, RedisSetup, Reply};

/// What an engine keeps of a namespace.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Resources of which something is remembered.
    pub(crate) names: usize,
    /// Places in lines.
    pub(crate) waiting: usize,
    /// Grants, and what they hang on.
    pub(crate) held: usize,
    /// What would stay for ever, beside the namespace's own record.
    pub(crate) for_ever: usize,
}

pub(crate) trait Engine {
    fn name(&self) -> &'static str;
    fn url(&self) -> String;
    /// Connections that it has now.
    fn connections(&self) -> usize;
    fn kept(&self, namespace: &Namespace) -> Kept;
}

pub(crate) fn all() -> [Box<dyn Engine>; 4] {
    [
        Box::new(OnSqlite::new()),
        Box::new(OnRedis::new()),
        Box::new(OnPostgres::new()),
        Box::new(OnEtcd::new()),
    ]
}

struct OnSqlite(tempfile::TempDir);

impl OnSqlite {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Engine for OnSqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.0.path().join("leases.db").display())
    }

    /// Files in its folder: the database, its log and index, the locks.
    fn connections(&self) -> usize {
        std::fs::read_dir(self.0.path()).unwrap().count()
    }

    fn kept(&self, _namespace: &Namespace) -> Kept {
        let connection = Connection::open(self.0.path().join("leases.db")).unwrap();
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap() as usize;
        // The log is emptied as it goes: it does not grow with every lease.
        let log = std::fs::metadata(self.0.path().join("leases.db-wal")).map_or(0, |log| log.len());
        Kept {
            names: count("SELECT count(*) FROM slot"),
            waiting: count("SELECT count(*) FROM queue"),
            held: count("SELECT count(*) FROM slot WHERE lease_id IS NOT NULL"),
            for_ever: usize::from(log > 16 << 20),
        }
    }
}

struct OnRedis(Redis);

impl OnRedis {
    fn new() -> Self {
        Self(RedisSetup::new().start().unwrap())
    }

    fn all(&self, words: &[&str]) -> Vec<String> {
        match self.0.ask(words).unwrap() {
            Reply::Many(items) => items.iter().map(Reply::text).collect(),
            other => panic!("{other:?}"),
        }
    }
}

impl Engine for OnRedis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn connections(&self) -> usize {
        // One of them asks.
        self.0.ask(&["CLIENT", "LIST"]).unwrap().text().lines().count() - 1
    }

    fn kept(&self, namespace: &Namespace) -> Kept {
        let own = |letter: &str| format!("lh:{{{namespace}}}:{letter}");
        let keys = self.all(&["KEYS", "*"]);
        let of = |letter: &str| keys.iter().filter(|key| key.starts_with(&own(letter))).count();
        let for_ever = |key: &&String| {
            **key != own("m") && **key != own("i") && self.0.ask(&["TTL", key]).unwrap().text() == "-1"
        };
        Kept {
            names: of("r:"),
            waiting: of("q:") + of("w:"),
            held: 0,
            for_ever: keys.iter().filter(for_ever).count(),
        }
    }
}

struct OnPostgres {
    server: Postgres,
    database: String,
}

impl OnPostgres {
    fn new() -> Self {
        let server = Postgres::start().unwrap();
        let database = server.database().unwrap();
        Self { server, database }
    }

    fn count(&self, sql: &str) -> usize {
        self.server.psql(&self.database, sql).unwrap().parse().unwrap()
    }
}

impl Engine for OnPostgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn url(&self) -> String {
        self.server.url(&self.database)
    }

    fn connections(&self) -> usize {
        let others = "pid <> pg_backend_pid() AND backend_type = 'client backend'";
        self.count(&format!("SELECT count(*) FROM pg_stat_activity WHERE {others}"))
    }

    fn kept(&self, namespace: &Namespace) -> Kept {
        let of = |table: &str, more: &str| {
            self.count(&format!(
                "SELECT count(*) FROM leasehold.{table} WHERE namespace = '{namespace}' {more}"
            ))
        };
        Kept {
            names: of("slot", ""),
            waiting: of("queue", "") + of("slot", "AND waiting > 0"),
            held: of("slot", "AND lease_id IS NOT NULL"),
            for_ever: self.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
        }
    }
}

struct OnEtcd(Etcd);

impl OnEtcd {
    fn new() -> Self {
        Self(Etcd::start(1).unwrap())
    }

    fn count(&self, words: &[&str]) -> usize {
        self.0.ctl(words).unwrap().lines().filter(|line| !line.trim().is_empty()).count()
    }
}

impl Engine for OnEtcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn url(&self) -> String {
        format!("etcd://{}", self.0.hosts())
    }

    /// HTTP/2 carries everything of a client over one; how many there are is seen by this process's descriptors.
    fn connections(&self) -> usize {
        0
    }

    fn kept(&self, namespace: &Namespace) -> Kept {
        let of = |kind: &str| {
            let prefix = format!("leasehold/{namespace}/{kind}/");
            self.count(&["get", &prefix, "--prefix", "--keys-only"])
        };
        // The first line says how many follow. Those of clients that have gone run out within 45 s; there are as many for each as it
        // had tasks, and one for its places in lines.
        let leases = self.count(&["lease", "list"]).saturating_sub(1);
        Kept { names: of("state"), waiting: of("line"), held: of("held"), for_ever: usize::from(leases > 64) }
    }
}

//! The engines that are measured: private ones, started for their groups and ended after them, so that no engine runs beside
//! another.

use std::{fmt, io, path::Path};

use leasehold_testkit::server::{Etcd, Postgres, Redis, RedisSetup, Setup, folder};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::{
    measure,
    task::{Failure, failed},
};

const NODES: usize = 5;

/// Where something is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// No engine at all.
    Local,
    Sqlite,
    Redis,
    RedisAof,
    Redlock,
    Etcd,
    EtcdThree,
    Postgres,
}

impl Stage {
    /// The engine, in the words of tasks and of `--only`.
    pub(crate) fn engine(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Sqlite => "sqlite",
            Self::Redis | Self::RedisAof => "redis",
            Self::Redlock => "redlock",
            Self::Etcd | Self::EtcdThree => "etcd",
            Self::Postgres => "postgres",
        }
    }

    /// On engines in memory, lone tasks are at the mercy of processors that fall asleep between two requests. Two spinners of
    /// the lowest priority keep them awake. They would ruin whatever waits for a disk.
    pub(crate) fn wants_spinners(self) -> bool {
        matches!(self, Self::Redis | Self::Redlock)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "no engine",
            Self::Sqlite => "SQLite, WAL, synchronous = FULL",
            Self::Redis => "Redis, no persistence",
            Self::RedisAof => "Redis, AOF always",
            Self::Redlock => "Redlock, 5 Redis nodes",
            Self::Etcd => "etcd, 1 member",
            Self::EtcdThree => "etcd, 3 members",
            Self::Postgres => "PostgreSQL, durable",
        })
    }
}

/// What keeps running, and is ended when dropped.
enum Engine {
    None,
    Redis(Vec<Redis>),
    Etcd(Etcd),
    Postgres(Postgres),
}

/// A running engine.
pub(crate) struct Running {
    engine: Engine,
    pub(crate) url: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) pids: Vec<u32>,
    folder: TempDir,
}

impl Running {
    /// # Errors
    /// When a program is missing or does not start.
    pub(crate) fn start(stage: Stage) -> io::Result<Self> {
        let folder = folder("bench")?;
        let engine = match stage {
            Stage::Local | Stage::Sqlite => Engine::None,
            Stage::Redis => Engine::Redis(vec![RedisSetup::new().start()?]),
            Stage::RedisAof => Engine::Redis(vec![RedisSetup::new().durable().on_disk().start()?]),
            Stage::Redlock => {
                let nodes: io::Result<_> = (0..NODES).map(|_| RedisSetup::new().start()).collect();
                Engine::Redis(nodes?)
            }
            Stage::Etcd => Engine::Etcd(etcd(1)?),
            Stage::EtcdThree => Engine::Etcd(etcd(3)?),
            Stage::Postgres => Engine::Postgres(Postgres::start_on_disk()?),
        };
        let hosts = hosts(&engine);
        let url = url(stage, &engine, &hosts, folder.path());
        // Nothing else runs by then.
        let pids = measure::own_children();
        Ok(Self { engine, url, hosts, pids, folder })
    }

    /// For files of who is measured.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One of several servers answers nothing from now on, or does again.
    ///
    /// # Errors
    /// When the system refuses, or there are not several.
    pub(crate) fn stall(&self, stalled: bool) -> Result<(), Failure> {
        let Engine::Redis(nodes) = &self.engine else { return failed("only Redis nodes can be stalled") };
        let node = nodes.get(1).ok_or("there is only one")?.server();
        let changed = if stalled { node.pause() } else { node.resume() };
        Ok(changed?)
    }
}

fn etcd(members: usize) -> io::Result<Etcd> {
    Etcd::with(members, Setup { on_disk: true, ..Setup::default() })
}

fn hosts(engine: &Engine) -> Vec<String> {
    match engine {
        Engine::None => Vec::new(),
        Engine::Redis(nodes) => nodes.iter().map(|node| node.address().to_string()).collect(),
        Engine::Etcd(etcd) => (0..etcd.size()).map(|at| etcd.address(at).to_string()).collect(),
        Engine::Postgres(server) => vec![server.address().to_string()],
    }
}

fn url(stage: Stage, engine: &Engine, hosts: &[String], folder: &Path) -> String {
    match (engine, stage) {
        (Engine::Redis(_), Stage::Redlock) => format!("redlock://{}", hosts.join(",")),
        (Engine::Redis(_), _) => format!("redis://{}", hosts.join(",")),
        (Engine::Etcd(_), _) => format!("etcd://{}", hosts.join(",")),
        (Engine::Postgres(server), _) => server.url("postgres"),
        (Engine::None, _) => format!("sqlite:{}", folder.join("leases").display()),
    }
}

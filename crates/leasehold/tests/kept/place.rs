//! A new namespace on each engine, and what has to be alive meanwhile.

use std::any::Any;

use leasehold::{Label, Leases, core::request::Preparation};
use leasehold_testkit::server::{Etcd, Postgres, RedisSetup};

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

/// Where clients connect to.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    url: String,
    _alive: Box<dyn Any + Send>,
}

impl Place {
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("leases.db").display());
        Self::made("sqlite", url, folder).await
    }

    pub(crate) async fn postgres(mode: &str) -> Self {
        let server = Postgres::start().unwrap();
        let url = format!("{}{mode}", server.url(&server.database().unwrap()));
        Self::made("postgres", url, server).await
    }

    pub(crate) async fn redis() -> Self {
        let server = RedisSetup::new().start().unwrap();
        Self::made("redis", server.url(), server).await
    }

    pub(crate) async fn redlock() -> Self {
        let nodes: Vec<_> = (0..3).map(|_| RedisSetup::new().start().unwrap()).collect();
        let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
        Self::made("redlock", format!("redlock://{}", hosts.join(",")), nodes).await
    }

    pub(crate) async fn etcd() -> Self {
        let server = Etcd::start(1).unwrap();
        Self::made("etcd", format!("etcd://{}", server.hosts()), server).await
    }

    async fn made(name: &'static str, url: String, alive: impl Any + Send) -> Self {
        let place = Self { name, url, _alive: Box::new(alive) };
        let fresh = Preparation { fresh: true, max_ttl: None };
        place.connect("init").await.prepare(fresh).await.unwrap();
        place
    }

    pub(crate) async fn connect(&self, name: &str) -> Leases {
        Leases::builder(&self.url).label(label(name)).connect().await.unwrap()
    }
}

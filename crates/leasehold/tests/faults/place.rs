//! The engines: where they are, and a way to them that can be broken.

use std::{any::Any, net::SocketAddr, time::Duration};

use leasehold::{Leases, Namespace, core::profile::QueueOrder};
use leasehold_core::request::Preparation;
use leasehold_testkit::{
    clock::Stopwatch,
    server::{Cut, Etcd, Passage, Postgres, Proxy, Redis, RedisSetup},
};

/// How long something that must come may take. Shorter than [`LONG`]: what comes by then did not come by running out.
pub const PATIENCE: Duration = Duration::from_secs(45);
/// A TTL that nobody waits for.
pub const LONG: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(10);

/// From where the servers are to the URL.
type Url = dyn Fn(&[SocketAddr]) -> String;

/// An engine that runs, and a namespace on it.
pub struct Place {
    pub namespace: Namespace,
    servers: Vec<SocketAddr>,
    url: Box<Url>,
    // Ended when it is dropped.
    _engine: Box<dyn Any>,
}

impl Place {
    fn new(
        servers: Vec<SocketAddr>,
        url: impl Fn(&[SocketAddr]) -> String + 'static,
        engine: impl Any,
    ) -> Self {
        let namespace = leasehold_testkit::random::namespace();
        Self { namespace, servers, url: Box::new(url), _engine: Box::new(engine) }
    }

    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("leases.db").display());
        Self::new(Vec::new(), move |_| url.clone(), folder)
    }

    pub fn redis() -> Self {
        let server = RedisSetup::new().start().unwrap();
        Self::new(vec![server.address()], |at| format!("redis://{}", at[0]), server)
    }

    pub fn redlock() -> Self {
        let nodes: [Redis; 3] = std::array::from_fn(|_| RedisSetup::new().start().unwrap());
        let servers = nodes.iter().map(Redis::address).collect();
        let url = |at: &[SocketAddr]| {
            let hosts: Vec<String> = at.iter().map(ToString::to_string).collect();
            format!("redlock://{}", hosts.join(","))
        };
        Self::new(servers, url, nodes)
    }

    pub fn postgres() -> Self {
        let server = Postgres::start().unwrap();
        let database = server.database().unwrap();
        // Whether the server speaks TLS is asked before the login, and that cannot be said a second time.
        let url = move |at: &[SocketAddr]| format!("{}?sslmode=disable", Postgres::url_at(at[0], &database));
        Self::new(vec![server.address()], url, server)
    }

    pub fn etcd() -> Self {
        let server = Etcd::start(1).unwrap();
        Self::new(vec![server.address(0)], |at| format!("etcd://{}", at[0]), server)
    }

    /// A client that goes straight there. The first one makes the namespace.
    pub async fn near(&self) -> Leases {
        let leases = self.connect(&self.servers).await;
        leases.prepare(Preparation { fresh: true, max_ttl: None }).await.unwrap();
        leases
    }

    /// Another client that goes straight there.
    pub async fn another(&self) -> Leases {
        self.connect(&self.servers).await
    }

    /// Ways that can be broken, one to each server.
    pub fn ways(&self) -> Vec<Proxy> {
        self.servers.iter().map(|server| Proxy::listening(*server).unwrap()).collect()
    }

    /// A way on which etcd makes changes and nobody hears of it: all answers are lost elsewhere, and there a change begins with a read.
    pub fn cut(&self) -> Cut {
        let cut = Cut::start(self.servers[0]).unwrap();
        cut.set(false);
        cut
    }

    pub fn url_at(&self, at: &[SocketAddr]) -> String {
        (self.url)(at)
    }

    /// A client that goes these ways.
    pub async fn far(&self, ways: &[Proxy]) -> Leases {
        self.connect(&ways.iter().map(Proxy::address).collect::<Vec<_>>()).await
    }

    async fn connect(&self, at: &[SocketAddr]) -> Leases {
        Leases::builder(&(self.url)(at)).namespace(self.namespace.clone()).connect().await.unwrap()
    }
}

/// What happens on all of these ways.
pub fn set(ways: &[Proxy], passage: Passage) {
    for way in ways {
        way.set_both(passage);
    }
}

/// True where waiters can be seen.
pub fn has_line(leases: &Leases) -> bool {
    leases.profile().capabilities.queue == QueueOrder::Fifo
}

/// Waits until something holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Stopwatch::start();
    while !holds().await {
        assert!(since.elapsed() < PATIENCE, "{what} did not come about within {PATIENCE:?}");
        tokio::time::sleep(GLANCE).await;
    }
}

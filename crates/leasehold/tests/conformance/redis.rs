//! Redis: a server for each namespace; a group watched by Sentinels and a Cluster for all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use leasehold::{
    address::Address,
    coordinator::redis::{Options, connect},
};
use leasehold_core::{Coordinator, Namespace, Ttl, profile::Capabilities, request::Preparation};
use leasehold_testkit::{
    server::{RedisCluster, RedisSentinels, RedisSetup, Reply, ask_redis},
    suite::{Connecting, Engine, Failure, Hook, Loss},
};

use crate::{
    CAN,
    lossy::{Lossy, Way},
};

async fn open(url: &str, namespace: &Namespace, fresh: bool) -> Result<Arc<dyn Coordinator>, Failure> {
    let (scheme, rest) = url.split_once(':').unwrap();
    let client = connect(Options::read(&Address::parse(scheme, rest)?)?, namespace.clone()).await?;
    if fresh {
        // Refused when another client was here before.
        let _ = client.prepare(Preparation { fresh: true, max_ttl: None }).await;
    }
    Ok(client)
}

fn bounded(url: &str, max_ttl: Ttl) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}max_ttl={}ms", max_ttl.as_millis())
}

/// Writes a server's present incarnation into the record of a namespace.
fn readmit(server: &leasehold_testkit::server::Redis, key: &str) -> Result<(), Failure> {
    let Reply::Bytes(mut record) = server.ask(&["GET", key]).unwrap() else {
        return Err(Failure::new("the namespace's record did not survive"));
    };
    record[4..44].copy_from_slice(server.info("master_replid").unwrap().as_bytes());
    ask_redis(server.address(), &[b"SET", key.as_bytes(), &record]).unwrap();
    Ok(())
}

fn start(setup: RedisSetup) -> Arc<leasehold_testkit::server::Redis> {
    Arc::new(setup.start().unwrap())
}

/// Redis alone, every change on disk before it is answered, with a clock of its own.
pub(crate) struct Single(Mutex<HashMap<Namespace, Arc<leasehold_testkit::server::Redis>>>);

impl Single {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    async fn server(&self, namespace: &Namespace) -> Arc<leasehold_testkit::server::Redis> {
        if let Some(server) = self.0.lock().unwrap().get(namespace) {
            return Arc::clone(server);
        }
        let setup = RedisSetup::new().durable().with_clock();
        let server = tokio::task::spawn_blocking(move || start(setup)).await.unwrap();
        Arc::clone(self.0.lock().unwrap().entry(namespace.clone()).or_insert(server))
    }
}

impl Engine for Single {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> Capabilities {
        CAN
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move { open(&self.server(namespace).await.url(), namespace, true).await })
    }

    /// The namespace's own record is lost.
    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let server = self.server(namespace).await;
            server.ask(&["DEL", &format!("lh:{{{namespace}}}:m")]).unwrap();
            open(&bounded(&server.url(), max_ttl), namespace, false).await
        }))
    }

    /// `kill -9` and a new start. The pause that follows is not what these cases are about: the test, which knows that nothing
    /// was lost, writes the new incarnation into the namespace's record.
    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let server = self.server(namespace).await;
            server.crash().unwrap();
            readmit(&server, &format!("lh:{{{namespace}}}:m"))?;
            open(&server.url(), namespace, false).await
        }))
    }

    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let server = self.server(namespace).await;
            let way = Way::new(server.address());
            let client = open(&format!("redis://{}", way.address()), namespace, false).await?;
            Ok(Lossy::on(client, way, loss).await)
        }))
    }

    fn pass_time<'a>(&'a self, namespace: &'a Namespace, by: Duration) -> Hook<()> {
        let server = self.0.lock().unwrap().get(namespace).cloned();
        server.unwrap().clock().forward(by).unwrap();
        Hook::Here(())
    }
}

/// The shards of a namespace on a Cluster.
const SHARDS: u32 = 16;
const ONE_CLOCK: &str = "servers that watch one another take a clock that jumps for a server that was away";

/// A master and a replica behind Sentinels.
pub(crate) struct Sentinel {
    shared: OnceLock<Arc<RedisSentinels>>,
    /// Those that one case has for itself.
    alone: Mutex<HashMap<Namespace, Arc<RedisSentinels>>>,
}

/// A server that is merely slow is not to be failed over under the cases.
const SILENCE: Duration = Duration::from_secs(60);

impl Sentinel {
    pub(crate) fn new() -> Self {
        Self { shared: OnceLock::new(), alone: Mutex::default() }
    }

    /// The group on which a namespace is.
    fn group(&self, namespace: &Namespace) -> Arc<RedisSentinels> {
        if let Some(alone) = self.alone.lock().unwrap().get(namespace) {
            return Arc::clone(alone);
        }
        let start = || Arc::new(RedisSentinels::of(&RedisSetup::new(), SILENCE).unwrap());
        Arc::clone(tokio::task::block_in_place(|| self.shared.get_or_init(start)))
    }
}

impl Engine for Sentinel {
    fn name(&self) -> &'static str {
        "redis-sentinel"
    }

    fn capabilities(&self) -> Capabilities {
        CAN
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move {
            let url = self.group(namespace).url();
            open(&url, namespace, true).await
        })
    }

    fn connect_alone<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move {
            let start = || RedisSentinels::of(&RedisSetup::new().durable(), SILENCE).map(Arc::new).unwrap();
            let group = tokio::task::spawn_blocking(start).await.unwrap();
            self.alone.lock().unwrap().insert(namespace.clone(), group);
            self.connect(namespace).await
        })
    }

    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let group = self.group(namespace);
            group.master_server().unwrap().ask(&["DEL", &format!("lh:{{{namespace}}}:m")]).unwrap();
            open(&bounded(&group.url(), max_ttl), namespace, false).await
        }))
    }

    /// `kill -9` of the servers and their Sentinels, and a new start, as for the server alone: the master is the one from before.
    /// What becomes of leases when it is another one is told by the label, and tested in `redis_faults`.
    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let group = self.group(namespace);
            let crashed = Arc::clone(&group);
            tokio::task::spawn_blocking(move || crashed.crash()).await.unwrap().unwrap();
            readmit(group.master_server().unwrap(), &format!("lh:{{{namespace}}}:m"))?;
            open(&group.url(), namespace, false).await
        }))
    }

    /// Sentinel names the server itself, which no proxy stands in front of: the way to the master is broken on a client that
    /// was given its address.
    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let way = Way::new(self.group(namespace).master().unwrap());
            let client = open(&format!("redis://{}", way.address()), namespace, false).await?;
            Ok(Lossy::on(client, way, loss).await)
        }))
    }

    fn pass_time<'a>(&'a self, _: &'a Namespace, _: Duration) -> Hook<()> {
        Hook::Absent(ONE_CLOCK)
    }
}

/// Three masters that share the slots.
pub(crate) struct Cluster {
    shared: OnceLock<Arc<RedisCluster>>,
    /// Those that one case has for itself.
    alone: Mutex<HashMap<Namespace, Arc<RedisCluster>>>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self { shared: OnceLock::new(), alone: Mutex::default() }
    }

    /// The one on which a namespace is.
    fn nodes(&self, namespace: &Namespace) -> Arc<RedisCluster> {
        if let Some(alone) = self.alone.lock().unwrap().get(namespace) {
            return Arc::clone(alone);
        }
        let start = || Arc::new(RedisCluster::start(false).unwrap());
        Arc::clone(tokio::task::block_in_place(|| self.shared.get_or_init(start)))
    }
}

/// The key of the record of one of a namespace's shards.
fn shard(namespace: &Namespace, shard: u32) -> String {
    format!("lh:{{{namespace}:{shard:02}}}:m")
}

impl Engine for Cluster {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    fn capabilities(&self) -> Capabilities {
        CAN
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move {
            let url = self.nodes(namespace).url();
            open(&url, namespace, true).await
        })
    }

    fn connect_alone<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move {
            let start = || RedisCluster::with(&RedisSetup::new().durable(), false).map(Arc::new).unwrap();
            let cluster = tokio::task::spawn_blocking(start).await.unwrap();
            self.alone.lock().unwrap().insert(namespace.clone(), cluster);
            self.connect(namespace).await
        })
    }

    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let cluster = self.nodes(namespace);
            for at in 0..SHARDS {
                let key = shard(namespace, at);
                // Two of three say that it is not theirs.
                let _ = cluster.nodes.iter().flat_map(|node| node.ask(&["DEL", &key])).count();
            }
            open(&bounded(&cluster.url(), max_ttl), namespace, false).await
        }))
    }

    /// `kill -9` of all nodes, and a new start, as for the server alone: the new incarnations are written into the records.
    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let cluster = self.nodes(namespace);
            let crashed = Arc::clone(&cluster);
            tokio::task::spawn_blocking(move || crashed.crash()).await.unwrap().unwrap();
            for node in &cluster.nodes {
                let incarnation = node.info("master_replid").unwrap();
                for at in 0..SHARDS {
                    let key = shard(namespace, at);
                    // Two of three say that it is not theirs.
                    if let Ok(Reply::Bytes(mut record)) = node.ask(&["GET", &key]) {
                        record[4..44].copy_from_slice(incarnation.as_bytes());
                        ask_redis(node.address(), &[b"SET", key.as_bytes(), &record]).unwrap();
                    }
                }
            }
            open(&cluster.url(), namespace, false).await
        }))
    }

    /// A proxy in front of each node, and the nodes' answers name the proxies.
    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let cluster = self.nodes(namespace);
            let servers: Vec<_> =
                cluster.nodes.iter().map(leasehold_testkit::server::Redis::address).collect();
            let way = Way::to_shards(&servers);
            let hosts: Vec<String> = way.addresses().iter().map(ToString::to_string).collect();
            let client = open(&format!("redis://{}?cluster=true", hosts.join(",")), namespace, false).await?;
            Ok(Lossy::on(client, way, loss).await)
        }))
    }

    fn pass_time<'a>(&'a self, _: &'a Namespace, _: Duration) -> Hook<()> {
        Hook::Absent(ONE_CLOCK)
    }
}

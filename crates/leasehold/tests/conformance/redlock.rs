//! Redlock: three servers for each namespace, so that each can be crashed alone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    address::Address,
    coordinator::redlock::{Options, connect},
};
use leasehold_core::{
    Coordinator, Namespace, Ttl,
    profile::{Capabilities, QueueOrder},
    request::Preparation,
};
use leasehold_testkit::{
    server::{Redis, RedisSetup, Reply, ask_redis},
    suite::{Connecting, Engine, Failure, Hook, Loss},
};

use crate::{
    CAN,
    lossy::{Lossy, Way},
};

const NODES: usize = 3;
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(20);

type Nodes = Arc<Vec<Redis>>;

fn url(addresses: impl IntoIterator<Item = std::net::SocketAddr>) -> String {
    let hosts: Vec<String> = addresses.into_iter().map(|address| address.to_string()).collect();
    format!("redlock://{}", hosts.join(","))
}

fn url_of(nodes: &[Redis]) -> String {
    url(nodes.iter().map(Redis::address))
}

async fn open(url: &str, namespace: &Namespace, fresh: bool) -> Result<Arc<dyn Coordinator>, Failure> {
    let (scheme, rest) = url.split_once(':').unwrap();
    let client = connect(Options::read(&Address::parse(scheme, rest)?)?, namespace.clone()).await?;
    // All nodes have to be there. Refused when another client was here before.
    let preparation = Preparation { fresh: true, max_ttl: None };
    while fresh && client.prepare(preparation).await.is_err_and(|error| error.is_transient()) {
        tokio::time::sleep(GLANCE).await;
    }
    Ok(client)
}

pub(crate) struct Redlock(Mutex<HashMap<Namespace, Nodes>>);

impl Redlock {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    async fn nodes(&self, namespace: &Namespace) -> Nodes {
        if let Some(nodes) = self.0.lock().unwrap().get(namespace) {
            return Arc::clone(nodes);
        }
        // A killed process leaves what it wrote to the kernel: that is as durable as a crash without a power failure needs.
        let setup = RedisSetup::new().with("appendonly", "yes").with("appendfsync", "no");
        let start = move || Arc::new((0..NODES).map(|_| setup.clone().start().unwrap()).collect::<Vec<_>>());
        let nodes = tokio::task::spawn_blocking(start).await.unwrap();
        Arc::clone(self.0.lock().unwrap().entry(namespace.clone()).or_insert(nodes))
    }
}

fn meta(namespace: &Namespace) -> String {
    format!("lh:{{{namespace}}}:m")
}

impl Engine for Redlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { queue: QueueOrder::Unordered, history: false, ..CAN }
    }

    /// Every step takes several messages to several servers.
    fn short_ttl(&self) -> Duration {
        Duration::from_millis(800)
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move { open(&url_of(&self.nodes(namespace).await), namespace, true).await })
    }

    /// Every node loses the namespace's own record.
    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let nodes = self.nodes(namespace).await;
            for node in nodes.iter() {
                node.ask(&["DEL", &meta(namespace)]).unwrap();
            }
            let url = format!("{}?max_ttl={}ms", url_of(&nodes), max_ttl.as_millis());
            open(&url, namespace, false).await
        }))
    }

    /// `kill -9` and a new start of all nodes. The pause that follows is not what these cases are about: the test, which knows
    /// that nothing was lost, writes the new incarnations into the namespace's records.
    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let nodes = self.nodes(namespace).await;
            for node in nodes.iter() {
                node.crash().unwrap();
                let Reply::Bytes(mut record) = node.ask(&["GET", &meta(namespace)]).unwrap() else {
                    return Err(Failure::new("the namespace's record did not survive"));
                };
                record[4..44].copy_from_slice(node.info("master_replid").unwrap().as_bytes());
                ask_redis(node.address(), &[b"SET", meta(namespace).as_bytes(), &record]).unwrap();
            }
            open(&url_of(&nodes), namespace, false).await
        }))
    }

    /// The ways to all nodes are broken.
    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let nodes = self.nodes(namespace).await;
            let way = Way::to_all(nodes.iter().map(Redis::address));
            let client = open(&url(way.addresses()), namespace, false).await?;
            Ok(Lossy::on(client, way, loss).await)
        }))
    }
}

//! A Cluster: which node has which shard, and following it when that changes.
//!
//! A redirection says that the request had no effect, so it is sent again where it belongs. A node that cannot be reached
//! makes us ask the others who has its slots now; a request that was sent and not answered stays unknown, as everywhere.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::Kind;
use redis::{Cmd, Value};
use tokio::{runtime::Handle, sync::watch};

use super::{
    dial::{CONNECT_LIMIT, Login},
    failure::{Failure, Turn},
    link::Replicas,
    node::Node,
    op::Op,
    space::{Layout, Space, slot_of},
    target::{Known, Target},
};
use crate::{address::Host, sync::lock};

/// So often a request is sent on (ours: a slot moves once; more is a Cluster that does not agree with itself).
const MAX_HOPS: u32 = 6;
/// Before a request is sent again to a slot that is on its way.
const HOP_PAUSE: Duration = Duration::from_millis(30);

/// A Cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    login: Login,
    replicas: Option<Replicas>,
    /// Connections are made and kept here, whoever calls.
    runtime: Handle,
    known: Arc<Known>,
    map: Mutex<Map>,
    /// Never says anything: subscriptions of a Cluster may go to any node.
    anywhere: watch::Sender<Option<Host>>,
}

#[derive(Debug, Default)]
struct Map {
    nodes: HashMap<Host, Node>,
    /// The master of each shard.
    masters: Vec<Option<Host>>,
}

impl Cluster {
    /// Finds the nodes. To be polled on a runtime.
    pub(super) async fn open(
        seeds: &[Host],
        login: Login,
        replicas: Option<Replicas>,
        layout: &Layout,
    ) -> Result<Arc<Self>, Failure> {
        let cluster = Arc::new(Self {
            login,
            replicas,
            runtime: Handle::current(),
            known: Arc::default(),
            map: Mutex::default(),
            anywhere: watch::channel(None).0,
        });
        cluster.known.replace(seeds.to_vec());
        cluster.look_again(layout).await?;
        Ok(cluster)
    }

    /// Where to listen for wakes: published messages reach every node.
    pub(super) fn listening(&self) -> (Target, watch::Receiver<Option<Host>>) {
        (Target::Any(Arc::clone(&self.known), self.login.clone()), self.anywhere.subscribe())
    }

    /// The masters that have shards of the namespace.
    pub(super) async fn masters(&self) -> Result<Vec<Node>, Failure> {
        let mut hosts: Vec<Host> = lock(&self.map).masters.iter().flatten().cloned().collect();
        hosts.sort_by_key(ToString::to_string);
        hosts.dedup();
        let mut nodes = Vec::new();
        for host in hosts {
            nodes.push(self.node(&host).await?);
        }
        Ok(nodes)
    }

    /// Runs operations on a shard, wherever it is.
    pub(super) async fn step(
        &self,
        layout: &Layout,
        shard: usize,
        ops: Vec<Op>,
    ) -> Result<Vec<Value>, Failure> {
        let space = &layout.shards()[shard];
        let mut asked = None;
        for _ in 0..MAX_HOPS {
            let outcome = match asked.take() {
                Some(host) => self.node(&host).await?.step_asking(space, ops.clone()).await,
                None => self.step_at_master(layout, shard, space, &ops).await,
            };
            let failure = match outcome {
                Ok(answers) => return Ok(answers),
                Err(failure) => failure,
            };
            match &failure.turn {
                Turn::Moved(host) => self.moved(shard, host),
                Turn::Ask(host) => asked = Some(Host::clone(host)),
                Turn::Again => self.pause().await,
                Turn::Redial if failure.error.kind() == Kind::Unavailable => {
                    let before = self.master(shard);
                    self.look_again(layout).await?;
                    if self.master(shard) == before {
                        return Err(failure);
                    }
                }
                Turn::Redial | Turn::Stay | Turn::Teach => return Err(failure),
            }
        }
        Err(Failure::unsent("the Cluster sends the request from node to node"))
    }

    async fn step_at_master(
        &self,
        layout: &Layout,
        shard: usize,
        space: &Arc<Space>,
        ops: &[Op],
    ) -> Result<Vec<Value>, Failure> {
        if self.master(shard).is_none() {
            self.look_again(layout).await?;
        }
        let host = self.master(shard).ok_or_else(|| super::failure::of_code("CLUSTERDOWN", ""))?;
        self.node(&host).await?.step(space, ops.to_vec()).await
    }

    /// The master that has this slot, by the word of the first node that answers.
    pub(super) async fn keeper(&self, slot: u16) -> Result<Node, Failure> {
        let host = self.host_of(slot).await?;
        self.node(&host).await
    }

    async fn host_of(&self, slot: u16) -> Result<Host, Failure> {
        let mut last = Failure::unsent("no node of the Cluster is known");
        for host in self.known.all() {
            match self.slots(&host).await {
                Ok(slots) => match slots.into_iter().find(|range| (range.from..=range.to).contains(&slot)) {
                    Some(range) => return Ok(range.master),
                    None => last = super::failure::of_code("CLUSTERDOWN", ""),
                },
                Err(failure) if failure.error.is_transient() => last = failure,
                Err(failure) => return Err(failure),
            }
        }
        Err(last)
    }

    /// Runs a plain command on keys of this slot, wherever it is.
    pub(super) async fn plain(&self, slot: u16, command: &Cmd) -> Result<Value, Failure> {
        let mut host = self.host_of(slot).await?;
        for _ in 0..MAX_HOPS {
            let failure = match self.node(&host).await?.plain(command.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match failure.turn {
                Turn::Moved(to) if to.name.is_empty() => host.port = to.port,
                Turn::Moved(to) => host = *to,
                // A slot that is on its way: its keys are here or there, and soon all there.
                Turn::Again | Turn::Ask(_) => self.pause().await,
                Turn::Redial if failure.error.kind() == Kind::Unavailable => {
                    let before = std::mem::replace(&mut host, self.host_of(slot).await?);
                    if before == host {
                        return Err(failure);
                    }
                }
                Turn::Redial | Turn::Stay | Turn::Teach => return Err(failure),
            }
        }
        Err(Failure::unsent("the Cluster sends the request from node to node"))
    }

    fn master(&self, shard: usize) -> Option<Host> {
        lock(&self.map).masters.get(shard).cloned().flatten()
    }

    fn moved(&self, shard: usize, to: &Host) {
        let mut map = lock(&self.map);
        // A node that does not know its own name says only the port: it is the node that was asked.
        let name = match (to.name.as_str(), map.masters.get(shard).cloned().flatten()) {
            ("", Some(asked)) => asked.name,
            (name, _) => name.to_owned(),
        };
        if let Some(master) = map.masters.get_mut(shard) {
            *master = Some(Host { name, port: to.port });
        }
    }

    /// A connection to this node, made on our own runtime where there is none.
    async fn node(&self, host: &Host) -> Result<Node, Failure> {
        if let Some(node) = lock(&self.map).nodes.get(host) {
            return Ok(node.clone());
        }
        let opening = open(Target::Fixed(host.clone(), self.login.clone()), self.replicas);
        let node = self.runtime.spawn(opening).await.map_err(|_| gone())??;
        Ok(lock(&self.map).nodes.entry(host.clone()).or_insert(node).clone())
    }

    async fn pause(&self) {
        // A runtime that has ended needs no pause.
        let _ = self.runtime.spawn(tokio::time::sleep(HOP_PAUSE)).await;
    }

    /// Asks one node after the other who has which slots.
    async fn look_again(&self, layout: &Layout) -> Result<(), Failure> {
        let mut last = Failure::unsent("no node of the Cluster is known");
        for host in self.known.all() {
            match self.slots(&host).await {
                Ok(slots) if slots.is_empty() => last = super::failure::of_code("CLUSTERDOWN", ""),
                Ok(slots) => {
                    self.take_over(layout, &slots);
                    return Ok(());
                }
                Err(failure) if failure.error.is_transient() => last = failure,
                Err(failure) => return Err(failure),
            }
        }
        Err(last)
    }

    async fn slots(&self, host: &Host) -> Result<Vec<Range>, Failure> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let node = self.node(host).await?;
        let answer = node.plain(command).await.map_err(|failure| {
            let error = failure.error.without_effect();
            Failure { error, ..failure }
        })?;
        let Value::Array(ranges) = answer else { return Ok(Vec::new()) };
        Ok(ranges.into_iter().filter_map(|range| Range::read(range, host)).collect())
    }

    fn take_over(&self, layout: &Layout, slots: &[Range]) {
        let master = |space: &Arc<Space>| {
            let slot = slot_of(&space.meta());
            slots
                .iter()
                .find(|range| (range.from..=range.to).contains(&slot))
                .map(|range| range.master.clone())
        };
        let mut hosts: Vec<Host> = slots.iter().map(|range| range.master.clone()).collect();
        hosts.extend(self.known.all());
        let mut known: Vec<Host> = Vec::new();
        for host in hosts {
            if !known.contains(&host) {
                known.push(host);
            }
        }
        self.known.replace(known);
        lock(&self.map).masters = layout.shards().iter().map(master).collect();
    }
}

async fn open(target: Target, replicas: Option<Replicas>) -> Result<Node, Failure> {
    let opening = Node::open(target, replicas);
    tokio::time::timeout(CONNECT_LIMIT, opening).await.unwrap_or_else(|_| {
        Err(Failure::unsent(format!("a node of the Cluster did not answer within {CONNECT_LIMIT:?}")))
    })
}

fn gone() -> Failure {
    Failure::unsent("the connections' runtime has ended")
}

/// Slots that one master has.
#[derive(Debug)]
struct Range {
    from: u16,
    to: u16,
    master: Host,
}

impl Range {
    /// Reads one row of `CLUSTER SLOTS`. A master without a name is the node that was asked.
    fn read(value: Value, asked: &Host) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let mut parts = parts.into_iter();
        let from = redis::from_redis_value(parts.next()?).ok()?;
        let to = redis::from_redis_value(parts.next()?).ok()?;
        let Value::Array(master) = parts.next()? else { return None };
        let mut master = master.into_iter();
        let name: Option<String> = redis::from_redis_value(master.next()?).ok();
        let name = name.filter(|name| !name.is_empty() && name != "?").unwrap_or_else(|| asked.name.clone());
        let port = redis::from_redis_value(master.next()?).ok()?;
        Some(Self { from, to, master: Host { name, port: Some(port) } })
    }
}

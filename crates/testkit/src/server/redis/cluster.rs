//! Three masters that share the slots of a Cluster, each with a replica where asked.

use std::io;

use super::{Redis, RedisSetup, on_free_port};
use crate::{process::wait_until, server::PATIENCE};

/// How far the port on which nodes talk lies above the one for clients.
const BUS: u16 = 1;
/// Slots of a Cluster.
const SLOTS: u16 = 16_384;
const MASTERS: u16 = 3;

/// A Cluster.
#[derive(Debug)]
pub struct RedisCluster {
    /// The masters first, in the order of their slots; then their replicas.
    pub nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts three masters, and a replica for each when `replicas` is set, and waits until they serve.
    ///
    /// # Errors
    /// When the program is missing or the Cluster does not come about.
    pub fn start(replicas: bool) -> io::Result<Self> {
        Self::with(&RedisSetup::new(), replicas)
    }

    /// As [`RedisCluster::start`], of nodes with these settings.
    ///
    /// # Errors
    /// As [`RedisCluster::start`].
    pub fn with(setup: &RedisSetup, replicas: bool) -> io::Result<Self> {
        let count = if replicas { 2 * MASTERS } else { MASTERS };
        // Nobody is there to fail over to: a node that is merely slow is not to stop the whole Cluster.
        let timeout_ms = if replicas { "2000" } else { "30000" };
        let setup = setup.clone().with("cluster-node-timeout", timeout_ms);
        let nodes: Vec<Redis> = (0..count).map(|_| node(&setup)).collect::<io::Result<_>>()?;
        let cluster = Self { nodes };
        cluster.join()?;
        cluster.until_it_serves()?;
        Ok(cluster)
    }

    fn until_it_serves(&self) -> io::Result<()> {
        self.until("the Cluster to serve", |node| {
            node.ask(&["CLUSTER", "INFO"]).is_ok_and(|info| info.text().contains("cluster_state:ok"))
        })
    }

    /// `kill -9` of all nodes at once, and a start of all again on the files they left.
    ///
    /// # Errors
    /// When the system refuses, or the Cluster does not come back.
    pub fn crash(&self) -> io::Result<()> {
        self.nodes.iter().try_for_each(|node| node.server().kill())?;
        self.nodes.iter().try_for_each(Redis::start)?;
        self.until_it_serves()
    }

    fn join(&self) -> io::Result<()> {
        // Each node has an epoch of its own before it meets another. Nodes with one epoch settle who raises its own while they serve,
        // and a slot that moves in that moment may be left with two nodes that each take the other for its master.
        for (epoch, node) in (1..).zip(&self.nodes) {
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &u64::to_string(&epoch)])?;
        }
        let first = self.nodes[0].address();
        for node in &self.nodes[1..] {
            let (ip, port) = (first.ip().to_string(), first.port());
            node.ask(&["CLUSTER", "MEET", &ip, &port.to_string(), &(port + BUS).to_string()])?;
        }
        for (at, node) in (0..MASTERS).zip(&self.nodes) {
            let share = |at: u16| {
                u16::try_from(u32::from(SLOTS) * u32::from(at) / u32::from(MASTERS)).unwrap_or(SLOTS)
            };
            let slots: Vec<String> = (share(at)..share(at + 1)).map(|slot| slot.to_string()).collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            node.ask(&words)?;
        }
        let known = self.nodes.len();
        self.until("the nodes to know one another", |node| {
            node.ask(&["CLUSTER", "NODES"]).is_ok_and(|nodes| {
                let nodes = nodes.text();
                nodes.lines().count() == known && !nodes.contains("handshake")
            })
        })?;
        for (master, replica) in self.nodes.iter().zip(self.nodes.iter().skip(usize::from(MASTERS))) {
            let id = master.ask(&["CLUSTER", "MYID"])?.text();
            replica.ask(&["CLUSTER", "REPLICATE", &id])?;
        }
        for replica in self.nodes.iter().skip(usize::from(MASTERS)) {
            let up = || replica.info("master_link_status").is_ok_and(|status| status == "up");
            replica.until("a replica to be in step", up)?;
        }
        Ok(())
    }

    fn until(&self, what: &str, holds: impl Fn(&Redis) -> bool) -> io::Result<()> {
        wait_until(what, PATIENCE, || self.nodes.iter().all(&holds).then_some(())).map_err(io::Error::other)
    }

    /// A URL that names the masters.
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().take(usize::from(MASTERS)).map(|node| node.address().to_string()).collect();
        format!("redis://{}?cluster=true", hosts.join(","))
    }

    /// The node that has this slot now, as the first living node sees it.
    ///
    /// # Errors
    /// When none says so.
    pub fn node_of(&self, slot: u16) -> io::Result<&Redis> {
        let found = self.nodes.iter().filter(|node| node.server().is_running()).find_map(|node| {
            let nodes = node.ask(&["CLUSTER", "NODES"]).ok()?.text();
            let line = nodes.lines().find(|line| line.contains("master") && has_slot(line, slot))?;
            let port: u16 = line.split([':', '@']).nth(1)?.parse().ok()?;
            self.nodes.iter().find(|node| node.address().port() == port)
        });
        found.ok_or_else(|| io::Error::other(format!("nobody has the slot {slot}")))
    }
}

fn node(setup: &RedisSetup) -> io::Result<Redis> {
    let setup = setup
        .clone()
        .with("cluster-enabled", "yes")
        .with("cluster-config-file", "nodes.conf")
        .with("repl-diskless-sync-delay", "0");
    on_free_port(BUS, |port| setup.clone().with("cluster-port", &(port + BUS).to_string()).start_at(port))
}

fn has_slot(line: &str, slot: u16) -> bool {
    line.split(' ').skip(8).any(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        matches!((from.parse::<u16>(), to.parse::<u16>()), (Ok(from), Ok(to)) if (from..=to).contains(&slot))
    })
}

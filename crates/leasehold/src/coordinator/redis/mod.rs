//! Redis: one server, with or without replicas, watched by Sentinel, or a Cluster.
//!
//! ```text
//!   callers ──▶ coordinator ──▶ queue, link: gather ──▶ a script: time, incarnation, operations ──▶ answers
//!   (futures)   (operations)    (one task)              │
//!                                                       └─ PUBLISH to the first in line, or to a revoked holder ──▶ bell
//! ```
//!
//! Redis runs Lua inside its atomic step and no Rust, so the rules of [`leasehold_core::slot`] are mirrored in `lua/`; a test
//! gives both the same requests and compares. There is a script for each kind of operation, for as many of that kind as are
//! at hand: what a call costs besides (the call itself, the time, the incarnation) is shared, and a lone request waits for
//! nobody.
//!
//! * **What is kept.** Per resource one string, whole and packed: the grant, the highest token, how the last grant ended. It
//!   carries its own expiry and outlives it by a week (the key's TTL is only housekeeping), so "expired" can still be told
//!   from "never was". Waiters are a sorted set and a hash that exist only while somebody waits.
//! * **Time** is the server's wall clock (assumption A2: it does not step). A clock that is set back locks nothing for ever:
//!   a grant that seems to have more left than it was ever given is cut to that at the first look.
//! * **Memory that may be lost.** Each shard of a namespace records the incarnation of the server, one reign of one master;
//!   every script compares and stores it, renewals and releases included. A new one, or no record, starts a quarantine
//!   of the longest TTL: then every forgotten grant has ended. Grants that survived are renewed all the same.
//! * **Unknown stays unknown.** The link knows what it has not sent, and sends nothing twice that may have been applied. Only
//!   answers that say "nothing was done" (`NOSCRIPT`, redirections) lead to sending again.
//!
//! | question | file |
//! | --- | --- |
//! | what does a URL say, and how is the server found? | `options`, `target`, `dial`, `cluster` |
//! | how do requests share a connection? | `queue`, `flight`, `link`, `node` |
//! | what do the scripts do, how are they put together? | `lua/`, `script`, `space`, `op`, `pack`, `answer` |
//! | how do waiters hear? | `wake` |
//! | what may go wrong, and what is said then? | `failure` |
//! | what is promised here? | `facts`, `label`, `examine` |
//! | how does a namespace for one run end? | `discard` |
//!
//! # Limits
//!
//! Two masters that both serve (a partition before the old one notices) can both grant. Leases are in memory: a server that
//! evicts keys is refused. A forward step of the server's clock ends leases early, as it ends every key.

pub(crate) mod answer;
mod cluster;
mod coordinator;
pub(crate) mod dial;
mod discard;
pub(crate) mod examine;
pub(crate) mod facts;
pub(crate) mod failure;
mod flight;
#[cfg(test)]
mod hostile;
mod keeper;
mod label;
pub(crate) mod link;
pub(crate) mod node;
pub(crate) mod op;
mod options;
mod pack;
mod queue;
mod script;
pub(crate) mod space;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod wake;

pub(crate) use self::label::deployments;
use std::sync::Arc;

use leasehold_core::{Coordinator, Error, Kind, Namespace};
use tokio::{runtime::Handle, time::timeout};

pub(crate) use self::discard::discard;
#[cfg(feature = "effects")]
pub(crate) use self::keeper::Keeper;
use self::{
    answer::Shown,
    cluster::Cluster,
    coordinator::{Desk, RedisCoordinator, Servers},
    dial::CONNECT_LIMIT,
    facts::Facts,
    failure::Failure,
    op::Op,
    options::Shape,
    space::{DEFAULT_MAX_TTL, Layout},
    target::Target,
    wake::Bell,
};
pub use self::{examine::examine, options::Options};
pub(crate) use self::{failure::of_request, keeper::server, node::Node};
use crate::fork;

/// The first version that has all that the script uses (`ZRANDMEMBER`).
const OLDEST: (u32, u32) = (6, 2);

/// Connects. To be called on a runtime that outlives the coordinator: its connections live there.
///
/// # Errors
/// [`Kind::Unavailable`] when the server cannot be reached within 5 s, [`Kind::Denied`] for a login or a certificate that is not
/// accepted, [`Kind::Unsupported`] for a server that is too old or evicts keys, [`Kind::Invalid`] for files that cannot be read.
pub async fn connect(options: Options, namespace: Namespace) -> Result<Arc<dyn Coordinator>, Error> {
    let place = options.place.clone();
    let limited = timeout(CONNECT_LIMIT, begin(options, namespace)).await;
    let late = || Err(Failure::unsent(format!("the server did not answer within {CONNECT_LIMIT:?}")));
    let coordinator =
        limited.unwrap_or_else(|_| late()).map_err(|failure| failure.error.without_effect().at(&place))?;
    Ok(Arc::new(coordinator))
}

async fn begin(options: Options, namespace: Namespace) -> Result<RedisCoordinator, Failure> {
    let (desk, listening) = reach(&options, &namespace).await?;
    let node = match &desk.servers {
        Servers::One(node) => node.clone(),
        Servers::Cluster(cluster) => {
            cluster.masters().await?.into_iter().next().ok_or_else(|| failure::of_code("CLUSTERDOWN", ""))?
        }
    };
    let facts = Facts::of(&node).await?;
    accept(&facts, matches!(options.shape, Shape::Cluster), options.allow_eviction)?;
    let Shown { max_ttl: stored, .. } = answer::shown(desk.one(0, Op::look()).await?)?;
    let max_ttl = options.max_ttl.or(stored).unwrap_or(DEFAULT_MAX_TTL);
    let bell = Bell::hang(listening.0, listening.1)?;
    Ok(RedisCoordinator {
        profile: label::profile(&options, &facts, max_ttl),
        namespace,
        told: options.max_ttl,
        desk,
        bell,
        runtime: Handle::current(),
        generation: fork::generation(),
    })
}

type Listening = (Target, tokio::sync::watch::Receiver<Option<crate::address::Host>>);

async fn reach(options: &Options, namespace: &Namespace) -> Result<(Desk, Listening), Failure> {
    if matches!(options.shape, Shape::Cluster) {
        let layout = Layout::spread(namespace, options.max_ttl);
        let cluster = Cluster::open(&options.hosts, options.login()?, options.replicas, &layout).await?;
        let listening = cluster.listening();
        return Ok((Desk { servers: Servers::Cluster(cluster), layout: Arc::new(layout) }, listening));
    }
    let mut last = Failure::unsent("the URL names no server");
    for target in options.targets()? {
        match Node::open(target.clone(), options.replicas).await {
            Ok(node) => {
                let listening = (target, node.leads_to());
                let layout = Arc::new(Layout::whole(namespace, options.max_ttl));
                return Ok((Desk { servers: Servers::One(node), layout }, listening));
            }
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// Refuses a server on which leases would not be what they are said to be.
pub(super) fn accept(facts: &Facts, cluster: bool, allow_eviction: bool) -> Result<(), Failure> {
    accept_version(facts)?;
    if facts.info("cluster_enabled") == Some("1") && !cluster {
        return Err(Error::new(Kind::Invalid, "the server is a node of a Cluster")
            .advise("add ?cluster=true to the URL")
            .into());
    }
    if facts.is_replica() {
        return Err(failure::of_code("READONLY", ""));
    }
    if facts.may_evict() && !allow_eviction {
        let policy = facts.policy().unwrap_or_default();
        return Err(Error::new(
            Kind::Unsupported,
            format!("the server may evict leases when its memory is full (maxmemory-policy {policy})"),
        )
        .advise("set maxmemory-policy to noeviction, or accept leases that can vanish with allow_eviction=true in the URL")
        .into());
    }
    Ok(())
}

fn accept_version(facts: &Facts) -> Result<(), Failure> {
    let Some(version) = facts.version().filter(|version| *version < OLDEST) else { return Ok(()) };
    let what = format!("the server is Redis {}.{}", version.0, version.1);
    Err(Error::new(Kind::Unsupported, what).advise("use Redis or Valkey from version 6.2").into())
}

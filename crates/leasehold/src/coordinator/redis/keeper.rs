//! A server for whoever keeps something else than leases on it: the one of the URL, the one that Sentinels name, or that node of a
//! Cluster which has the slot.

use std::sync::Arc;

use leasehold_core::{Error, Kind, Namespace};
#[cfg(feature = "effects")]
use redis::{Cmd, Value};
use tokio::time::timeout;

use super::{
    accept, cluster::Cluster, coordinator::Servers, dial::CONNECT_LIMIT, facts::Facts, failure::Failure,
    node::Node, options::Options, reach, space::slot_of,
};

/// Where keys of one slot are.
#[derive(Debug)]
pub(crate) struct Keeper(Place);

#[derive(Debug)]
#[cfg_attr(not(feature = "effects"), allow(dead_code, reason = "only effects are kept on a Cluster"))]
enum Place {
    One(Node),
    Cluster(Arc<Cluster>, u16),
}

impl Keeper {
    /// Connects, on a runtime that outlives it. The server is judged as one for leases is.
    ///
    /// # Errors
    /// As [`connect`](super::connect).
    pub(crate) async fn open(options: &Options, key: &str) -> Result<Self, Error> {
        let open = async {
            let (desk, _) = reach(options, &Namespace::default()).await?;
            match desk.servers {
                Servers::One(node) => {
                    accept(&Facts::of(&node).await?, false, options.allow_eviction)?;
                    Ok(Self(Place::One(node)))
                }
                Servers::Cluster(cluster) => {
                    let slot = slot_of(key);
                    accept(&Facts::of(&cluster.keeper(slot).await?).await?, true, options.allow_eviction)?;
                    Ok(Self(Place::Cluster(cluster, slot)))
                }
            }
        };
        let late = || Err(Failure::unsent(format!("the server did not answer within {CONNECT_LIMIT:?}")));
        let opened: Result<Self, Failure> = timeout(CONNECT_LIMIT, open).await.unwrap_or_else(|_| late());
        opened.map_err(|failure| failure.error.without_effect().at(&options.place))
    }

    /// Runs a plain command there.
    #[cfg(feature = "effects")]
    pub(crate) async fn plain(&self, command: Cmd) -> Result<Value, Failure> {
        match &self.0 {
            Place::One(node) => node.plain(command).await,
            Place::Cluster(cluster, slot) => cluster.plain(*slot, &command).await,
        }
    }

    /// The one server; `None` on a Cluster.
    pub(super) fn only(self) -> Option<Node> {
        match self.0 {
            Place::One(node) => Some(node),
            Place::Cluster(..) => None,
        }
    }
}

/// A server by itself.
///
/// # Errors
/// As [`connect`](super::connect); [`Kind::Unsupported`] for a Cluster.
pub(crate) async fn server(options: &Options) -> Result<Node, Error> {
    let on_cluster = || {
        Error::new(Kind::Unsupported, "a Cluster keeps no highest tokens by itself")
            .advise("give each write to leasehold::fence::redis::RedisFence on a connection of your own")
            .at(&options.place)
    };
    if options.is_cluster() {
        return Err(on_cluster());
    }
    Keeper::open(options, "").await?.only().ok_or_else(on_cluster)
}

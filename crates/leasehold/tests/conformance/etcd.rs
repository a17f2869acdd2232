//! etcd: one member, three members, and all leases of a client in one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use leasehold::{
    address::Address,
    coordinator::etcd::{Options, connect},
};
use leasehold_core::{Coordinator, Namespace, Ttl, profile::Capabilities, request::Preparation};
use leasehold_testkit::{
    server::{Cut, Etcd, Proxy},
    suite::{Connecting, Engine, Failure, Hook, Loss},
};

use crate::CAN;

/// A cluster, started by the first case that needs it.
type Cluster = OnceLock<Arc<Etcd>>;

pub(crate) struct EtcdEngine {
    name: &'static str,
    settings: &'static str,
    members: usize,
    cluster: Cluster,
    /// Clusters that one case has for itself.
    alone: Mutex<HashMap<Namespace, Arc<Etcd>>>,
    /// What lossy clients, and those after a crash, need for as long as the test runs.
    kept: Mutex<Vec<Box<dyn Send>>>,
}

impl EtcdEngine {
    fn new(name: &'static str, settings: &'static str, members: usize) -> Self {
        let (alone, kept) = (Mutex::default(), Mutex::default());
        Self { name, settings, members, cluster: OnceLock::new(), alone, kept }
    }

    fn shared(&self) -> &Arc<Etcd> {
        self.cluster.get_or_init(|| Arc::new(Etcd::start(self.members).unwrap()))
    }

    /// The cluster on which a namespace is.
    fn cluster_of(&self, namespace: &Namespace) -> Arc<Etcd> {
        let alone = self.alone.lock().unwrap().get(namespace).cloned();
        alone.unwrap_or_else(|| Arc::clone(self.shared()))
    }

    pub(crate) fn all() -> [Self; 3] {
        [
            Self::new("etcd", "", 1),
            Self::new("etcd-three", "", 3),
            Self::new("etcd-shared", "?shared_lease=true", 1),
        ]
    }

    async fn open(&self, hosts: &str, namespace: &Namespace) -> Result<Arc<dyn Coordinator>, Failure> {
        let address = Address::parse("etcd", &format!("//{hosts}{}", self.settings))?;
        Ok(connect(Options::read(&address)?, namespace.clone()).await?)
    }

    /// Connects, and makes the namespace if it is not there.
    async fn ready(&self, etcd: &Etcd, namespace: &Namespace) -> Result<Arc<dyn Coordinator>, Failure> {
        let client = self.open(&etcd.hosts(), namespace).await?;
        match client.prepare(Preparation { fresh: true, max_ttl: None }).await {
            Ok(_) => {}
            // Somebody else was first.
            Err(error) if error.kind() == leasehold_core::Kind::Invalid => {}
            Err(error) => return Err(error.into()),
        }
        Ok(client)
    }
}

impl Engine for EtcdEngine {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { ttl_step_ms: std::num::NonZeroU32::new(1_000).unwrap(), ..CAN }
    }

    fn short_ttl(&self) -> Duration {
        // The least that etcd grants with its usual election timeout.
        Duration::from_secs(2)
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move { self.ready(&self.cluster_of(namespace), namespace).await })
    }

    /// One member's files can be copied as they are; those of three are a cluster only where they lie.
    fn connect_alone<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move {
            if self.members > 1 {
                let members = self.members;
                let start = move || Etcd::start(members).map(Arc::new).map_err(failed);
                let cluster = tokio::task::spawn_blocking(start).await.unwrap()?;
                self.alone.lock().unwrap().insert(namespace.clone(), cluster);
            }
            self.connect(namespace).await
        })
    }

    /// The namespace's settings are removed.
    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            self.shared().ctl(&["del", &format!("leasehold/{namespace}/meta")]).map_err(failed)?;
            let settings = if self.settings.is_empty() { "?" } else { "&" };
            let url = format!(
                "//{}{}{settings}max_ttl={}ms",
                self.shared().hosts(),
                self.settings,
                max_ttl.as_millis()
            );
            let options = Options::read(&Address::parse("etcd", &url)?)?;
            let client = connect(options, namespace.clone()).await?;
            client.prepare(Preparation { fresh: false, max_ttl: Some(max_ttl) }).await?;
            Ok(client)
        }))
    }

    /// The server's files, as `kill -9` at this moment would leave them, are given to another server; a cluster of its own is
    /// killed as a whole and started again on its files.
    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let cluster = self.cluster_of(namespace);
            if cluster.size() > 1 {
                let crashed = Arc::clone(&cluster);
                tokio::task::spawn_blocking(move || crashed.crash()).await.unwrap().map_err(failed)?;
                return self.open(&cluster.hosts(), namespace).await;
            }
            let crashed = cluster.crashed_copy().map_err(failed)?;
            let client = self.open(&crashed.hosts(), namespace).await?;
            self.kept.lock().unwrap().push(Box::new(crashed));
            Ok(client)
        }))
    }

    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            self.ready(self.shared(), namespace).await?;
            let server = self.shared().address(0);
            match loss {
                Loss::Request => {
                    let proxy = Proxy::start(server).map_err(failed)?;
                    let client = self.open(&proxy.address().to_string(), namespace).await?;
                    proxy.refuse(true);
                    proxy.cut();
                    self.kept.lock().unwrap().push(Box::new(proxy));
                    Ok(client)
                }
                Loss::Answer => {
                    let cut = Cut::start(server).map_err(failed)?;
                    let client = self.open(&cut.address().to_string(), namespace).await?;
                    self.kept.lock().unwrap().push(Box::new(cut));
                    Ok(client)
                }
            }
        }))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "an adapter for map_err")]
fn failed(error: std::io::Error) -> Failure {
    Failure::new(error.to_string())
}

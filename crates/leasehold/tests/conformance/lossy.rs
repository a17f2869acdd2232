//! A client that loses all its requests, or all its answers, on the way to a real server.

use std::{net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use leasehold_core::{
    Call, Coordinator, Kind, Label, Resource, Token, Ttl,
    profile::Profile,
    record::{Acquired, Inspection, Page, Prepared, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Release, Renewal, Revocation},
};
use leasehold_testkit::{
    random,
    reference::Loss,
    server::{Direction, Passage, Proxy},
};

/// Between two looks.
const GLANCE: Duration = Duration::from_millis(5);

/// The ways to the servers of an engine.
pub(crate) struct Way {
    proxies: Vec<Proxy>,
    /// True when a request goes to one of them alone.
    to_one: bool,
}

impl Way {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self::to_all([server])
    }

    pub(crate) fn to_all(servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let proxies = servers.into_iter().map(|server| Proxy::start(server).unwrap()).collect();
        Self { proxies, to_one: false }
    }

    /// To servers that share the resources, and tell of one another.
    pub(crate) fn to_shards(servers: &[SocketAddr]) -> Self {
        let way = Self { to_one: true, ..Self::to_all(servers.iter().copied()) };
        let ports = |(server, proxy): (&SocketAddr, SocketAddr)| (server.port(), proxy.port());
        let ports: Vec<(u16, u16)> = servers.iter().zip(way.addresses()).map(ports).collect();
        way.proxies.iter().for_each(|proxy| proxy.name_ports(&ports));
        way
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.proxies[0].address()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.proxies.iter().map(Proxy::address).collect()
    }
}

/// A client on a way that is broken.
pub(crate) struct Lossy {
    inner: Arc<dyn Coordinator>,
    way: Way,
    loss: Loss,
    /// At least one on every server.
    names: Vec<Resource>,
}

/// Names that lie on every server of an engine that shares resources out among them.
const NAMES: usize = 64;

impl std::fmt::Debug for Lossy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lossy").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Lossy {
    /// Breaks the way. Requests are lost by leading nowhere, once the client knows that its connection is gone.
    pub(crate) async fn on(inner: Arc<dyn Coordinator>, way: Way, loss: Loss) -> Arc<dyn Coordinator> {
        let names = if way.to_one { NAMES } else { 1 };
        let names: Vec<Resource> =
            (0..names).map(|at| Resource::new(&format!("nothing/{at}")).unwrap()).collect();
        let lossy = Self { inner, way, loss, names };
        for name in &lossy.names {
            lossy.introduce(name).await;
        }
        if loss == Loss::Request {
            for proxy in &lossy.way.proxies {
                proxy.refuse(true);
                proxy.cut();
            }
            let gone = |name: Resource| {
                let inner = Arc::clone(&lossy.inner);
                tokio::spawn(async move { while inner.inspect(name.clone()).await.is_ok() {} })
            };
            for gone in lossy.names.iter().cloned().map(gone).collect::<Vec<_>>() {
                gone.await.unwrap();
            }
        }
        Arc::new(lossy)
    }

    /// Lets the server get to know the client's scripts, by requests that it refuses: what is lost later is then the answer
    /// to a request, and not that it should be put differently.
    async fn introduce(&self, name: &Resource) {
        let claim = Claim {
            resource: name.clone(),
            lease_id: random::lease_id(),
            holder_id: random::holder_id(),
            label: Label::default(),
            ttl: Ttl::MAX,
            lock_delay: Duration::ZERO,
            floor: None,
            queue: false,
            once_per: None,
        };
        let (resource, lease_id) = (claim.resource.clone(), claim.lease_id);
        let token = Token::new(1).unwrap();
        let renewal = Renewal {
            resource: resource.clone(),
            lease_id,
            token,
            ttl: Ttl::MIN,
            lock_delay: Duration::ZERO,
        };
        let release = Release { resource, lease_id, token: Some(token), succeeded: false };
        let _refused = self.inner.acquire(claim).await;
        let _refused = self.inner.renew(vec![renewal]).await;
        let _refused = self.inner.release(release).await;
    }

    /// Makes a call whose answer is cut off when it has come as far as the proxy.
    async fn lose<T>(&self, call: Call<'_, T>) -> Result<T, leasehold_core::Error> {
        if self.loss == Loss::Request {
            return call.await;
        }
        // The connections must stand: what is lost is this call's answer, not its request.
        for name in &self.names {
            while self.inner.inspect(name.clone()).await.is_err_and(|error| error.kind() == Kind::Unavailable)
            {
                tokio::time::sleep(GLANCE).await;
            }
        }
        let proxies = &self.way.proxies;
        let set_all = |passage| proxies.iter().for_each(|proxy| proxy.set(Direction::ToClient, passage));
        set_all(Passage::Lost);
        let bytes = |proxy: &Proxy| proxy.bytes(Direction::ToClient);
        let before: Vec<u64> = proxies.iter().map(bytes).collect();
        let wanted = if self.way.to_one { 1 } else { proxies.len() };
        let mut call = call;
        let outcome = loop {
            tokio::select! {
                outcome = &mut call => break outcome,
                () = tokio::time::sleep(GLANCE) => {
                    let come = proxies.iter().zip(&before).filter(|(proxy, before)| bytes(proxy) > **before);
                    if come.count() >= wanted {
                        proxies.iter().for_each(Proxy::cut);
                        break call.await;
                    }
                }
            }
        };
        set_all(Passage::Open);
        outcome
    }
}

impl Coordinator for Lossy {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(self.lose(self.inner.acquire(claim)))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, leasehold_core::Error>>> {
        Box::pin(self.lose(self.inner.renew(renewals)))
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(self.lose(self.inner.release(release)))
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        Box::pin(self.lose(self.inner.revoke(revocation)))
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        Box::pin(self.lose(self.inner.inspect(resource)))
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(self.lose(self.inner.list(listing)))
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        Box::pin(self.lose(self.inner.prepare(preparation)))
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        self.inner.next_wake()
    }
}

//! The client: one namespace on one coordinator, and the driver that keeps its leases.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Coordinator, Error, HolderId, Label, Namespace, Resource, Token,
    profile::Profile,
    record::{Inspection, Page, Prepared, Released, Renewed, Revoked},
    request::{Listing, Preparation, Release, Renewal, Revocation},
};

use crate::{
    connect::{ConnectBuilder, Url},
    driver::{CALL_LIMIT, Driver},
    floors::Floors,
    random,
    request::LeaseRequest,
};

/// A connection to a coordinator, for one namespace. Cheap to clone; clones share everything.
///
/// One driver thread renews all leases of a client; it ends when the last clone and the last [`crate::Lease`] are gone.
#[derive(Clone, Debug)]
pub struct Leases {
    client: Arc<Client>,
}

/// What a client's handles and guards share.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) driver: Driver,
    pub(crate) label: Label,
    pub(crate) floors: Floors,
    namespace: Namespace,
}

impl Client {
    pub(crate) fn coordinator(&self) -> &dyn Coordinator {
        &*self.driver.core.coordinator
    }

    pub(crate) fn holder_id(&self) -> HolderId {
        self.driver.core.holder_id
    }

    /// A random number for jitter.
    pub(crate) fn draw(&self) -> u64 {
        self.driver.core.jitter.draw()
    }
}

impl Leases {
    /// Connects to the coordinator at `url`, in the namespace `default`.
    ///
    /// | URL | engine |
    /// | --- | --- |
    /// | `sqlite:PATH`, `sqlite:` | a file shared by the processes of one machine; without a path, in the user's state folder |
    /// | `memory:NAME` | this process alone |
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`] for a URL that is none, [`leasehold_core::Kind::Unsupported`] for an engine that
    /// this build does not have, and what the engine says when it cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Connects with settings of your own.
    pub fn builder(url: &str) -> ConnectBuilder {
        ConnectBuilder::new(url)
    }

    /// Uses a coordinator that was made elsewhere: one of your own, or a test's.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Unavailable`] when the operating system gives no thread or randomness.
    pub async fn over(
        coordinator: Arc<dyn Coordinator>,
        namespace: Namespace,
        label: Label,
    ) -> Result<Self, Error> {
        let connect =
            Box::new(move || -> crate::driver::ConnectFuture { Box::pin(async move { Ok(coordinator) }) });
        Self::start(connect, namespace, label).await
    }

    pub(crate) async fn start(
        connect: crate::driver::Connect,
        namespace: Namespace,
        label: Label,
    ) -> Result<Self, Error> {
        let driver = Driver::start(connect, random::holder_id()?).await?;
        Ok(Self { client: Arc::new(Client { driver, label, floors: Floors::default(), namespace }) })
    }

    /// A lease on `resource`, to be configured and acquired. Nothing is asked yet; a name that is no name is refused then.
    pub fn lease(&self, resource: &str) -> LeaseRequest {
        LeaseRequest::new(self.client.clone(), resource)
    }

    /// What the coordinator is, can do and guarantees.
    pub fn profile(&self) -> &Profile {
        self.client.coordinator().profile()
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.client.namespace
    }

    /// This process run, as the coordinator knows it.
    pub fn holder_id(&self) -> HolderId {
        self.client.holder_id()
    }

    /// What people call this process run.
    pub fn label(&self) -> &Label {
        &self.client.label
    }

    /// How many leases are held through this client.
    pub fn held(&self) -> usize {
        self.client.driver.core.registry.len()
    }

    /// Tells the client a token that somebody has seen for `resource` (a fence's answer, say): no grant below it is used.
    pub fn raise_floor(&self, resource: &Resource, token: Token) {
        self.client.floors.raise(resource, token);
    }

    /// Reads one resource: who holds it, since when, with which token, who waits.
    ///
    /// # Errors
    /// What the coordinator says when it cannot be asked.
    pub async fn inspect(&self, resource: &Resource) -> Result<Inspection, Error> {
        let call = self.client.coordinator().inspect(resource.clone());
        self.read("look at a resource", call).await
    }

    /// Reads a page of resources.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`] for a page out of bounds; what the coordinator says when it cannot be asked.
    pub async fn list(&self, listing: Listing) -> Result<Page, Error> {
        self.read("listing", self.client.coordinator().list(listing)).await
    }

    /// Ends another's grant.
    ///
    /// # Errors
    /// What the coordinator says when it cannot be asked; [`leasehold_core::Kind::Unknown`] when nobody knows whether it
    /// took effect.
    pub async fn revoke(&self, revocation: Revocation) -> Result<Revoked, Error> {
        let resource = revocation.resource.clone();
        let call = self.client.coordinator().revoke(revocation);
        self.client.driver.bounded(CALL_LIMIT, "revocation", call).await.map_err(|error| error.on(&resource))
    }

    /// Renews a grant that no guard of this client keeps: for scripts. Library users hold a [`crate::Lease`] instead.
    ///
    /// # Errors
    /// As [`Leases::revoke`].
    pub async fn renew_once(&self, renewal: Renewal) -> Result<Renewed, Error> {
        let resource = renewal.resource.clone();
        let call = self.client.coordinator().renew(vec![renewal]);
        let answers = self.client.driver.bounded(CALL_LIMIT, "renewal", call).await;
        let one = answers.and_then(|mut answers| {
            answers.pop().unwrap_or_else(|| {
                Err(Error::new(leasehold_core::Kind::Corrupt, "the coordinator did not answer the renewal"))
            })
        });
        one.map_err(|error| error.on(&resource))
    }

    /// Releases a grant that no guard of this client keeps: for scripts. Library users drop or release their
    /// [`crate::Lease`] instead.
    ///
    /// # Errors
    /// As [`Leases::revoke`].
    pub async fn release_once(&self, release: Release) -> Result<Released, Error> {
        let resource = release.resource.clone();
        let call = self.client.coordinator().release(release);
        self.client.driver.bounded(CALL_LIMIT, "release", call).await.map_err(|error| error.on(&resource))
    }

    /// Makes the namespace, or changes its settings.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`] for `fresh` where the namespace exists; what the coordinator says when it cannot
    /// be asked.
    pub async fn prepare(&self, preparation: Preparation) -> Result<Prepared, Error> {
        let call = self.client.coordinator().prepare(preparation);
        self.client.driver.bounded(CALL_LIMIT, "preparation", call).await
    }

    /// Gives this handle back and waits until what was dropped has been released, at most about five seconds. A program
    /// that is about to exit calls it, because its end would cut background releases short. Other clones and leases keep
    /// the client alive; then this returns when `patience` is over.
    ///
    /// **Cancel safety.** Dropping the future only stops the waiting.
    pub async fn close(self, patience: Duration) {
        let mut finished = self.client.driver.finished();
        let timeout = self.client.driver.alarm(patience);
        drop(self);
        tokio::select! {
            _ = finished.wait_for(|finished| *finished) => {}
            _ = timeout => {}
        }
    }

    /// The coordinator's URL of the default place, for programs that show it.
    pub fn default_url() -> Url {
        Url::default()
    }

    async fn read<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        // A read that was not answered had no effect, whatever became of it.
        self.client.driver.bounded(CALL_LIMIT, what, call).await.map_err(Error::without_effect)
    }
}

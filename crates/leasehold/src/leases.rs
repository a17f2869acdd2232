//! The client: one namespace on one coordinator, and the driver that keeps its leases.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use arc_swap::ArcSwap;
use leasehold_core::{
    Coordinator, Error, HolderId, Label, Namespace, Resource, Token,
    policy::Policy,
    profile::Profile,
    record::{Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked},
    request::{Listing, Preparation, Purge, Release, Renewal, Revocation},
    window::ClockRule,
};

use crate::{
    clock,
    connect::{ConnectBuilder, Url},
    driver::{CALL_LIMIT, Driver, since},
    floors::Floors,
    observe, random,
    request::LeaseRequest,
    settings::Layers,
    sync::lock,
    vitals::Vitals,
};

/// Between two reads of a measurement (ours: a hundred a second are no load for any engine).
const BETWEEN_PROBES: Duration = Duration::from_millis(10);

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
    pub(crate) namespace: Namespace,
    /// The settings in force.
    pub(crate) rules: ArcSwap<Layers>,
    /// Locked by whoever changes them, and by whoever lets a lease have them: each lease ends up with the last.
    pub(crate) retuning: Mutex<()>,
    /// The policy of the last lease: the next one nearly always has the same, and shares it.
    policy: Mutex<Option<Arc<Policy>>>,
}

impl Client {
    pub(crate) fn coordinator(&self) -> &dyn Coordinator {
        &*self.driver.core.coordinator
    }

    pub(crate) fn holder_id(&self) -> HolderId {
        self.driver.core.holder_id
    }

    /// This policy, in one piece with that of the last lease where they are the same.
    pub(crate) fn share(&self, policy: Policy) -> Arc<Policy> {
        let mut last = lock(&self.policy);
        match &*last {
            Some(last) if **last == policy => last.clone(),
            _ => last.insert(Arc::new(policy)).clone(),
        }
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
        let driver = Driver::start(connect, random::holder_id()?, namespace.clone()).await?;
        observe::connected(driver.core.holder_id, &label, &namespace, driver.core.coordinator.profile());
        let (floors, rules, retuning) = (Floors::default(), ArcSwap::default(), Mutex::default());
        Ok(Self::of(Arc::new(Client {
            driver,
            label,
            floors,
            namespace,
            rules,
            retuning,
            policy: Mutex::default(),
        })))
    }

    /// The handle of a client.
    pub(crate) fn of(client: Arc<Client>) -> Self {
        Self { client }
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

    /// What this client has measured so far, since it connected: round trips, pauses of this process, work. The TTL is derived
    /// from such figures ([`crate::core::derive_ttl`]).
    pub fn vitals(&self) -> Vitals {
        self.client.driver.core.meter.vitals()
    }

    /// Measures round trips and pauses of this process for a while: one cheap read after the other, ten milliseconds apart.
    /// What comes of it is in [`Leases::vitals`], together with what was measured before.
    ///
    /// **Cancel safety.** Dropping the future only stops the measuring.
    ///
    /// # Errors
    /// What the coordinator says when it cannot be asked.
    pub async fn measure(&self, time: Duration) -> Result<Vitals, Error> {
        let started = clock::read(ClockRule::Boot);
        let probe = Resource::new("leasehold-measures-round-trips")?;
        while since(started) < time {
            self.inspect(&probe).await?;
            let lain_down = clock::read(ClockRule::Boot);
            self.client.driver.sleep(BETWEEN_PROBES).await;
            self.client.driver.core.meter.woken(since(lain_down).saturating_sub(BETWEEN_PROBES));
        }
        Ok(self.vitals())
    }

    /// Tells the client a token that somebody has seen for `resource` (a fence's answer, say): no grant that is not above it is used.
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

    /// Reads the grants of one resource that have ended, the latest first; as many as the engine remembers, at least
    /// [`Past::KEPT`]. One that expired and was not found so yet is among them.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Unsupported`] on an engine that keeps no history; what the coordinator says when it cannot be
    /// asked.
    pub async fn history(&self, resource: &Resource) -> Result<Vec<Past>, Error> {
        self.read("look at a history", self.client.coordinator().history(resource.clone())).await
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
        let call = self.client.coordinator().release(release.clone());
        let answer = self.client.driver.bounded(CALL_LIMIT, "release", call).await;
        let answer = answer.map_err(|error| error.on(&release.resource))?;
        observe::released_by_name(&release, self.client.holder_id(), &answer);
        Ok(answer)
    }

    /// Looks at some resources, as many as the engine takes in one step, and forgets those that nobody has used for
    /// [`Purge::IDLE`], a week. Clients do so by themselves now and then; this is for who wants it done. Ask again after
    /// [`Purged::next`] until there is none.
    ///
    /// **Cancel safety.** Dropping the future leaves some resources forgotten or not, and nothing else.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Unsupported`] on an engine that has no such housekeeping; what the coordinator says when it
    /// cannot be asked.
    pub async fn purge(&self, purge: Purge) -> Result<Purged, Error> {
        let call = self.client.coordinator().purge(purge);
        self.client.driver.bounded(CALL_LIMIT, "purge", call).await
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

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The coordinator's URL of the default place, for programs that show it.
    pub fn default_url() -> Url {
        Url::default()
    }

    /// Sleeps on the client's timers, whatever executor polls this.
    #[cfg(all(feature = "effects", any(feature = "sqlite", feature = "postgres", feature = "redis")))]
    pub(crate) async fn pause(&self, duration: Duration) {
        self.client.driver.sleep(duration).await;
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

//! `PostgreSQL`: one server for all, a database for each way of using it.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use leasehold::{
    address::Address,
    coordinator::postgres::{self, Options},
};
use leasehold_core::{
    Call, Coordinator, Error, Kind, Namespace, Resource, Ttl,
    profile::{Capabilities, Profile},
    record::{Acquired, Inspection, Page, Prepared, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Release, Renewal, Revocation},
};
use leasehold_testkit::{
    server::{Direction, Passage, PgBouncer, Postgres, Proxy},
    suite::{Connecting, Engine, Failure, Hook, Loss},
};

use crate::CAN;

/// The servers of this run, started by the first case that needs them.
#[derive(Default)]
struct Place {
    has_standby: bool,
    servers: OnceLock<Servers>,
}

struct Servers {
    server: Postgres,
    bouncer: PgBouncer,
    /// Nothing is committed without it.
    _standby: Option<Postgres>,
}

/// Its name among the standbys that are waited for.
const STANDBY: &str = "standby";

impl Place {
    fn get(&self) -> &Servers {
        self.servers.get_or_init(|| {
            let names: &[(&str, &str)] =
                if self.has_standby { &[("synchronous_standby_names", STANDBY)] } else { &[] };
            let server = Postgres::start_with(names).unwrap();
            let standby = self.has_standby.then(|| server.standby(STANDBY, None).unwrap());
            if standby.is_some() {
                server.until_synchronous(STANDBY).unwrap();
            }
            let bouncer = PgBouncer::start(&server, 4).unwrap();
            Servers { server, bouncer, _standby: standby }
        })
    }
}

/// One way of using them.
struct Way {
    name: &'static str,
    capabilities: Capabilities,
    settings: &'static str,
    pooled: bool,
    place: Arc<Place>,
    database: OnceLock<String>,
    /// Servers that were crashed, kept for the clients that use them.
    crashed: Mutex<Vec<Postgres>>,
}

pub(crate) fn engines() -> Vec<Box<dyn Engine>> {
    let alone = Arc::new(Place::default());
    let pair = Arc::new(Place { has_standby: true, ..Place::default() });
    let way = |name, capabilities, settings, pooled, place: &Arc<Place>| -> Box<dyn Engine> {
        let (place, database, crashed) = (Arc::clone(place), OnceLock::new(), Mutex::default());
        Box::new(Way { name, capabilities, settings, pooled, place, database, crashed })
    };
    vec![
        way("postgres", CAN, "", false, &alone),
        way("postgres-standby", CAN, "", false, &pair),
        way("postgres-observed", CAN, "&expiry=observed", false, &alone),
        way("postgres-advisory", CAN, "&mode=advisory", false, &alone),
        way("postgres-bouncer", Capabilities { wakes: false, ..CAN }, "", true, &alone),
    ]
}

async fn open(url: &str, namespace: &Namespace) -> Result<Arc<dyn Coordinator>, Error> {
    let (scheme, rest) = url.split_once(':').unwrap();
    postgres::connect(Options::read(&Address::parse(scheme, rest)?)?, namespace.clone()).await
}

fn warm_up(release: &Release) -> Claim {
    Claim {
        resource: release.resource.clone(),
        lease_id: release.lease_id,
        holder_id: leasehold_testkit::random::holder_id(),
        label: leasehold_core::Label::from_lossy("warm-up"),
        ttl: Ttl::MIN,
        lock_delay: Duration::ZERO,
        floor: None,
        queue: false,
        once_per: None,
    }
}

impl Way {
    fn by_sessions(&self) -> bool {
        self.settings.contains("advisory")
    }

    fn server(&self) -> &Postgres {
        &self.place.get().server
    }

    fn database(&self) -> &str {
        self.database.get_or_init(|| {
            let database = self.server().database().unwrap();
            if self.pooled {
                // The pool's first session is made before the pooler answers a login at all.
                self.place.get().bouncer.warm(&database).unwrap();
            }
            database
        })
    }

    fn address(&self) -> std::net::SocketAddr {
        if self.pooled { self.place.get().bouncer.address() } else { self.server().address() }
    }

    fn url(&self, address: std::net::SocketAddr, more: &str) -> String {
        format!(
            "{}?{}{}{more}",
            Postgres::url_at(address, self.database()),
            "schema=leasehold",
            self.settings
        )
    }

    fn psql(&self, sql: &str) {
        self.server().psql(self.database(), sql).unwrap();
    }

    /// A client whose way to the server is broken for every call.
    async fn broken(&self, namespace: &Namespace, loss: Loss) -> Result<Arc<dyn Coordinator>, Failure> {
        let proxy = Proxy::start(self.address()).unwrap();
        let inner = open(&self.url(proxy.address(), ""), namespace).await?;
        // From its first claim on it listens, on this connection and on every later one.
        let first = leasehold_core::request::Release {
            resource: Resource::new("warm-up")?,
            lease_id: leasehold_testkit::random::lease_id(),
            token: None,
            succeeded: false,
        };
        let _ = inner.acquire(warm_up(&first)).await?;
        let _ = inner.release(first).await?;
        let lossy = Lossy { inner, proxy, loss, by_sessions: self.by_sessions() };
        if loss == Loss::Request {
            lossy.proxy.refuse(true);
            lossy.proxy.cut();
            // Until it has noticed, a request would be written into a connection that is gone.
            let look = Resource::new("anything")?;
            while lossy.inner.inspect(look.clone()).await.is_ok() {}
        }
        Ok(Arc::new(lossy))
    }
}

impl Engine for Way {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn short_ttl(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        Box::pin(async move {
            let client = open(&self.url(self.address(), ""), namespace).await?;
            if self.place.has_standby {
                // A standby that has gone missing would make this the column of a server alone.
                let told = client.profile().guarantee.after_failover;
                assert!(told.starts_with("nothing that was answered is lost"), "not synchronous: {told}");
            }
            // The first one makes the namespace; the others find it, and are refused.
            let fresh = Preparation { fresh: true, max_ttl: None };
            if self.by_sessions() {
                // A client that goes away frees its leases. The suite's histories go on believing in them until their windows
                // have closed, so it stays for as long.
                let stays = Arc::clone(&client);
                tokio::spawn(async move {
                    while Arc::strong_count(&stays) > 1 {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    tokio::time::sleep(Duration::from_secs(4)).await;
                });
            }
            match client.prepare(fresh).await {
                Err(error) if error.kind() != Kind::Invalid => Err(error.into()),
                _ => Ok(client),
            }
        })
    }

    /// Another server, as far as the namespace can tell; or its own row is gone.
    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(async move {
            let url = self.url(self.address(), &format!("&max_ttl={}ms", max_ttl.as_millis()));
            let client = open(&url, namespace).await?;
            client.prepare(Preparation { fresh: false, max_ttl: Some(max_ttl) }).await?;
            self.psql(&if self.settings.is_empty() {
                format!("UPDATE leasehold.space SET incarnation = 'another', longest_until_us = 0 WHERE namespace = '{namespace}'")
            } else {
                format!("DELETE FROM leasehold.space WHERE namespace = '{namespace}'")
            });
            Ok(client)
        }))
    }

    /// Every session ends with the server, and every lease of a session with it.
    fn leases_survive(&self) -> bool {
        !self.by_sessions()
    }

    /// A copy of what the server has on disk, killed and started again: the others go on with theirs.
    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        let copy = self.server().copy().unwrap();
        copy.crash().unwrap();
        let url = self.url(copy.address(), "");
        self.crashed.lock().unwrap().push(copy);
        Hook::Here(Box::pin(async move { Ok(open(&url, namespace).await?) }))
    }

    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        Hook::Here(Box::pin(self.broken(namespace, loss)))
    }

    fn pass_time<'a>(&'a self, namespace: &'a Namespace, by: Duration) -> Hook<()> {
        let by = by.as_micros();
        self.psql(&format!(
            "UPDATE leasehold.slot SET at_us = at_us - {by} WHERE namespace = '{namespace}'; \
             UPDATE leasehold.queue SET joined_us = joined_us - {by}, refreshed_us = refreshed_us - {by} \
             WHERE namespace = '{namespace}'"
        ));
        Hook::Here(())
    }
}

/// Loses the answers, or all.
#[derive(Debug)]
struct Lossy {
    inner: Arc<dyn Coordinator>,
    proxy: Proxy,
    loss: Loss,
    /// Whether a session asks for a lock first, on a connection of its own: were its answer lost, the claim would not be sent.
    by_sessions: bool,
}

/// What changes a lease.
const CHANGES: [&str; 3] = [".acquire_1(", ".renew_1(", ".release_1("];

impl Lossy {
    /// How much of the answer that is to be lost has come.
    fn come(&self) -> u64 {
        if self.by_sessions { self.proxy.lost() } else { self.proxy.bytes(Direction::ToClient) }
    }

    fn break_off(&self, broken: bool) {
        if self.by_sessions {
            self.proxy.lose_answers_to(if broken { &CHANGES } else { &[] });
        } else {
            self.proxy.set(Direction::ToClient, if broken { Passage::Lost } else { Passage::Open });
        }
    }

    async fn call<T>(&self, call: Call<'_, T>) -> Result<T, Error> {
        if self.loss == Loss::Request {
            return call.await;
        }
        // Connected, and then deaf: what is asked arrives, and its answer does not.
        let look = Resource::new("anything").map_err(Error::from)?;
        while self.inner.inspect(look.clone()).await.is_err() {}
        self.break_off(true);
        let before = self.come();
        let cut = async {
            while self.come() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.proxy.cut();
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = call => answer,
            () = cut => unreachable!("it goes on"),
        };
        self.break_off(false);
        answer
    }
}

impl Coordinator for Lossy {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(self.call(self.inner.acquire(claim)))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        Box::pin(self.call(self.inner.renew(renewals)))
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(self.call(self.inner.release(release)))
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        Box::pin(self.call(self.inner.revoke(revocation)))
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        Box::pin(self.call(self.inner.inspect(resource)))
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(self.call(self.inner.list(listing)))
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        Box::pin(self.call(self.inner.prepare(preparation)))
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        self.inner.next_wake()
    }
}

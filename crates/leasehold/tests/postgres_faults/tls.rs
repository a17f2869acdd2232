//! A server that is reached over TLS, and its clients' certificates.

use leasehold_core::{Error, Kind, record::Acquired, request::Claim};
use leasehold_testkit::server::{Certificates, Direction, Postgres, Proxy};

use super::scene::{
    again, claim, connect, granted, ready, release, renewed, shared, try_connect, until_granted,
};

/// A server, a database of its role `client`, and the files.
struct World {
    server: Postgres,
    certificates: Certificates,
    database: String,
}

impl World {
    fn new() -> Self {
        let certificates = Certificates::new().unwrap();
        let server = Postgres::start_over_tls(&certificates).unwrap();
        let database = server.database().unwrap();
        server.psql("postgres", &format!("ALTER DATABASE {database} OWNER TO client")).unwrap();
        Self { server, certificates, database }
    }

    fn at(&self, settings: &str) -> String {
        let port = self.server.address().port();
        format!("postgres://client@localhost:{port}/{}?sslmode=verify-full&{settings}", self.database)
    }

    fn file(&self, name: &str) -> String {
        self.certificates.path(name).display().to_string()
    }

    /// The settings of one who may come in.
    fn good(&self) -> String {
        format!("ca={}&{}", self.file("ca.pem"), self.identity())
    }

    fn identity(&self) -> String {
        format!("cert={}&key={}", self.file("client.pem"), self.file("client.key"))
    }
}

async fn refused(url: &str, kind: Kind, fact: &str, advice: &str) -> Error {
    let error = try_connect(url).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(fact), "{error}");
    assert!(error.advice().is_some_and(|text| text.contains(advice)), "{error}");
    error
}

/// The whole life of a lease, with every session covered and known by its certificate: the ones that listen and keep locks, too.
#[tokio::test]
async fn leases_over_tls_with_a_client_certificate() {
    let world = World::new();
    for more in ["", "&mode=advisory&schema=sessions"] {
        let url = world.at(&format!("{}{more}", world.good()));
        let (one, other) = (ready(&url).await, connect(&url).await);
        let held = claim("r");
        let token = granted(&one, &held).await.token;
        let waits = Claim { queue: true, ..again(&held) };
        assert!(matches!(other.acquire(waits.clone()).await.unwrap(), Acquired::Busy(_)));
        assert!(renewed(&one, &held, token).await.is_ok());
        let covered = "SELECT count(*) FILTER (WHERE ssl AND client_dn LIKE '%CN=client%') || ' of ' || count(*) \
                       FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'client'";
        let shown = world.server.psql(&world.database, covered).unwrap();
        let (good, all) = shown.split_once(" of ").unwrap();
        assert!(good == all && all != "0", "{shown}");
        let _ = one.release(release(&held, Some(token))).await.unwrap();
        let woken = tokio::time::timeout(super::scene::PATIENCE, other.next_wake()).await;
        assert!(woken.is_ok(), "no wake over TLS");
        assert!(until_granted(&other, &waits).await.token > token);
    }
}

/// Whoever is there is not whom the URL trusts.
#[tokio::test]
async fn a_server_of_a_foreign_authority_is_refused() {
    let world = World::new();
    let foreign = world.at(&format!("ca={}&{}", world.file("other-ca.pem"), world.identity()));
    refused(&foreign, Kind::Denied, "certificate is not accepted", "ca=FILE").await;
    // Nor is the right server under a name that its certificate is not for.
    let named = world.at(&world.good()).replace("localhost", "localhost.localdomain");
    let error = try_connect(&named).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Denied | Kind::Unavailable), "{error}");
}

/// The server knows its clients by their certificates.
#[tokio::test]
async fn a_client_without_the_right_certificate_is_refused() {
    let world = World::new();
    let bare = world.at(&format!("ca={}", world.file("ca.pem")));
    refused(&bare, Kind::Denied, "certificate", "cert=FILE").await;
    // One that another authority signed.
    let others = Certificates::new().unwrap();
    let file = |name: &str| others.path(name).display().to_string();
    let strange = world.at(&format!(
        "ca={}&cert={}&key={}",
        world.file("ca.pem"),
        file("client.pem"),
        file("client.key")
    ));
    refused(&strange, Kind::Denied, "TLS", "cert=FILE").await;
    // A good one, for another role.
    world.server.psql("postgres", "CREATE ROLE other LOGIN").unwrap();
    let other = world.at(&world.good()).replace("client@", "other@");
    refused(&other, Kind::Denied, "certificate authentication failed", "cert=FILE").await;
}

/// Plain text is told what the server wants.
#[tokio::test]
async fn plain_text_is_refused_by_a_server_that_wants_tls() {
    let world = World::new();
    let plain = world.at("").replace("verify-full&", "disable");
    refused(&plain, Kind::Denied, "no pg_hba.conf entry", "sslmode=verify-full").await;
}

/// The URL demands TLS and the server has none: nothing but the question for it goes over the wire, no role, no password.
#[tokio::test]
async fn a_server_without_tls_is_told_nothing_where_the_url_demands_it() {
    let proxy = Proxy::start(shared().address()).unwrap();
    let url = format!("postgres://app:s3cret@{}/postgres?sslmode=verify-full", proxy.address());
    let error = refused(&url, Kind::Unavailable, "TLS", "sslmode=disable").await;
    assert!(!error.to_string().contains("s3cret"), "{error}");
    assert_eq!(proxy.bytes(Direction::ToServer), 8 * proxy.accepted(), "an SSLRequest is eight bytes");
}

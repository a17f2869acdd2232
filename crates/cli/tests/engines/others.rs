//! Coordinators that differ from one of the five in the way to them, or in what stands behind: each says the same in brief.

use std::{path::Path, sync::OnceLock};

use leasehold_testkit::server::{Certificates, Postgres, Redis, RedisCluster, RedisSentinels, RedisSetup};

use crate::engines::Engine;

/// All of them. Each has one place.
pub(crate) fn all() -> Vec<Box<dyn Engine>> {
    vec![
        Box::new(OverTls::default()),
        Box::new(Watched::default()),
        Box::new(InShards::default()),
        Box::new(BySessions::default()),
    ]
}

/// A server that wants TLS, and a certificate of its clients.
#[derive(Default)]
struct OverTls(OnceLock<(Redis, Certificates)>);

impl Engine for OverTls {
    fn name(&self) -> &'static str {
        "rediss"
    }

    fn url(&self, _: &Path) -> String {
        let (server, certificates) = self.0.get_or_init(|| {
            let certificates = Certificates::new().unwrap();
            let path = |name: &str| certificates.path(name).display().to_string();
            let setup = RedisSetup::new()
                .over_tls()
                .with("tls-ca-cert-file", &path("ca.pem"))
                .with("tls-cert-file", &path("server.pem"))
                .with("tls-key-file", &path("server.key"));
            (setup.start().unwrap(), certificates)
        });
        let path = |name: &str| certificates.path(name).display().to_string();
        format!(
            "rediss://localhost:{}?max_ttl=24h&ca={}&cert={}&key={}",
            server.address().port(),
            path("ca.pem"),
            path("client.pem"),
            path("client.key")
        )
    }
}

/// A master, its replica, and their Sentinels.
#[derive(Default)]
struct Watched(OnceLock<RedisSentinels>);

impl Engine for Watched {
    fn name(&self) -> &'static str {
        "redis-sentinel"
    }

    fn url(&self, _: &Path) -> String {
        format!("{}&max_ttl=24h", self.0.get_or_init(|| RedisSentinels::start().unwrap()).url())
    }
}

/// A Cluster.
#[derive(Default)]
struct InShards(OnceLock<RedisCluster>);

impl Engine for InShards {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    fn url(&self, _: &Path) -> String {
        format!("{}&max_ttl=24h", self.0.get_or_init(|| RedisCluster::start(false).unwrap()).url())
    }
}

/// A lease is free when its holder's session ends: what one command took ends with it, so only `run` is of use there.
#[derive(Default)]
struct BySessions(OnceLock<Postgres>);

impl Engine for BySessions {
    fn name(&self) -> &'static str {
        "postgres-advisory"
    }

    fn url(&self, _: &Path) -> String {
        let server = self.0.get_or_init(|| Postgres::start().unwrap());
        format!("{}?max_ttl=24h&mode=advisory", server.url(&server.database().unwrap()))
    }
}

//! One member of a cluster, and the connection to it.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Error, Kind};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::{
    failure::{Fail, not_connected},
    options::Options,
};
use crate::{sync::lock, tls::TlsPem};

/// How often a quiet connection is probed. etcd takes a client that does so more often than every 5 s for an attacker.
const PING_EVERY: Duration = Duration::from_secs(6);
/// How long a probe may stay unanswered.
const PING_LIMIT: Duration = Duration::from_secs(3);

/// A member as the URL names it.
pub(super) struct Member {
    at: usize,
    name: String,
    endpoint: Endpoint,
    limit: Duration,
    link: Mutex<Option<Arc<Link>>>,
    /// Held while a connection is made: those who come meanwhile wait for it.
    connecting: tokio::sync::Mutex<()>,
    serial: AtomicU64,
}

/// A connection to a member.
pub(super) struct Link {
    member: usize,
    serial: u64,
    channel: Channel,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("member", &self.member)
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Which member, counted in the URL's order.
    pub(super) fn member(&self) -> usize {
        self.member
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }
}

impl Member {
    /// The members that a URL names. Nothing is connected yet.
    pub(super) fn all(options: &Options) -> Result<Vec<Self>, Error> {
        let pem = options.tls.as_ref().map(crate::tls::TlsFiles::read).transpose()?;
        let tls = pem.as_ref().map(tls).transpose()?;
        // Several members share the time that a caller gives us, so that those that are not there cost none of it too much.
        let share = u32::try_from(options.hosts.len().clamp(1, 4)).unwrap_or(1);
        let limit = options.connect_timeout / share;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let member = |(at, host): (usize, &crate::address::Host)| {
            let name = host.to_string();
            let endpoint = Endpoint::from_shared(format!("{scheme}://{name}"))
                .and_then(|endpoint| match &tls {
                    Some(tls) => endpoint.tls_config(tls.clone()),
                    None => Ok(endpoint),
                })
                .map_err(|reason| {
                    Error::new(Kind::Invalid, format!("the etcd host {name} cannot be used: {reason}"))
                })?
                .connect_timeout(limit)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_LIMIT)
                .keep_alive_while_idle(true);
            let serial = AtomicU64::new(0);
            Ok(Self {
                at,
                name,
                endpoint,
                limit,
                link: Mutex::default(),
                connecting: tokio::sync::Mutex::default(),
                serial,
            })
        };
        options.hosts.iter().enumerate().map(member).collect()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The connection, made when there is none.
    pub(super) async fn link(&self) -> Result<Arc<Link>, Fail> {
        if let Some(link) = self.connected() {
            return Ok(link);
        }
        let _turn = self.connecting.lock().await;
        if let Some(link) = self.connected() {
            return Ok(link);
        }
        let channel = match tokio::time::timeout(self.limit, self.endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(not_connected(&self.name, &error)),
            Err(_) => {
                return Err(Fail::NotSent(format!("{}: no connection within {:?}", self.name, self.limit)));
            }
        };
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let link = Arc::new(Link { member: self.at, serial, channel });
        *lock(&self.link) = Some(Arc::clone(&link));
        Ok(link)
    }

    fn connected(&self) -> Option<Arc<Link>> {
        lock(&self.link).clone()
    }

    /// Gives this connection up. False when it had been already.
    pub(super) fn drop_link(&self, link: &Link) -> bool {
        lock(&self.link).take_if(|current| current.serial == link.serial).is_some()
    }
}

fn tls(pem: &TlsPem) -> Result<ClientTlsConfig, Error> {
    // Says what is wrong with the files, in our words; it also knows the system's roots.
    pem.client_config()?;
    let mut config = ClientTlsConfig::new();
    config = match &pem.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
        None => config.trust_anchors(system_roots()),
    };
    if let Some((cert, key)) = &pem.identity {
        config = config.identity(Identity::from_pem(cert, key));
    }
    Ok(config)
}

fn system_roots() -> Vec<rustls::pki_types::TrustAnchor<'static>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.roots
}

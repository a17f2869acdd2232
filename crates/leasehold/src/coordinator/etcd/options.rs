//! What a URL says about an etcd cluster.

use std::time::Duration;

use leasehold_core::{Error, Kind, Ttl};

use crate::{
    address::{Address, Host, Secret},
    tls::TlsFiles,
};

/// etcd's port for clients.
const PORT: u16 = 2379;
/// Below which all our keys lie, unless the URL names another prefix.
const PREFIX: &str = "leasehold";
/// The longest prefix (ours: with the longest names, a key stays below etcd's and everybody's limits).
const MAX_PREFIX_BYTES: usize = 200;

/// What a URL says: `etcd://[user:password@]host[:2379][,host…][/prefix][?setting=…]`, `etcds://` for TLS.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) hosts: Vec<Host>,
    pub(super) login: Option<(String, Secret)>,
    pub(super) prefix: String,
    pub(super) tls: Option<TlsFiles>,
    pub(super) max_ttl: Option<Ttl>,
    pub(super) shared_lease: bool,
    pub(super) connect_timeout: Duration,
    pub(super) place: String,
}

impl Options {
    /// Reads an address.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for settings that etcd does not have or that contradict each other.
    pub fn read(address: &Address) -> Result<Self, Error> {
        let mut settings = address.settings();
        let max_ttl = settings.ttl("max_ttl")?;
        let shared_lease = settings.flag("shared_lease")?;
        let connect_timeout = settings.duration("connect_timeout")?.unwrap_or(Duration::from_secs(5));
        let files = TlsFiles::take(&mut settings)?;
        settings.finish()?;
        let tls = match address.scheme.as_str() {
            "etcds" => Some(files),
            _ if files.is_empty() => None,
            _ => {
                return Err(Error::new(Kind::Invalid, "ca, cert and key are for etcds URLs")
                    .advise("write etcds:// for TLS, or leave them out"));
            }
        };
        if address.hosts.is_empty() {
            return Err(Error::new(Kind::Invalid, "an etcd URL names at least one host")
                .advise("write etcd://host, or etcd://host1,host2,host3"));
        }
        if address.hosts.iter().any(|host| host.name.starts_with('/')) {
            return Err(Error::new(Kind::Invalid, "an etcd URL names hosts, not folders of sockets"));
        }
        if connect_timeout.is_zero() {
            return Err(Error::new(Kind::Invalid, "connect_timeout must be more than zero"));
        }
        let hosts =
            address.hosts.iter().map(|host| Host { port: Some(host.port.unwrap_or(PORT)), ..host.clone() });
        Ok(Self {
            hosts: hosts.collect(),
            login: login(address)?,
            prefix: prefix(&address.path)?,
            tls,
            max_ttl,
            shared_lease,
            connect_timeout,
            // The place starts with the engine's word, with TLS or without.
            place: address.to_string(),
        })
    }
}

fn login(address: &Address) -> Result<Option<(String, Secret)>, Error> {
    match (&address.user, &address.password) {
        (Some(user), Some(password)) => Ok(Some((user.clone(), password.clone()))),
        (None, None) => Ok(None),
        _ => Err(Error::new(Kind::Invalid, "an etcd login is a user and a password")
            .advise("write etcd://user:password@host, or leave both out")),
    }
}

fn prefix(path: &str) -> Result<String, Error> {
    let prefix = path.trim_end_matches('/');
    if prefix.len() > MAX_PREFIX_BYTES {
        return Err(Error::new(
            Kind::Invalid,
            format!("the prefix in an etcd URL has at most {MAX_PREFIX_BYTES} bytes"),
        ));
    }
    Ok(if prefix.is_empty() { PREFIX.to_owned() } else { prefix.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Options, Error> {
        let (scheme, rest) = url.split_once(':').unwrap();
        Options::read(&Address::parse(scheme, rest)?)
    }

    #[test]
    fn urls_are_read_or_refused_with_the_reason() {
        let options = read("etcd://me:secret@a,b:1,[::1]/apps/leases?max_ttl=48h&shared_lease=true").unwrap();
        let hosts: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a:2379", "b:1", "[::1]:2379"]);
        assert_eq!((options.prefix.as_str(), options.shared_lease), ("apps/leases", true));
        assert!(!format!("{options:?}").contains("secret") && !options.place.contains("secret"));
        assert_eq!(read("etcd://a").unwrap().prefix, "leasehold");
        assert!(read("etcds://a?ca=/ca.pem").unwrap().tls.is_some());
        for (bad, word) in [
            ("etcd://", "at least one host"),
            ("etcd://me@a", "user and a password"),
            ("etcd://a?ca=/ca.pem", "etcds"),
            ("etcd://a?sharedlease=true", "no setting"),
            ("etcds://a?cert=/c.pem", "belong together"),
            ("etcd://a?connect_timeout=0s", "more than zero"),
            (&format!("etcd://a/{}", "x".repeat(201)), "prefix"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.to_string().contains(word), "{bad}: {error}");
            assert_eq!(error.kind(), Kind::Invalid);
        }
    }
}

//! What a URL says.

use std::sync::Arc;

use leasehold_core::{Error, Kind, Ttl};

use super::{
    dial::Login,
    link::Replicas,
    target::{Sentinels, Target},
};
use crate::{
    address::{Address, Host, Secret},
    tls::TlsFiles,
};

/// How long replicas may take to confirm a change (ours: many round trips; a caller's own limit is 5 s).
const REPLICA_LIMIT: std::time::Duration = std::time::Duration::from_millis(500);
const SENTINEL_PORT: u16 = 26_379;

/// What a URL says.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) place: String,
    pub(super) hosts: Vec<Host>,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) database: i64,
    pub(super) tls: Option<TlsFiles>,
    pub(super) shape: Shape,
    pub(super) max_ttl: Option<Ttl>,
    pub(super) replicas: Option<Replicas>,
    pub(super) allow_eviction: bool,
    effects_tag: Option<String>,
}

/// How the servers belong together.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// One server, with or without replicas.
    Single,
    /// Sentinels that watch a group; how to log in at them.
    Sentinel { group: String, user: Option<String>, password: Option<Secret> },
    /// A Cluster.
    Cluster,
}

impl Options {
    /// Reads an address.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for settings that Redis does not have or that contradict each other.
    pub fn read(address: &Address) -> Result<Self, Error> {
        let mut settings = address.settings();
        let group = settings.text("sentinel").map(str::to_owned);
        let cluster = settings.flag("cluster")?;
        let (user, password) = (settings.text("sentinel_user"), settings.path("sentinel_password_file"));
        let max_ttl = settings.ttl("max_ttl")?;
        let replicas = settings.number("wait_replicas", 1, 100)?;
        let allow_eviction = settings.flag("allow_eviction")?;
        let effects_tag = settings.text("effects_tag").map(str::to_owned);
        if let Some(tag) = &effects_tag {
            crate::fence::redis::checked(tag)?;
        }
        let files = TlsFiles::take(&mut settings)?;
        settings.finish()?;

        let secure = address.scheme == "rediss";
        if !secure && !files.is_empty() {
            return Err(invalid("ca, cert and key are for TLS").advise("write rediss:// instead of redis://"));
        }
        let shape = match (group, cluster) {
            (Some(_), true) => return Err(invalid("sentinel and cluster exclude one another")),
            (Some(group), false) if group.is_empty() => {
                return Err(invalid("sentinel in the URL names the group that the Sentinels watch"));
            }
            (Some(group), false) => {
                let password = password.as_deref().map(read_secret).transpose()?;
                Shape::Sentinel { group, user: user.map(str::to_owned), password }
            }
            (None, _) if user.is_some() || password.is_some() => {
                return Err(invalid("sentinel_user and sentinel_password_file go with sentinel=NAME"));
            }
            (None, true) => Shape::Cluster,
            (None, false) => Shape::Single,
        };
        check_hosts(address, &shape)?;
        let replicas = replicas.and_then(|count| u8::try_from(count).ok());
        Ok(Self {
            place: address.to_string(),
            hosts: address.hosts.clone(),
            user: address.user.clone(),
            password: address.password.clone(),
            database: database(&address.path, &shape)?,
            tls: secure.then_some(files),
            shape,
            max_ttl,
            replicas: replicas.map(|count| Replicas { count, limit: REPLICA_LIMIT }),
            allow_eviction,
            effects_tag,
        })
    }

    /// One of several independent servers, by itself.
    pub(in crate::coordinator) fn of_one(
        host: &Host,
        login: (Option<String>, Option<Secret>),
        database: i64,
        tls: Option<TlsFiles>,
        max_ttl: Option<Ttl>,
    ) -> Self {
        Self {
            place: format!("redis://{host}"),
            hosts: vec![host.clone()],
            user: login.0,
            password: login.1,
            database,
            tls,
            shape: Shape::Single,
            max_ttl,
            replicas: None,
            allow_eviction: false,
            effects_tag: None,
        }
    }

    /// The same with another password.
    #[cfg(feature = "effects")]
    pub(crate) fn with_password(mut self, password: Secret) -> Self {
        self.password = Some(password);
        self
    }

    /// How many replicas must have a change before it counts, and how long they may take.
    #[cfg(feature = "effects")]
    pub(crate) fn replicas(&self) -> Option<(u8, std::time::Duration)> {
        self.replicas.map(|replicas| (replicas.count, replicas.limit))
    }

    /// Under which hash tag effects are kept there; `None` where the URL does not say.
    pub(crate) fn effects_tag(&self) -> Option<&str> {
        self.effects_tag.as_deref()
    }

    /// True for a Cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.shape, Shape::Cluster)
    }

    /// How to log in at the servers that keep leases. Reads the TLS files.
    pub(crate) fn login(&self) -> Result<Login, Error> {
        let tls = match &self.tls {
            Some(files) => Some(Arc::new(files.read()?.client_config()?)),
            None => None,
        };
        Ok(Login { user: self.user.clone(), password: self.password.clone(), database: self.database, tls })
    }

    /// The servers to ask, one after the other until one can be reached.
    pub(crate) fn targets(&self) -> Result<Vec<Target>, Error> {
        let login = self.login()?;
        let Shape::Sentinel { group, user, password } = &self.shape else {
            return Ok(self.hosts.iter().map(|host| Target::Fixed(host.clone(), login.clone())).collect());
        };
        let with_port = |host: &Host| Host { port: host.port.or(Some(SENTINEL_PORT)), ..host.clone() };
        let at_sentinels =
            Login { user: user.clone(), password: password.clone(), database: 0, tls: login.tls.clone() };
        let hosts = self.hosts.iter().map(with_port).collect();
        let sentinels = Sentinels { hosts, group: group.clone(), login: at_sentinels, master: login };
        Ok(vec![Target::Sentinel(Arc::new(sentinels))])
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

fn check_hosts(address: &Address, shape: &Shape) -> Result<(), Error> {
    if address.hosts.is_empty() {
        return Err(invalid("a redis URL names a host").advise("write redis://HOST, as in redis://localhost"));
    }
    if matches!(shape, Shape::Single) && address.hosts.len() > 1 {
        return Err(invalid("a redis URL with several hosts says how they belong together").advise(
            "add ?sentinel=NAME or ?cluster=true; for servers that do not know of one another use redlock://",
        ));
    }
    Ok(())
}

fn database(path: &str, shape: &Shape) -> Result<i64, Error> {
    if path.is_empty() {
        return Ok(0);
    }
    match path.parse() {
        Ok(0) => Ok(0),
        Ok(_) if matches!(shape, Shape::Cluster) => Err(invalid("a Cluster has database 0 alone")),
        Ok(number @ 0..=65_535) => Ok(number),
        _ => Err(invalid("what follows the host in a redis URL is the number of a database")
            .advise("write redis://HOST/0")),
    }
}

/// A password in a file, without the line end that editors leave.
fn read_secret(path: &std::path::Path) -> Result<Secret, Error> {
    let shown = crate::address::visible(&path.to_string_lossy());
    let text = std::fs::read_to_string(path)
        .map_err(|reason| invalid(format!("cannot read the password file {shown}: {reason}")))?;
    Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Options, Error> {
        let (scheme, rest) = url.split_once(':').unwrap();
        Options::read(&Address::parse(scheme, rest)?)
    }

    #[test]
    fn every_setting_is_read() {
        let options =
            read("redis://ann:secret@h:1/3?max_ttl=2h&wait_replicas=2&allow_eviction=true").unwrap();
        assert_eq!((options.database, options.user.as_deref()), (3, Some("ann")));
        assert_eq!(options.max_ttl, Some(Ttl::from_millis(7_200_000).unwrap()));
        assert_eq!(options.replicas.map(|replicas| replicas.count), Some(2));
        assert!(options.allow_eviction && options.tls.is_none());
        assert!(!format!("{options:?}").contains("secret"));
        assert!(
            matches!(read("redis://a,b?sentinel=main").unwrap().shape, Shape::Sentinel { group, .. } if group == "main")
        );
        assert!(matches!(read("rediss://a,b?cluster=true").unwrap().shape, Shape::Cluster));
        assert_eq!(read("redis://%2Frun%2Fredis.sock").unwrap().hosts[0].name, "/run/redis.sock");
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_the_reason() {
        for (bad, word) in [
            ("redis://", "names a host"),
            ("redis://a,b", "how they belong together"),
            ("redis://a?sentinel=x&cluster=true", "exclude"),
            ("redis://a?sentinel=", "names the group"),
            ("redis://a?sentinel_user=x", "go with sentinel"),
            ("redis://a?ca=/x", "for TLS"),
            ("rediss://a?cert=/x", "belong together"),
            ("redis://a/x", "number of a database"),
            ("redis://a/1?cluster=true", "database 0"),
            ("redis://a?wait_replicas=0", "whole number"),
            ("redis://a?effects_tag=%7Bx%7D", "hash tag"),
            ("redis://a?effects_tag=", "hash tag"),
            ("redis://a?wait=1", "no setting"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}

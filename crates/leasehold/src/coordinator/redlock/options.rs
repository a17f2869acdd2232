//! What a URL says.

use std::{collections::HashSet, sync::Arc};

use leasehold_core::{Error, Kind, Ttl, quorum::Quorum};

use crate::{
    address::{Address, Host, Secret},
    coordinator::redis::{self as single, dial::Login},
    tls::TlsFiles,
};

const PORT: u16 = 6379;

/// What a URL says.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) place: String,
    pub(super) hosts: Vec<Host>,
    pub(super) quorum: Quorum,
    user: Option<String>,
    password: Option<Secret>,
    database: i64,
    tls: Option<TlsFiles>,
    pub(super) max_ttl: Option<Ttl>,
}

impl Options {
    /// Reads an address.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for settings that Redlock does not have, a number of nodes that makes no sense, and a node that is
    /// named twice.
    pub fn read(address: &Address) -> Result<Self, Error> {
        let mut settings = address.settings();
        let (max_ttl, secure) = (settings.ttl("max_ttl")?, settings.flag("tls")?);
        let files = TlsFiles::take(&mut settings)?;
        settings.finish()?;
        if !secure && !files.is_empty() {
            return Err(invalid("ca, cert and key are for TLS").advise("add tls=true to the URL"));
        }
        let hosts: Vec<Host> = address.hosts.iter().map(with_port).collect();
        let quorum = Quorum::of(hosts.len()).map_err(|_| count(hosts.len()))?;
        let mut seen = HashSet::new();
        if let Some(twice) = hosts.iter().find(|host| !seen.insert(host.to_string().to_lowercase())) {
            return Err(invalid(format!("the URL names {twice} twice"))
                .advise("name servers that are independent of one another, each once"));
        }
        Ok(Self {
            place: address.to_string(),
            hosts,
            quorum,
            user: address.user.clone(),
            password: address.password.clone(),
            database: database(&address.path)?,
            tls: secure.then_some(files),
            max_ttl,
        })
    }

    /// One of the nodes as a server by itself.
    pub(super) fn of_one(&self, host: &Host) -> single::Options {
        let login = (self.user.clone(), self.password.clone());
        single::Options::of_one(host, login, self.database, self.tls.clone(), self.max_ttl)
    }

    /// How to log in: everywhere alike. Reads the TLS files.
    pub(super) fn login(&self) -> Result<Login, Error> {
        let tls = match &self.tls {
            Some(files) => Some(Arc::new(files.read()?.client_config()?)),
            None => None,
        };
        Ok(Login { user: self.user.clone(), password: self.password.clone(), database: self.database, tls })
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

fn count(hosts: usize) -> Error {
    invalid(format!("a redlock URL names an odd number of servers from 3 to 15, not {hosts}")).advise(
        "write redlock://A,B,C for three servers that do not know of one another; an even number survives no more losses than \
         the odd one below it",
    )
}

fn with_port(host: &Host) -> Host {
    let socket = host.name.starts_with('/');
    Host { port: host.port.or((!socket).then_some(PORT)), ..host.clone() }
}

fn database(path: &str) -> Result<i64, Error> {
    match path.parse() {
        _ if path.is_empty() => Ok(0),
        Ok(number @ 0..=65_535) => Ok(number),
        _ => Err(invalid("what follows the hosts in a redlock URL is the number of a database")
            .advise("write redlock://A,B,C/0")),
    }
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
        let options = read("redlock://ann:secret@a,b:7000,c/3?max_ttl=2h&tls=true").unwrap();
        let hosts: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a:6379", "b:7000", "c:6379"]);
        assert_eq!((options.quorum.majority(), options.database), (2, 3));
        assert_eq!(options.max_ttl, Some(Ttl::from_millis(7_200_000).unwrap()));
        assert!(options.tls.is_some() && !format!("{options:?}").contains("secret"));
        assert_eq!(read("redlock://a,b,c,d,e").unwrap().quorum.majority(), 3);
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_the_reason() {
        for (bad, word) in [
            ("redlock://", "odd number"),
            ("redlock://a", "odd number"),
            ("redlock://a,b", "odd number"),
            ("redlock://a,b,c,d", "not 4"),
            ("redlock://a,b,a:6379", "twice"),
            ("redlock://a,b,A", "twice"),
            ("redlock://a,b,c?ca=/x", "for TLS"),
            ("redlock://a,b,c/x", "number of a database"),
            ("redlock://a,b,c?wait_replicas=1", "no setting"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
        assert!(
            read(&format!("redlock://{}", (0..17).map(|n| format!("h{n}")).collect::<Vec<_>>().join(",")))
                .is_err()
        );
    }
}

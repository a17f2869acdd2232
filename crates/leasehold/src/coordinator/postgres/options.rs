//! What a `postgres://` URL says.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use leasehold_core::{Error, Kind, Ttl};

use crate::{
    address::{Address, Host, Secret, Settings},
    tls::TlsFiles,
};

/// The longest TTL of a namespace that nobody has set another for: also what a failover costs.
pub(super) const DEFAULT_MAX_TTL_MS: u64 = 60_000;
/// How long a connection may take to be made, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two steps of forgetting.
const PURGE_EVERY: Duration = Duration::from_secs(60);
const DEFAULT_SCHEMA: &str = "leasehold";
/// `PostgreSQL` cuts longer names off without a word.
const MAX_IDENTIFIER: usize = 63;

/// How expiry is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// By the server's wall clock.
    ServerClock,
    /// By every waiter's own clock: taken over once the same grant was seen unchanged for longer than it lasts.
    Observed,
    /// By the server's wall clock, or at once when the holder's session ends.
    Session,
}

impl Expiry {
    /// The word in URLs and in the database.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::ServerClock => "server_clock",
            Self::Observed => "observed",
            Self::Session => "advisory",
        }
    }
}

/// What makes a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// A row of the lease table.
    Table,
    /// A session's advisory lock, with its token from the lease table.
    Advisory,
}

/// When TLS is used. Where it is, the server's certificate and name are always checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tls {
    /// Never.
    Off,
    /// Where the server offers it.
    Offered,
    /// Always.
    Always,
}

/// Where notifications are listened for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// On our own connection, unless there is a pooler in between.
    Auto,
    /// Nowhere: waiting is by re-checks.
    Never,
    /// On a connection to this address, which must be the server's own.
    At(Box<Target>),
}

/// An address and how to log in there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The servers, in the order in which they are tried.
    pub hosts: Vec<Host>,
    /// Who logs in; `None`: the operating system's user.
    pub user: Option<String>,
    /// With which password.
    pub password: Option<Secret>,
    /// Which database; `None`: the one named like the user.
    pub database: Option<String>,
    /// When TLS is used.
    pub tls: Tls,
    /// With which files.
    pub tls_files: TlsFiles,
    /// Where the password is looked up when the URL has none.
    pub passfile: Option<PathBuf>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
}

/// What a URL says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Where the database is.
    pub target: Target,
    /// The schema of the tables.
    pub schema: String,
    /// The longest TTL of the namespace as this client knows it; `None`: what is stored, up to a minute.
    pub max_ttl: Option<Ttl>,
    /// How expiry is judged.
    pub expiry: Expiry,
    /// What makes a holder.
    pub mode: Mode,
    /// Where notifications are listened for.
    pub listen: Listen,
    /// Between two steps of forgetting what is idle: a minute. No setting of a URL; shorter for tests.
    #[doc(hidden)]
    pub purge_every: Duration,
    pub(super) place: String,
}

impl Options {
    /// Reads an address.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for settings that there are not, or that contradict each other.
    pub fn read(address: &Address) -> Result<Self, Error> {
        let mut settings = address.settings();
        let target = target(address, &mut settings)?;
        let schema = settings.text("schema").unwrap_or(DEFAULT_SCHEMA).to_owned();
        if schema.is_empty() || schema.len() > MAX_IDENTIFIER || schema.starts_with("pg_") {
            return Err(invalid("schema in the URL must be 1 to 63 bytes long and must not start with pg_"));
        }
        let max_ttl = settings.ttl("max_ttl")?;
        let told = match settings.text("expiry") {
            None => None,
            Some("server_clock") => Some(Expiry::ServerClock),
            Some("observed") => Some(Expiry::Observed),
            Some(_) => return Err(invalid("expiry in the URL must be server_clock or observed")),
        };
        let mode = match settings.text("mode") {
            None | Some("table") => Mode::Table,
            Some("advisory") => Mode::Advisory,
            Some(_) => return Err(invalid("mode in the URL must be table or advisory")),
        };
        let expiry = match (mode, told) {
            (Mode::Table, told) => told.unwrap_or(Expiry::ServerClock),
            (Mode::Advisory, None) => Expiry::Session,
            (Mode::Advisory, Some(_)) => {
                return Err(invalid("with mode=advisory sessions decide, so there is no expiry to choose")
                    .advise("leave out expiry, or use the lease table"));
            }
        };
        let listen = listen(&target, &mut settings)?;
        settings.finish()?;
        let (purge_every, place) = (PURGE_EVERY, place(address));
        Ok(Self { target, schema, max_ttl, expiry, mode, listen, purge_every, place })
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

/// The address for people, under one scheme.
fn place(address: &Address) -> String {
    address.to_string().replacen("postgresql://", "postgres://", 1)
}

fn target(address: &Address, settings: &mut Settings<'_>) -> Result<Target, Error> {
    if address.path.contains('/') {
        return Err(invalid("the path of a postgres URL is the name of a database").advise("write / as %2F"));
    }
    let mut hosts = address.hosts.clone();
    if hosts.is_empty() {
        hosts.push(Host { name: "/var/run/postgresql".to_owned(), port: None });
    }
    let tls_files = TlsFiles::take(settings)?;
    let tls = match settings.text("sslmode") {
        Some("disable") => Tls::Off,
        Some("prefer") => Tls::Offered,
        Some("require" | "verify-full") => Tls::Always,
        Some(_) => {
            return Err(invalid("sslmode in the URL must be disable, prefer, require or verify-full")
                .advise("require checks the server's certificate here as verify-full does; name its authority with ca=FILE"));
        }
        // What never leaves the machine needs no cover.
        None if hosts.iter().all(|host| is_local(&host.name)) && tls_files.is_empty() => Tls::Off,
        None => Tls::Always,
    };
    if tls == Tls::Off && !tls_files.is_empty() {
        return Err(invalid("the URL names TLS files and switches TLS off"));
    }
    Ok(Target {
        hosts,
        user: address.user.clone(),
        password: address.password.clone(),
        database: Some(address.path.clone()).filter(|path| !path.is_empty()),
        tls,
        tls_files,
        passfile: settings.path("passfile"),
        connect_timeout: settings.duration("connect_timeout")?.unwrap_or(CONNECT_TIMEOUT),
    })
}

pub(super) fn is_local(host: &str) -> bool {
    host.starts_with('/')
        || host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn listen(target: &Target, settings: &mut Settings<'_>) -> Result<Listen, Error> {
    let elsewhere = settings.text("listen_url");
    match (settings.text("listen"), elsewhere) {
        (None | Some("auto"), None) => Ok(Listen::Auto),
        (Some("never"), None) => Ok(Listen::Never),
        (None, Some(url)) => {
            let wrong = || {
                invalid("listen_url in the URL is no postgres URL")
                    .advise("write its special characters as % and two digits")
            };
            let (scheme, rest) = url.split_once(':').ok_or_else(wrong)?;
            if !matches!(scheme, "postgres" | "postgresql") {
                return Err(wrong());
            }
            let address = Address::parse(scheme, rest)?;
            let mut settings = address.settings();
            let mut direct = self::target(&address, &mut settings)?;
            settings.finish()?;
            // The login is the same one unless it says otherwise.
            direct.user = direct.user.or_else(|| target.user.clone());
            direct.password = direct.password.or_else(|| target.password.clone());
            direct.database = direct.database.or_else(|| target.database.clone());
            Ok(Listen::At(Box::new(direct)))
        }
        (Some("auto" | "never"), Some(_)) => {
            Err(invalid("listen and listen_url in the URL exclude each other"))
        }
        (Some(_), _) => Err(invalid("listen in the URL must be auto or never")),
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
    fn a_url_is_read_in_full() {
        let options = read(
            "postgresql://app:s3cret@db1:6432,db2/leases?schema=My%20Leases&max_ttl=10m&expiry=observed&sslmode=disable\
             &listen_url=postgres://db1:5432?sslmode%3Ddisable",
        )
        .unwrap();
        assert_eq!((options.target.hosts.len(), options.schema.as_str()), (2, "My Leases"));
        assert_eq!(
            (options.expiry, options.mode, options.target.tls),
            (Expiry::Observed, Mode::Table, Tls::Off)
        );
        let Listen::At(direct) = &options.listen else { panic!("{options:?}") };
        assert_eq!((direct.user.as_deref(), direct.database.as_deref()), (Some("app"), Some("leases")));
        assert_eq!(options.place, "postgres://app@db1:6432,db2/leases");
        assert!(!format!("{options:?}").contains("s3cret"));
    }

    #[test]
    fn what_leaves_the_machine_is_covered_unless_told_otherwise() {
        let tls = |url| read(url).unwrap().target.tls;
        assert_eq!(tls("postgres://db.example/x"), Tls::Always);
        assert_eq!(tls("postgres://db.example/x?sslmode=prefer"), Tls::Offered);
        assert_eq!(tls("postgres://127.0.0.1/x"), Tls::Off);
        assert_eq!(tls("postgres://%2Frun%2Fpostgresql/x"), Tls::Off);
        assert_eq!(tls("postgres:///x"), Tls::Off);
        assert_eq!(tls("postgres://localhost,db.example/x"), Tls::Always);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, word) in [
            ("postgres://h/x?sslmode=allow", "sslmode"),
            ("postgres://h/x?scheme=x", "no setting"),
            ("postgres://h/x?schema=pg_leases", "schema"),
            ("postgres://h/x?expiry=never", "expiry"),
            ("postgres://h/x?mode=advisory&expiry=observed", "advisory"),
            ("postgres://h/x?listen_url=redis://h", "listen_url"),
            ("postgres://h/x?listen=never&listen_url=postgres://h", "exclude"),
            ("postgres://h/a/b", "name of a database"),
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}

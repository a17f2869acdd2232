//! From a URL to a client.

use std::{
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

use leasehold_core::{Coordinator, Error, Kind, Label, Namespace, Ttl};

use crate::{
    Leases,
    address::{Address, visible},
    coordinator::{
        memory::{MemoryCoordinator, MemoryStore},
        network::Engine,
    },
    doctor::Finding,
    driver::ConnectFuture,
    settings::Rules,
    sync::lock,
};

/// A coordinator's address. [`fmt::Display`] shows no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Url {
    /// `memory:NAME`: a store in this process; equal names are one store.
    Memory {
        /// The store's name; may be empty.
        name: String,
    },
    /// `sqlite:PATH?max_ttl=48h`: a file; without a path the user's default.
    Sqlite {
        /// The file; `None` for the default place.
        path: Option<PathBuf>,
        /// The namespace's bound, as this client knows it.
        max_ttl: Option<Ttl>,
    },
    /// An engine behind a network, as in `postgres://host/db`.
    Network(Box<Address>),
}

impl Default for Url {
    /// `sqlite:` at the default place.
    fn default() -> Self {
        Self::Sqlite { path: None, max_ttl: None }
    }
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for something that is no coordinator's URL, [`Kind::Unsupported`] for an engine that this build
    /// does not have.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(Error::new(
                Kind::Invalid,
                "a coordinator's URL starts with the engine, as in sqlite:PATH",
            )
            .advise(
                "use sqlite:PATH for a file; without --url and LEASEHOLD_URL the user's own file is used",
            ));
        };
        match scheme {
            "memory" => Ok(Self::Memory { name: rest.to_owned() }),
            "sqlite" => parse_sqlite(rest),
            _ if Engine::of_scheme(scheme).is_some() => {
                let address = Address::parse(scheme, rest)?;
                Engine::check(&address)?;
                Ok(Self::Network(Box::new(address)))
            }
            _ => Err(Error::new(Kind::Invalid, format!("no engine is called {:?}", visible(scheme)))
                .advise("known engines: sqlite, postgres, redis, redlock, etcd, memory")),
        }
    }

    async fn open(self, namespace: Namespace) -> Result<Arc<dyn Coordinator>, Error> {
        match self {
            Self::Network(address) => Engine::open(&address, namespace).await,
            Self::Memory { name } => Ok(Arc::new(MemoryCoordinator::new(memory(name), namespace))),
            Self::Sqlite { path, max_ttl } => open_sqlite(path, max_ttl, namespace),
        }
    }

    /// Where it leads, without secrets; for people.
    pub(crate) fn place(&self) -> String {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path: None, .. } => {
                format!("sqlite:{}", visible(&crate::coordinator::sqlite::default_path().to_string_lossy()))
            }
            other => other.to_string(),
        }
    }

    /// Looks at the deployment without changing it, on a runtime that has I/O.
    pub(crate) async fn examine(self, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
        match self {
            Self::Memory { .. } => Ok(vec![Finding::fine(
                "memory",
                "tokens",
                "nothing outlives this process, its holders included",
            )]),
            Self::Sqlite { path, .. } => examine_sqlite(path, namespace),
            Self::Network(address) => Engine::examine(&address, namespace).await,
        }
    }

    /// Removes all that is kept of a throwaway namespace, on a runtime that has I/O. How many things that were.
    pub(crate) async fn discard(self, namespace: &Namespace) -> Result<u64, Error> {
        match self {
            Self::Memory { name } => Ok(memory(name).discard(namespace)),
            Self::Sqlite { path, .. } => discard_sqlite(path, namespace).await,
            Self::Network(address) => Engine::discard(&address, namespace).await,
        }
    }
}

/// This process's store of a name.
fn memory(name: String) -> MemoryStore {
    static STORES: OnceLock<Mutex<HashMap<String, MemoryStore>>> = OnceLock::new();
    lock(STORES.get_or_init(Mutex::default)).entry(name).or_default().clone()
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { name } => write!(f, "memory:{}", visible(name)),
            Self::Sqlite { path: None, .. } => f.write_str("sqlite:"),
            Self::Sqlite { path: Some(path), .. } => write!(f, "sqlite:{}", visible(&path.to_string_lossy())),
            Self::Network(address) => address.fmt(f),
        }
    }
}

fn parse_sqlite(rest: &str) -> Result<Url, Error> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match path.strip_prefix("//") {
        // sqlite:///absolute/path, as other programs write it.
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return Err(Error::new(Kind::Invalid, "a sqlite URL has no host")
                .advise("write sqlite:relative/path or sqlite:/absolute/path"));
        }
        None => path,
    };
    if path.starts_with(':') || path.starts_with("file:") {
        return Err(Error::new(
            Kind::Invalid,
            "the path of a sqlite URL is a file's, and no name that SQLite alone knows",
        )
        .advise("write sqlite:relative/path or sqlite:/absolute/path; memory:NAME is for one process"));
    }
    let mut max_ttl = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("max_ttl", value)) => {
                let duration = humantime::parse_duration(value).map_err(|reason| {
                    Error::new(
                        Kind::Invalid,
                        format!("max_ttl in the URL is no duration with a unit: {reason}"),
                    )
                })?;
                max_ttl = Some(Ttl::new(duration)?);
            }
            _ => {
                return Err(Error::new(
                    Kind::Invalid,
                    format!("a sqlite URL has no setting {:?}", visible(pair)),
                )
                .advise("known settings: max_ttl"));
            }
        }
    }
    let path = if path.is_empty() { None } else { Some(PathBuf::from(path)) };
    Ok(Url::Sqlite { path, max_ttl })
}

#[cfg(feature = "sqlite")]
fn open_sqlite(
    path: Option<PathBuf>,
    max_ttl: Option<Ttl>,
    namespace: Namespace,
) -> Result<Arc<dyn Coordinator>, Error> {
    use tokio::runtime::Handle;

    use crate::coordinator::sqlite::{Options, SqliteCoordinator, default_path};
    let path = path.unwrap_or_else(default_path);
    // Called on the driver's runtime, which has I/O and lives as long as the coordinator.
    let options = Options { max_ttl, reactor: Handle::try_current().ok(), ..Options::default() };
    Ok(Arc::new(SqliteCoordinator::open(&path, namespace, options)?))
}

#[cfg(feature = "sqlite")]
fn examine_sqlite(path: Option<PathBuf>, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
    use crate::coordinator::sqlite::{default_path, examine};
    examine(&path.unwrap_or_else(default_path), namespace)
}

#[cfg(not(feature = "sqlite"))]
fn examine_sqlite(_: Option<PathBuf>, _: &Namespace) -> Result<Vec<Finding>, Error> {
    Err(no_sqlite())
}

#[cfg(feature = "sqlite")]
async fn discard_sqlite(path: Option<PathBuf>, namespace: &Namespace) -> Result<u64, Error> {
    use crate::coordinator::sqlite::{default_path, discard};
    discard(&path.unwrap_or_else(default_path), namespace).await
}

#[cfg(not(feature = "sqlite"))]
#[allow(clippy::unused_async, reason = "the engine that is left out awaits")]
async fn discard_sqlite(_: Option<PathBuf>, _: &Namespace) -> Result<u64, Error> {
    Err(no_sqlite())
}

#[cfg(not(feature = "sqlite"))]
fn open_sqlite(_: Option<PathBuf>, _: Option<Ttl>, _: Namespace) -> Result<Arc<dyn Coordinator>, Error> {
    Err(no_sqlite())
}

#[cfg(not(feature = "sqlite"))]
fn no_sqlite() -> Error {
    Error::new(Kind::Unsupported, "this build has no sqlite coordinator")
        .advise("build with the feature `sqlite`")
}

/// Settings of a connection.
#[derive(Clone, Debug)]
#[must_use = "nothing is connected before connect"]
pub struct ConnectBuilder {
    url: String,
    namespace: Namespace,
    label: Option<Label>,
    rules: Rules,
}

impl ConnectBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), namespace: Namespace::default(), label: None, rules: Rules::default() }
    }

    /// The namespace; default `default`.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// What people call this process run; default `host:pid:program`.
    pub fn label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// The settings of leases whose requests leave something open; they can be changed later ([`Leases::retune`]).
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// As [`Leases::connect`]; as [`Leases::retune`] for settings that this namespace refuses.
    pub async fn connect(self) -> Result<Leases, Error> {
        let url = Url::parse(&self.url)?;
        let label = self.label.unwrap_or_else(default_label);
        let namespace = self.namespace.clone();
        let connect = Box::new(move || -> ConnectFuture { Box::pin(url.open(namespace)) });
        let leases = Leases::start(connect, self.namespace, label).await?;
        leases.retune(self.rules)?;
        Ok(leases)
    }
}

/// `host:pid:program`.
fn default_label() -> Label {
    let host = nix::unistd::gethostname().map(|host| host.to_string_lossy().into_owned()).unwrap_or_default();
    let program = std::env::args_os()
        .next()
        .and_then(|path| PathBuf::from(path).file_name().map(|name| name.to_string_lossy().into_owned()))
        .unwrap_or_default();
    Label::from_lossy(&format!("{host}:{}:{program}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused_with_the_reason() {
        let parsed = |text| Url::parse(text).unwrap();
        let path = |path: &str| Url::Sqlite { path: Some(path.into()), max_ttl: None };
        assert_eq!(parsed("sqlite:/a/b.db"), path("/a/b.db"));
        assert_eq!(parsed("sqlite:///a/b.db"), path("/a/b.db"));
        assert_eq!(parsed("sqlite:b.db"), path("b.db"));
        assert_eq!(parsed("sqlite:"), Url::default());
        let day_and_more = Url::Sqlite { path: None, max_ttl: Some(Ttl::from_millis(172_800_000).unwrap()) };
        assert_eq!(parsed("sqlite:?max_ttl=48h"), day_and_more);
        for (bad, word) in [
            ("leases.db", "starts with the engine"),
            ("sqlite://host/x", "no host"),
            ("sqlite:x?cache=shared", "no setting"),
            ("sqlite:x?max_ttl=5", "unit"),
            ("sqlite::memory:", "a file's"),
            ("mysql://x", "no engine"),
            ("redis:host", "has a host"),
        ] {
            let error = Url::parse(bad).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("secret"), "{bad}: {error}");
        }
    }
}

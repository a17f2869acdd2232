//! From a URL to a fence.

use std::path::{Path, PathBuf};

use leasehold_core::{Error, Kind};

use super::{Fence, MemoryFence};
use crate::connect::Url;

impl Fence {
    /// Opens the fence at `url`.
    ///
    /// | URL | where highest tokens are kept |
    /// | --- | --- |
    /// | `sqlite:PATH` | a file of its own, shared by the processes of one machine |
    /// | `postgres://…` | the table that `leasehold fence install` has made in that database |
    /// | `redis://…` | one Redis server, or the master that Sentinels name; gone when the server forgets |
    /// | `memory:` | this fence and its clones |
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a URL that is none, [`Kind::Unsupported`] for an engine that keeps no fence here, and what the
    /// engine says when it cannot be reached.
    #[allow(clippy::unused_async, reason = "the engines behind a network are connected to")]
    pub async fn connect(url: &str) -> Result<Self, Error> {
        match Url::parse(url)? {
            Url::Memory { .. } => Ok(Self::over(MemoryFence::default())),
            #[cfg(feature = "sqlite")]
            Url::Sqlite { path: Some(path), .. } => super::sqlite::SqliteStore::open(&path).map(Self::over),
            #[cfg(feature = "postgres")]
            Url::Network(address) if matches!(address.scheme.as_str(), "postgres" | "postgresql") => {
                super::postgres::PostgresStore::connect(&address).await.map(Self::over)
            }
            #[cfg(feature = "redis")]
            Url::Network(address) if matches!(address.scheme.as_str(), "redis" | "rediss") => {
                super::redis::RedisStore::connect(&address).await.map(Self::over)
            }
            other => Err(none(&other)),
        }
    }

    /// The file of highest tokens that belongs to a lease file: beside it, so that whoever shares the leases shares the fence.
    pub fn file_beside(leases: &Path) -> PathBuf {
        let mut name = leases.as_os_str().to_owned();
        name.push(".fences");
        PathBuf::from(name)
    }
}

fn none(url: &Url) -> Error {
    Error::new(Kind::Unsupported, "no fence is kept there")
        .at(&url.place())
        .advise("use sqlite:PATH for a file, postgres://… for a table, or redis://…")
}

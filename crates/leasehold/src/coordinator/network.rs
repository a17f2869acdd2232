//! The engines behind a network: which scheme means which, and what their URLs have in common.
//!
//! Each engine reads its own settings out of a parsed [`Address`] and connects; nothing else here knows them. An engine
//! that this build was made without is named as missing, not as unknown.

use std::sync::Arc;

use leasehold_core::{Coordinator, Error, Kind, Namespace};

use crate::{address::Address, doctor::Finding};

/// An engine behind a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    Postgres,
    Redis,
    Redlock,
    Etcd,
}

impl Engine {
    /// The engine that a URL's scheme names.
    pub(crate) fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "postgres" | "postgresql" => Some(Self::Postgres),
            "redis" | "rediss" => Some(Self::Redis),
            "redlock" => Some(Self::Redlock),
            "etcd" | "etcds" => Some(Self::Etcd),
            _ => None,
        }
    }

    /// Judges an address without connecting.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for settings that the engine does not have or that contradict each other, [`Kind::Unsupported`]
    /// for an engine that this build does not have.
    pub(crate) fn check(address: &Address) -> Result<(), Error> {
        match Self::of_scheme(&address.scheme) {
            #[cfg(feature = "postgres")]
            Some(Self::Postgres) => super::postgres::Options::read(address).map(drop),
            #[cfg(feature = "redis")]
            Some(Self::Redis) => super::redis::Options::read(address).map(drop),
            #[cfg(feature = "redis")]
            Some(Self::Redlock) => super::redlock::Options::read(address).map(drop),
            #[cfg(feature = "etcd")]
            Some(Self::Etcd) => super::etcd::Options::read(address).map(drop),
            #[allow(unreachable_patterns, reason = "reached when an engine is left out of the build")]
            _ => Err(missing(&address.scheme)),
        }
    }

    /// Connects. Called on the driver's runtime, which has I/O and timers and lives as long as the coordinator.
    ///
    /// # Errors
    /// As the engine's own `connect`.
    #[allow(clippy::unused_async, reason = "each engine that is built in awaits")]
    pub(crate) async fn open(address: &Address, namespace: Namespace) -> Result<Arc<dyn Coordinator>, Error> {
        match Self::of_scheme(&address.scheme) {
            #[cfg(feature = "postgres")]
            Some(Self::Postgres) => {
                super::postgres::connect(super::postgres::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "redis")]
            Some(Self::Redis) => {
                super::redis::connect(super::redis::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "redis")]
            Some(Self::Redlock) => {
                super::redlock::connect(super::redlock::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "etcd")]
            Some(Self::Etcd) => super::etcd::connect(super::etcd::Options::read(address)?, namespace).await,
            #[allow(unreachable_patterns, reason = "reached when an engine is left out of the build")]
            _ => {
                drop(namespace);
                Err(missing(&address.scheme))
            }
        }
    }

    /// Looks at the deployment without changing it.
    ///
    /// # Errors
    /// As the engine's own `examine`.
    #[allow(clippy::unused_async, reason = "each engine that is built in awaits")]
    pub(crate) async fn examine(address: &Address, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
        match Self::of_scheme(&address.scheme) {
            #[cfg(feature = "postgres")]
            Some(Self::Postgres) => {
                super::postgres::examine(super::postgres::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "redis")]
            Some(Self::Redis) => {
                super::redis::examine(super::redis::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "redis")]
            Some(Self::Redlock) => {
                super::redlock::examine(super::redlock::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "etcd")]
            Some(Self::Etcd) => super::etcd::examine(super::etcd::Options::read(address)?, namespace).await,
            #[allow(unreachable_patterns, reason = "reached when an engine is left out of the build")]
            _ => {
                let _ = namespace;
                Err(missing(&address.scheme))
            }
        }
    }

    /// Removes all that is kept of a throwaway namespace. How many things that were.
    ///
    /// # Errors
    /// As the engine's own `discard`.
    #[allow(clippy::unused_async, reason = "each engine that is built in awaits")]
    pub(crate) async fn discard(address: &Address, namespace: &Namespace) -> Result<u64, Error> {
        match Self::of_scheme(&address.scheme) {
            #[cfg(feature = "postgres")]
            Some(Self::Postgres) => {
                super::postgres::discard(super::postgres::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "redis")]
            Some(Self::Redis) => {
                super::redis::discard(super::redis::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "redis")]
            Some(Self::Redlock) => {
                super::redlock::discard(super::redlock::Options::read(address)?, namespace).await
            }
            #[cfg(feature = "etcd")]
            Some(Self::Etcd) => super::etcd::discard(super::etcd::Options::read(address)?, namespace).await,
            #[allow(unreachable_patterns, reason = "reached when an engine is left out of the build")]
            _ => {
                let _ = namespace;
                Err(missing(&address.scheme))
            }
        }
    }
}

fn missing(scheme: &str) -> Error {
    Error::new(Kind::Unsupported, format!("this build has no {scheme} coordinator"))
        .advise("build with the feature of that engine, or use sqlite:PATH on a single machine")
}

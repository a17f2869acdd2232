//! The textbook recipes, for comparison: a key with an expiry, set if it is not there, and removed when the work is done. No
//! token, no check of whose it is, no clock. This is what people write on a free afternoon, and what `verify` must find
//! wanting.
//!
//! | engine | take | give back |
//! | --- | --- | --- |
//! | Redis, and the first server of a Redlock | `SET key 1 NX PX ttl` | `DEL key` |
//! | PostgreSQL, SQLite | insert, or take over where `expires_at` is past by the client's clock | `DELETE` the row |
//! | etcd | look; where there is nothing, put with a lease of the TTL | delete the key |

mod etcd;
mod postgres;
mod redis;
mod sqlite;

use std::{path::Path, time::Duration};

use leasehold::{LeaseId, Url, address::Address};

/// How long a server may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// What came of asking.
pub(super) enum Taken {
    Yes,
    No,
    /// The connection is gone.
    Lost,
}

/// A lock as the textbook has it.
pub(super) enum Lock {
    Redis(redis::Lock),
    Postgres(postgres::Lock),
    Sqlite(sqlite::Lock),
    Etcd(etcd::Lock),
}

/// The recipe for this engine. `namespace` keeps its keys apart from everybody's.
pub(super) async fn open(url: &str, namespace: &str, folder: &Path) -> Result<Lock, String> {
    match parsed(url)? {
        Url::Sqlite { .. } => Ok(Lock::Sqlite(sqlite::Lock::open(folder)?)),
        Url::Network(address) => of_network(&address, namespace).await,
        _ => Err("this engine has no textbook recipe".to_owned()),
    }
}

async fn of_network(address: &Address, namespace: &str) -> Result<Lock, String> {
    match address.scheme.as_str() {
        "redis" | "redlock" => Ok(Lock::Redis(redis::Lock::open(address, namespace)?)),
        _ if is_postgres(address) => Ok(Lock::Postgres(postgres::Lock::open(address, namespace).await?)),
        "etcd" => Ok(Lock::Etcd(etcd::Lock::open(address, namespace)?)),
        other => Err(format!("the textbook recipe is not made for {other}: it speaks without TLS")),
    }
}

impl Lock {
    /// Tries once.
    pub(super) async fn take(&mut self, resource: &str, id: LeaseId, ttl: Duration) -> Taken {
        match self {
            Self::Redis(lock) => lock.take(resource, id, ttl),
            Self::Postgres(lock) => lock.take(resource, id, ttl).await,
            Self::Sqlite(lock) => lock.take(resource, id, ttl),
            Self::Etcd(lock) => lock.take(resource, id, ttl),
        }
    }

    /// Gives it back, whoever has it by now.
    pub(super) async fn give_back(&mut self, resource: &str, _id: LeaseId) {
        match self {
            Self::Redis(lock) => lock.give_back(resource),
            Self::Postgres(lock) => lock.give_back(resource).await,
            Self::Sqlite(lock) => lock.give_back(resource),
            Self::Etcd(lock) => lock.give_back(resource),
        }
    }
}

/// Makes what the recipe needs on the engine, once for all workers, and sees that it can be used at all.
pub(super) async fn prepare(url: &str) -> Result<(), String> {
    match parsed(url)? {
        Url::Network(address) if is_postgres(&address) => postgres::prepare(&address).await,
        Url::Network(address) => of_network(&address, "").await.map(drop),
        _ => Ok(()),
    }
}

/// Removes it again. Keys that expire are left to expire.
pub(super) async fn clean(url: &str, namespace: &str) -> Result<(), String> {
    match parsed(url)? {
        Url::Network(address) if is_postgres(&address) => postgres::clean(&address, namespace).await,
        _ => Ok(()),
    }
}

fn parsed(url: &str) -> Result<Url, String> {
    Url::parse(url).map_err(|error| error.to_string())
}

fn is_postgres(address: &Address) -> bool {
    matches!(address.scheme.as_str(), "postgres" | "postgresql")
}

/// The first host of an address, with a port.
fn first_host(address: &Address, port: u16) -> Result<(String, u16), String> {
    let host = address.hosts.first().ok_or("the URL names no host")?;
    Ok((host.name.clone(), host.port.unwrap_or(port)))
}

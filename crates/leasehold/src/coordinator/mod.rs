//! The engines. Each keeps the contract of [`leasehold_core::coordinator`] in its own folder.

#[cfg(feature = "postgres")]
mod advisory;
#[cfg(feature = "etcd")]
pub mod etcd;
mod mailbox;
pub mod memory;
pub(crate) mod network;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
mod rules;
pub(crate) use rules::too_long;
#[cfg(feature = "sqlite")]
pub mod sqlite;

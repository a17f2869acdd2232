//! The engines. Each keeps the contract of [`leasehold_core::coordinator`] in its own folder.

mod mailbox;
pub mod memory;
mod rules;
#[cfg(feature = "sqlite")]
pub mod sqlite;

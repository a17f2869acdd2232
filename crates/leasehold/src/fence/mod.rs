//! Fences: the check at the resource, which makes a write that outlived its lease bounce.
//!
//! A holder may be paused between its last look at the clock and its write; no lease can stop what it then sends. The
//! resource can, because the successor has a higher fencing token. The rule is [`leasehold_core::fence`]; here it is applied
//! in one step with the write, wherever the data lives:
//!
//! | the data lives in | use |
//! | --- | --- |
//! | a PostgreSQL database | [`postgres::PostgresFence`] inside the transaction, or its SQL functions from any language |
//! | a SQLite database | [`sqlite::SqliteFence`] inside the transaction |
//! | a file that is replaced as a whole | a [`Draft`] placed in [`Fence::admit_and`], or `leasehold fence file` |
//! | Redis | [`redis::RedisFence`], whose script wraps the write |
//! | an HTTP service | [`http::FenceLayer`] at its door, and the fence of its database inside |
//! | this process's memory | [`Fence::over`] a [`MemoryFence`] |
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{Leases, fence::{Fence, MemoryFence}};
//!
//! let fence = Fence::over(MemoryFence::default());
//! let leases = Leases::connect("memory:").await?;
//! let lease = leases.lease("orders/42").acquire().await?;
//!
//! lease.seal(&fence).await?; // first: whoever held it before is shut out from now on
//! let read = 41; // only then read what the write depends on
//! fence.check(&lease.pass()).await?; // at the write
//! # let _ = read;
//! # Ok(())
//! # }
//! # leasehold::blocking::block_on(example()).unwrap();
//! ```

mod answer;
mod connect;
mod count;
mod file;
#[cfg(feature = "http")]
pub mod http;
mod memory;
mod policy;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod store;
#[cfg(feature = "tickets")]
pub mod tickets;

pub use answer::{NotAdmitted, Refused};
pub use count::{STALE_WRITE_REJECTED_TOTAL, stale_writes_rejected};
pub use file::Draft;
pub use leasehold_core::fence::{Ask, Bound, Mark, OpSeq, Pass, Refusal, Verdict};
pub use memory::MemoryFence;
pub use policy::Policy;
pub use store::{Fence, FenceStore, Work};

/// The guide, whose code is compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/fencing.md")]
mod guide {}

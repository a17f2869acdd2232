//! Time-bounded, renewable, fenced leases: distributed locks done right.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! let leases = leasehold::Leases::connect("memory:").await?;
//! let lease = leases.lease("orders/42").wait(Duration::from_secs(10)).acquire().await?;
//!
//! lease.check()?; // still mine? cheap enough to ask before every write
//! println!("write with fencing token {}", lease.token());
//!
//! lease.release().await?;
//! # Ok(())
//! # }
//! # leasehold::blocking::block_on(example()).unwrap();
//! ```
//!
//! A [`Lease`] is a time-bounded grant of a named resource. One driver thread per [`Leases`] renews all of them; the guard
//! tells, by this machine's own clocks and in good time, when it is lost. The fencing token goes along with every write,
//! so that the resource can refuse a holder that was paused for too long: no lease alone can promise that.
//!
//! Programs without an async runtime use [`blocking`].

mod acquisition;
pub mod address;
mod aside;
pub mod blocking;
mod cell;
pub mod checkpoint;
pub mod clock;
mod connect;
pub mod coordinator;
pub mod doctor;
mod driver;
// An effect is in a database: without one there is nothing to do.
#[cfg(all(feature = "effects", any(feature = "sqlite", feature = "postgres", feature = "redis")))]
pub mod effects;
pub mod election;
pub mod fence;
mod floors;
mod fork;
pub mod guarantees;
mod lease;
mod leases;
mod meter;
pub mod metric;
mod observe;
mod outcome;
pub mod preempt;
mod random;
mod request;
#[cfg(any(feature = "postgres", feature = "redis", all(feature = "webhook", feature = "sqlite")))]
mod room;
pub mod settings;
mod shared;
pub mod skip;
mod sync;
mod throwaway;
#[cfg(feature = "tls")]
pub mod tls;
mod vitals;
pub mod worker;

pub use connect::{ConnectBuilder, Url};
pub use lease::{Lease, LeaseHandle};
pub use leasehold_core::{
    self as core, Error, HolderId, Invalid, Kind, Label, LeaseId, Namespace, Resource, Token, Ttl,
    holder::{Belief, Loss, State},
    waiter::{Refusal, Wait},
};
pub use leases::Leases;
pub use outcome::{Done, Ended, NotAcquired, NotEnough, Outcome};
pub use request::LeaseRequest;
pub use throwaway::Throwaway;
pub use vitals::{Vital, Vitals};
pub use worker::Worker;

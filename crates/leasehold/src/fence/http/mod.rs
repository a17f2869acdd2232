//! The fence at the door of an HTTP service, and what its clients send: [tower](https://docs.rs/tower) layers, for any server
//! and any client.
//!
//! ```text
//! Fencing-Token: 1767323045678901; lease=000102030405060708090a0b0c0d0e0f; resource=orders%2F42
//! ```
//!
//! The parts are the token, the lease id and the [encoded](leasehold_core::Resource::encode) resource, and where needed
//! `namespace`, `seq` and `holder` (percent-encoded). A signed ticket stands in `Fencing-Ticket`.
//!
//! * **Server.** [`FenceLayer`] lets a request in or answers it with a problem (RFC 9457). Requests of the methods that change
//!   nothing need no token; with one they are judged like the others, so that a new holder's first read seals the resource.
//! * **Client.** [`TokenLayer`] adds the header, and sends nothing for a lease that is lost.
//!
//! **What the door closes.** A request is judged when it arrives, and waits until requests of older grants that were let in
//! before it are answered: within one process nothing older runs beside it. A service of several processes must check again where it
//! writes: the [`Pass`] is among the request's extensions, for the fence inside its transaction.

mod client;
mod door;
mod flight;
mod header;
mod problem;

pub use client::{NotSent, TokenLayer, TokenService};
pub use door::{FenceLayer, FenceService};
pub use header::{FENCING_TICKET, FENCING_TOKEN, put, read};

#[allow(unused_imports, reason = "named in the documentation")]
use super::Pass;

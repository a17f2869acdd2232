//! The pure heart of Leasehold.
//!
//! Everything that decides something lives here, and nothing here can act: this crate is `no_std`, so it cannot read a
//! clock, open a socket, start a task or draw a random number even by accident. Time arrives as an argument, randomness
//! as a number, ids as bytes. The same code therefore runs under a real engine, in a test, and in a simulator.
//!
//! Where to look:
//!
//! | question | module |
//! | --- | --- |
//! | what may a resource be called, and how is it written into a key? | [`name`] |
//! | what is a fencing token, and which one comes next? | [`token`] |
//! | until when may a holder believe? | [`window`], [`policy`] |
//! | what does a holder do when a renewal fails? | [`holder`] |
//! | when does a waiter ask again? | [`waiter`], [`backoff`] |
//! | who gets the resource, by the engine's own record? | [`slot`], [`line`](mod@line) |
//! | what do several independent nodes decide? | [`quorum`] |
//! | what must an engine promise? | [`coordinator`], [`profile`] |
//! | does a write count? | [`fence`], [`ticket`] |
//! | what went wrong, and what may the caller do? | [`error`] |
//! | how long should a TTL be? | [`derive_ttl`] |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod backoff;
pub mod coordinator;
pub mod derive_ttl;
pub mod error;
pub mod fence;
pub mod holder;
pub mod id;
pub mod line;
pub mod name;
pub mod policy;
pub mod profile;
pub mod quorum;
pub mod record;
pub mod request;
pub mod slot;
pub mod ticket;
pub mod token;
pub mod ttl;
pub mod waiter;
pub mod window;

pub use coordinator::{Call, Coordinator};
pub use error::{Error, Invalid, Kind};
pub use id::{HolderId, Label, LeaseId};
pub use name::{Namespace, Resource};
pub use token::Token;
pub use ttl::Ttl;

//! Redlock: several independent Redis servers, of which a majority decides.
//!
//! ```text
//!                     ┌──▶ node ─┐
//!   callers ──▶ task ─┼──▶ node ─┼──▶ a majority has spoken ──▶ answer
//!   (futures)         ├──▶ node ─┘        │
//!                     ├──▶ node (late)    └─ the rest is heard in the background
//!                     └──▶ node (dead)
//! ```
//!
//! The nodes do not know of one another. Each keeps leases by itself, with the scripts of [`super::redis`]; what is a grant is
//! decided here, by arithmetic that [`leasehold_core::quorum`] explains: a grant is what a majority has under one lease id and
//! one token. So it outlives the loss of any minority, and nobody waits for a node that is late.
//!
//! * **Tokens rise** because a majority stores a token before anybody is told of it. Each claim proposes one, a little ahead of
//!   the clock; a majority that takes the proposal makes it a grant in one round trip. Otherwise a second one has a token above
//!   all that the nodes offered stored by a majority.
//! * **Claims that meet** may each win some nodes and none a majority. Then one of them, the same in everybody's eyes, insists;
//!   the others give way and ask again after a random pause.
//! * **Memory that may be lost** is waited out by each node alone: it takes no part for the longest TTL.
//! * **Waiters have no order.** Each node wakes the one that it has known for longest, which is mostly the same one; whoever asks
//!   first gets it.
//!
//! | question | file |
//! | --- | --- |
//! | what does a URL say? | `options` |
//! | who is asked, and how are the nodes asked together? | `member`, `circle` |
//! | how is a claim granted? | `claim`, `votes`, `lead` |
//! | how is a grant kept, and ended? | `keep`, `end` |
//! | what do several nodes say together? | `merge`, `look` |
//! | what is promised here? | `label`, `examine` |
//! | how does a namespace for one run end? | `discard` |
//!
//! # Limits
//!
//! A forward step of the wall clocks of a majority ends leases early. Nodes that replicate one another, or fail over to
//! replicas, are not independent. A claim that found no majority may keep a node that did not answer busy for up to its TTL.

mod circle;
mod claim;
mod coordinator;
mod discard;
mod end;
mod examine;
mod join;
mod keep;
mod label;
mod lead;
mod look;
mod member;
mod merge;
mod options;
mod purge;
#[cfg(test)]
mod tests;
mod votes;

pub(crate) use self::label::deployments;
use std::sync::Arc;

use leasehold_core::{Coordinator, Error, Namespace};

pub(crate) use self::discard::discard;
pub use self::{examine::examine, options::Options};

/// Connects. To be called on a runtime that outlives the coordinator: its connections live there.
///
/// # Errors
/// [`Kind::Unavailable`](leasehold_core::Kind::Unavailable) when no majority can be reached within 5 s;
/// [`Kind::Invalid`](leasehold_core::Kind::Invalid) when two of the names lead to one server, and for files that cannot be read;
/// what the nodes answer when a majority refuses this client, or is no place for leases.
pub async fn connect(options: Options, namespace: Namespace) -> Result<Arc<dyn Coordinator>, Error> {
    let place = options.place.clone();
    let coordinator =
        join::connect(options, namespace).await.map_err(|error| error.without_effect().at(&place))?;
    Ok(Arc::new(coordinator))
}

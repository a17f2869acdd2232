//! Requests that were let in and are not answered yet. A later grant's request waits for those of earlier ones, so that inside
//! one process what was let in first has also written first.
//!
//! A request is entered here *before* the fence is asked, and looks for older ones *after* it was let in: whoever the fence
//! let in before it is in the list by then, and whoever comes later with an older token is refused by the fence.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use leasehold_core::{Namespace, Resource, fence::Pass};
use tokio::sync::Notify;

use crate::sync::lock;

/// Token, and number within the grant: 0 without one.
type Rank = (u64, u64);

#[derive(Debug, Default)]
struct Board {
    flying: HashMap<(Namespace, Resource), BTreeMap<Rank, usize>>,
}

/// All requests under way. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights {
    board: Arc<Mutex<Board>>,
    landed: Arc<Notify>,
}

/// One of them; ends when dropped.
#[derive(Debug)]
pub(super) struct Flight {
    flights: Flights,
    key: (Namespace, Resource),
    rank: Rank,
}

impl Flights {
    /// Enters a request.
    pub(super) fn enter(&self, pass: &Pass) -> Flight {
        let key = (pass.namespace.clone(), pass.resource.clone());
        let rank = (pass.token.get(), pass.op_seq.map_or(0, leasehold_core::fence::OpSeq::get));
        *lock(&self.board).flying.entry(key.clone()).or_default().entry(rank).or_default() += 1;
        Flight { flights: self.clone(), key, rank }
    }
}

impl Flight {
    /// Ready when no request of a lower rank is under way.
    pub(super) async fn alone(&self) {
        loop {
            let mut landed = std::pin::pin!(self.flights.landed.notified());
            // Registered before looking, so that nothing is missed in between.
            landed.as_mut().enable();
            let first = {
                let board = lock(&self.flights.board);
                board.flying.get(&self.key).and_then(|ranks| ranks.keys().next().copied())
            };
            if first.is_none_or(|first| first >= self.rank) {
                return;
            }
            landed.await;
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut board = lock(&self.flights.board);
        if let Some(ranks) = board.flying.get_mut(&self.key) {
            if let Some(count) = ranks.get_mut(&self.rank) {
                *count -= 1;
                if *count == 0 {
                    ranks.remove(&self.rank);
                }
            }
            if ranks.is_empty() {
                board.flying.remove(&self.key);
            }
        }
        drop(board);
        self.flights.landed.notify_waiters();
    }
}

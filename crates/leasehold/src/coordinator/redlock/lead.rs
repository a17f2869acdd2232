//! How far ahead of this machine's clock a claim proposes its token.
//!
//! A node takes the proposed token if it is above what the node has stored and not behind its clock; a majority that takes the
//! same one saves the second phase. So the proposal is ahead by what a request takes to arrive and by what the nodes' clocks
//! are ahead of ours, and this learns how much that is. It decides nothing: a proposal that is not taken costs a round trip.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Token, token::NoToken};

use crate::clock;

/// The smallest lead, µs (ours: many times what a request takes on a quiet network).
const LEAST: u64 = 5_000;
/// The largest, µs (ours: nodes whose clocks are further ahead cost a round trip; the script takes no more than a second).
const MOST: u64 = 200_000;
/// What is added to what was just too little, µs.
const MARGIN: u64 = 2_000;
/// What a lead loses at every use, so that one late request is forgotten after some thousands.
const FADE: u64 = 2_048;

/// A lead, µs.
#[derive(Debug)]
pub(super) struct Lead(AtomicU64);

impl Default for Lead {
    fn default() -> Self {
        Self(AtomicU64::new(LEAST))
    }
}

/// A token that is proposed, and when that was, µs of this machine's wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposal {
    pub(super) token: Token,
    at_us: u64,
}

impl Lead {
    /// A token to propose, above `floor` where the clocks allow it.
    pub(super) fn propose(&self, floor: Option<Token>) -> Result<Proposal, NoToken> {
        let at_us = clock::unix_us();
        let lead = self.0.load(Ordering::Relaxed);
        self.0.store(lead.saturating_sub((lead - LEAST.min(lead)) / FADE), Ordering::Relaxed);
        // What this machine takes for a wild floor may be none by the nodes' clocks: they judge it.
        let token = Token::next(None, floor, at_us.saturating_add(lead));
        Ok(Proposal { token: token.or(floor.ok_or(NoToken::Exhausted))?, at_us })
    }

    /// A node gave a token of its own because its clock showed more than was proposed.
    pub(super) fn behind(&self, proposal: Proposal, node_us: u64) {
        let needed = node_us.saturating_sub(proposal.at_us).saturating_add(MARGIN);
        if node_us > proposal.token.get() && needed <= MOST {
            self.0.fetch_max(needed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_ahead_of_the_clock_and_above_the_floor() {
        let lead = Lead::default();
        let first = lead.propose(None).unwrap();
        assert_eq!(first.token.get(), first.at_us + LEAST);
        let floor = Token::new(first.token.get() + 60_000_000).unwrap();
        assert_eq!(lead.propose(Some(floor)).unwrap().token.get(), floor.get() + 1);
        let wild = Token::new(Token::MAX).unwrap();
        assert_eq!(lead.propose(Some(wild)).unwrap().token, wild);
    }

    #[test]
    fn the_lead_follows_the_nodes_clocks_within_bounds_and_fades() {
        let lead = Lead::default();
        let first = lead.propose(None).unwrap();
        lead.behind(first, first.at_us + 60_000);
        let second = lead.propose(None).unwrap();
        assert_eq!(second.token.get() - second.at_us, 60_000 + MARGIN);
        lead.behind(second, second.at_us + 10 * MOST);
        for _ in 0..100_000 {
            lead.propose(None).unwrap();
        }
        let last = lead.propose(None).unwrap();
        assert!((LEAST..LEAST + FADE).contains(&(last.token.get() - last.at_us)), "{last:?}");
    }
}

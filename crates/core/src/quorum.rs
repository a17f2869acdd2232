//! The arithmetic of several independent nodes of which a majority decides.
//!
//! No node knows of another. What a majority has in common is what counts: any two majorities share a node, and that node
//! keeps its own order. So two grants of one resource meet on a node that gave the later one only after the earlier one had
//! ended there.
//!
//! # One token from many offers
//!
//! Each node gives a token of its own, and the highest of them is *not* above those of all earlier grants: the node that an
//! earlier majority shares with this one may be among those that offered less than the earlier grant's token. A token orders
//! grants only if a majority has *stored* it. Hence the two phases: gather a majority of offers, choose a token above all of
//! them, and let a majority store it. Where a majority has stored one and the same token at once, because the claimant
//! proposed it and they could take it, the second phase would change nothing and is left out.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    error::Invalid,
    token::{NoToken, Token},
};

/// How many nodes there are, and how many of them decide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quorum(usize);

/// What one node has given to a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The token that it has stored for the claim.
    pub token: Token,
    /// True when this token is not the node's own: it was proposed by the claimant, or agreed on before.
    pub settled: bool,
}

/// What follows from the offers so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// They are no majority.
    TooFew,
    /// A majority has stored this token: it is the grant's.
    Stands(Token),
    /// This token is above all offers. It is the grant's once a majority has stored it.
    Raise(Token),
}

impl Quorum {
    /// The fewest nodes: of two, both would have to live.
    pub const MIN: usize = 3;
    /// The most nodes (ours: every operation asks all of them).
    pub const MAX: usize = 15;

    /// So many nodes.
    ///
    /// # Errors
    /// [`Invalid`] unless it is an odd number from 3 to 15. An even number survives no more losses than the odd one below it.
    pub const fn of(nodes: usize) -> Result<Self, Invalid> {
        if nodes >= Self::MIN && nodes <= Self::MAX && nodes % 2 == 1 {
            return Ok(Self(nodes));
        }
        Err(Invalid::new("the number of independent nodes", "must be odd, from 3 to 15"))
    }

    /// How many nodes there are.
    pub const fn nodes(self) -> usize {
        self.0
    }

    /// How many decide: more than half.
    pub const fn majority(self) -> usize {
        self.0 / 2 + 1
    }

    /// How many can be lost.
    pub const fn minority(self) -> usize {
        self.0 - self.majority()
    }

    /// For how long at least a majority has what these nodes have for so long; `None` when they are no majority.
    pub fn lasts(self, each: impl IntoIterator<Item = Duration>) -> Option<Duration> {
        let mut each: Vec<Duration> = each.into_iter().collect();
        each.sort_unstable_by(|a, b| b.cmp(a));
        each.get(self.majority() - 1).copied()
    }

    /// In how long a majority is ready when so many are now and the others after these times; `None` when they never are.
    pub fn opens(self, ready: usize, others: impl IntoIterator<Item = Duration>) -> Option<Duration> {
        let Some(more) = self.majority().checked_sub(ready + 1) else { return Some(Duration::ZERO) };
        let mut others: Vec<Duration> = others.into_iter().collect();
        others.sort_unstable();
        others.get(more).copied()
    }

    /// The token of a claim with these offers.
    ///
    /// # Errors
    /// [`NoToken::Exhausted`] when nothing is above them.
    pub fn choose(self, offers: &[Offer]) -> Result<Choice, NoToken> {
        if offers.len() < self.majority() {
            return Ok(Choice::TooFew);
        }
        let having =
            |token: Token| offers.iter().filter(|offer| offer.settled && offer.token == token).count();
        if let Some(offer) = offers.iter().find(|offer| having(offer.token) >= self.majority()) {
            return Ok(Choice::Stands(offer.token));
        }
        let highest = offers.iter().map(|offer| offer.token.get()).max().unwrap_or_default();
        Token::new(highest + 1).map(Choice::Raise).map_err(|_| NoToken::Exhausted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(value: u64) -> Token {
        Token::new(value).unwrap()
    }

    #[test]
    fn only_odd_numbers_of_nodes_make_sense() {
        let good: Vec<usize> = (0..20).filter(|&nodes| Quorum::of(nodes).is_ok()).collect();
        assert_eq!(good, [3, 5, 7, 9, 11, 13, 15]);
    }

    proptest! {
        #[test]
        fn two_majorities_always_meet(half in 1usize..=7) {
            let quorum = Quorum::of(2 * half + 1).unwrap();
            prop_assert!(2 * quorum.majority() > quorum.nodes());
            prop_assert_eq!(quorum.majority() + quorum.minority(), quorum.nodes());
        }

        #[test]
        fn a_majority_has_it_for_so_long(half in 1usize..=7, times in proptest::collection::vec(0u64..100, 0..15)) {
            let quorum = Quorum::of(2 * half + 1).unwrap();
            let times: Vec<Duration> = times.into_iter().take(quorum.nodes()).map(Duration::from_secs).collect();
            let still = |at: Duration| times.iter().filter(|&&left| left >= at).count();
            match quorum.lasts(times.iter().copied()) {
                Some(lasts) => {
                    prop_assert!(still(lasts) >= quorum.majority());
                    prop_assert!(still(lasts + Duration::from_nanos(1)) < quorum.majority());
                }
                None => prop_assert!(times.len() < quorum.majority()),
            }
            for ready in 0..=quorum.nodes() - times.len() {
                let by = |at: Duration| ready + times.iter().filter(|&&left| left <= at).count();
                match quorum.opens(ready, times.iter().copied()) {
                    Some(at) => prop_assert!(by(at) >= quorum.majority()),
                    None => prop_assert!(ready + times.len() < quorum.majority()),
                }
            }
        }

        #[test]
        fn a_token_is_stored_by_a_majority_or_above_every_offer(
            half in 1usize..=7,
            offers in proptest::collection::vec((1u64..6, any::<bool>()), 0..15),
        ) {
            let quorum = Quorum::of(2 * half + 1).unwrap();
            let offers: Vec<Offer> = offers
                .into_iter()
                .take(quorum.nodes())
                .map(|(value, settled)| Offer { token: token(value), settled })
                .collect();
            match quorum.choose(&offers).unwrap() {
                Choice::TooFew => prop_assert!(offers.len() < quorum.majority()),
                Choice::Stands(stands) => {
                    let same = |offer: &&Offer| offer.token == stands && offer.settled;
                    prop_assert!(offers.iter().filter(same).count() >= quorum.majority());
                }
                Choice::Raise(raised) => {
                    prop_assert!(offers.len() >= quorum.majority());
                    prop_assert!(offers.iter().all(|offer| offer.token < raised));
                }
            }
        }
    }

    #[test]
    fn equal_offers_that_nobody_proposed_are_not_a_token() {
        let quorum = Quorum::of(3).unwrap();
        let own = Offer { token: token(7), settled: false };
        assert_eq!(quorum.choose(&[own; 3]), Ok(Choice::Raise(token(8))));
        assert_eq!(quorum.choose(&[Offer { settled: true, ..own }; 2]), Ok(Choice::Stands(token(7))));
        let last = Offer { token: token(Token::MAX), settled: false };
        assert_eq!(quorum.choose(&[last; 2]), Err(NoToken::Exhausted));
    }
}

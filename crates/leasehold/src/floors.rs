//! The highest fencing token this client has seen per resource.
//!
//! Sent with every claim, so that an engine which lost its counter still grants a higher one; compared with every grant, so
//! that a token which went back is never used. Kept in two generations, so that a client which meets millions of
//! resources does not remember them all: what it forgets, the engine's own counter and time floor still cover.

use std::{collections::HashMap, mem, sync::Mutex};

use leasehold_core::{Resource, Token};

use crate::sync::lock;

/// Resources per generation (ours: about a megabyte in all).
const GENERATION: usize = 8_192;

/// What this client knows of tokens.
#[derive(Debug, Default)]
pub(crate) struct Floors(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Resource, Token>,
    old: HashMap<Resource, Token>,
}

impl Floors {
    /// The highest token known for `resource`.
    pub(crate) fn get(&self, resource: &Resource) -> Option<Token> {
        let known = lock(&self.0);
        known.young.get(resource).or_else(|| known.old.get(resource)).copied()
    }

    /// Learns of a token.
    pub(crate) fn raise(&self, resource: &Resource, token: Token) {
        let mut known = lock(&self.0);
        let before = known.young.get(resource).or_else(|| known.old.get(resource)).copied();
        let highest = before.map_or(token, |before| before.max(token));
        if let Some(young) = known.young.get_mut(resource) {
            *young = highest;
            return;
        }
        if known.young.len() >= GENERATION {
            known.old = mem::take(&mut known.young);
        }
        known.young.insert(resource.clone(), highest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_rises_never_falls_and_memory_is_bounded() {
        let floors = Floors::default();
        let resource = |n: usize| Resource::new(&format!("r{n}")).unwrap();
        let token = |n: u64| Token::new(n).unwrap();
        floors.raise(&resource(0), token(9));
        floors.raise(&resource(0), token(3));
        assert_eq!(floors.get(&resource(0)), Some(token(9)));
        (1..=GENERATION).for_each(|n| floors.raise(&resource(n), token(1)));
        floors.raise(&resource(0), token(4));
        assert_eq!(floors.get(&resource(0)), Some(token(9)), "an old floor still counts");
        (1..=3 * GENERATION).for_each(|n| floors.raise(&resource(n), token(1)));
        let known = lock(&floors.0);
        assert!(known.young.len() + known.old.len() <= 2 * GENERATION);
    }
}

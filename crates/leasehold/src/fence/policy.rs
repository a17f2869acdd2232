//! What a fence asks of a token before it compares it: that it is not absurd, and, where keys are given, that it is signed.

use leasehold_core::{
    Token,
    fence::{Bound, Pass, Refusal},
};

#[cfg(feature = "tickets")]
use super::tickets::Keyring;

/// What a fence asks of a token beside being the highest. The default bounds it and asks for no ticket.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    bound: Bound,
    #[cfg(feature = "tickets")]
    keys: Option<Keyring>,
}

impl Policy {
    /// How far a token may lie ahead of the fence's clock; [`Bound::NONE`] where that clock cannot be trusted.
    #[must_use]
    pub fn bound(mut self, bound: Bound) -> Self {
        self.bound = bound;
        self
    }

    /// Believes signed tokens alone, and these keys. A pass without a ticket is refused from now on.
    #[cfg(feature = "tickets")]
    #[must_use]
    pub fn signed_by(mut self, keys: Keyring) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Judges what a write shows, at `now_us` (µs since 1970).
    pub(crate) fn judge(&self, pass: &Pass, now_us: u64) -> Result<(), Refusal> {
        #[cfg(feature = "tickets")]
        if let Some(keys) = &self.keys {
            keys.verify(pass, now_us)?;
        }
        self.judge_token(pass.token, now_us)
    }

    /// Judges a bare token.
    pub(crate) fn judge_token(&self, token: Token, now_us: u64) -> Result<(), Refusal> {
        self.bound.check(token, now_us)
    }
}

//! Fencing tokens: the number of a grant, strictly rising per resource for ever.
//!
//! The next token is *time-floored*: `max(stored + 1, floor + 1, now in µs)`. A lost counter alone, or a clock set back
//! alone, cannot make it regress; both would have to happen together. Today's microseconds are about 1.8·10^15, well
//! below the bound of 2^53−1 (reached in the year 2255), so a token is exact in JSON, Lua and JavaScript.

use core::{fmt, num::NonZeroU64, str::FromStr};

use crate::error::Invalid;

/// How far a caller's floor may lie above both the stored token and the engine's clock (ours: ten minutes). A floor
/// beyond it would poison the number line for everyone, so it is refused.
pub const MAX_FLOOR_LEAD_US: u64 = 10 * 60 * 1_000_000;

/// The number of a grant: 1 … 2^53−1. Constant through renewals, higher at every later grant of the same resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(NonZeroU64);

impl Token {
    /// 2^53−1: the largest integer that JSON and Lua doubles carry exactly.
    pub const MAX: u64 = (1 << 53) - 1;

    /// Takes a number.
    ///
    /// # Errors
    /// [`Invalid`] when it is 0 or above [`Token::MAX`].
    pub const fn new(value: u64) -> Result<Self, Invalid> {
        match NonZeroU64::new(value) {
            Some(value) if value.get() <= Self::MAX => Ok(Self(value)),
            _ => Err(Invalid::new("fencing token", "must be a whole number from 1 to 9007199254740991")),
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The token of the next grant, from the highest one `stored` for the resource, the highest one the caller has
    /// seen (`floor`) and the engine's wall clock in microseconds since 1970.
    ///
    /// # Errors
    /// [`NoToken`] when the number line is used up, or when `floor` is further ahead than [`MAX_FLOOR_LEAD_US`].
    pub fn next(stored: Option<Self>, floor: Option<Self>, now_us: u64) -> Result<Self, NoToken> {
        let stored = stored.map_or(0, Self::get);
        let floor = floor.map_or(0, Self::get);
        let limit = stored.max(now_us).saturating_add(MAX_FLOOR_LEAD_US);
        if floor > limit {
            return Err(NoToken::WildFloor { floor, limit });
        }
        // None of these can overflow: each is at most 2^53 after the check above and the type's bound.
        let next = (stored + 1).max(floor + 1).max(now_us.min(Self::MAX));
        Self::new(next).map_err(|_| NoToken::Exhausted)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

impl FromStr for Token {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        // `u64::from_str` also takes a leading '+', which would give one token two spellings.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = if digits { text.parse().unwrap_or(0) } else { 0 };
        Self::new(value)
    }
}

/// Why no further token can be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoToken {
    /// The counter stands at 2^53−1. Nothing wraps: the resource can have no further grant under this name.
    #[error("the resource's fencing tokens are used up (2^53-1 was given); use another resource name")]
    Exhausted,
    /// The caller claims to have seen a token that no grant can have had yet.
    #[error(
        "the caller says it has seen fencing token {floor}, more than ten minutes ahead of anything this engine could have given \
         (limit {limit}); check the clocks, or raise the token by hand if the engine lost its memory"
    )]
    WildFloor {
        /// What the caller claims to have seen.
        floor: u64,
        /// The highest floor that is believed.
        limit: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(value: u64) -> Token {
        Token::new(value).unwrap()
    }

    proptest! {
        #[test]
        fn the_next_token_is_above_everything_known(
            stored in proptest::option::of(1..=Token::MAX),
            floor in proptest::option::of(1..=Token::MAX),
            now_us in 0..=u64::MAX,
        ) {
            let (stored, floor) = (stored.map(token), floor.map(token));
            match Token::next(stored, floor, now_us) {
                Ok(next) => {
                    prop_assert!(stored.is_none_or(|s| next > s));
                    prop_assert!(floor.is_none_or(|f| next > f));
                    prop_assert!(next.get() >= now_us.min(Token::MAX));
                }
                Err(NoToken::Exhausted) => prop_assert!(
                    stored == Some(token(Token::MAX)) || floor == Some(token(Token::MAX))
                ),
                Err(NoToken::WildFloor { limit, .. }) => prop_assert!(floor.unwrap().get() > limit),
            }
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            if let Ok(parsed) = text.parse::<Token>() {
                prop_assert!(parsed.get() <= Token::MAX);
            }
        }
    }

    #[test]
    fn tokens_never_wrap() {
        assert_eq!(Token::next(Some(token(Token::MAX)), None, 5), Err(NoToken::Exhausted));
        assert_eq!(Token::next(Some(token(Token::MAX - 1)), None, 5), Ok(token(Token::MAX)));
        for bad in ["0", "-1", "+1", "", " 1", "9007199254740992", "99999999999999999999", "1.0"] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_clock_set_back_or_a_lost_counter_alone_does_not_make_a_token_regress() {
        let before = Token::next(None, None, 1_800_000_000_000_000).unwrap();
        assert!(Token::next(Some(before), None, 1_000).unwrap() > before);
        assert!(Token::next(None, None, 1_800_000_000_000_001).unwrap() > before);
    }

    #[test]
    fn a_wild_floor_is_refused() {
        let now_us = 1_800_000_000_000_000;
        let fine = token(now_us + MAX_FLOOR_LEAD_US);
        assert!(Token::next(None, Some(fine), now_us).is_ok());
        assert!(matches!(
            Token::next(None, Some(token(fine.get() + 1)), now_us),
            Err(NoToken::WildFloor { .. })
        ));
    }
}

//! How long what was answered stays true, which is not the same everywhere: a type of effects says it, so that nobody has to guess.

use std::fmt;

/// What an answer is worth when the server that has given it dies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Durability {
    /// What was answered is committed: it survives whatever the database's own commits survive.
    Committed,
    /// Effect, key, response and events live or die together, but the server may forget them after it has answered.
    Forgettable,
}

impl Durability {
    /// One stable lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Forgettable => "forgettable",
        }
    }

    /// What it means, in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Committed => {
                "effect, key, response and events are one transaction: what was answered survives what the database's commits survive"
            }
            Self::Forgettable => {
                "effect, key, response and events are one step and live or die together; but a failover, or a crash without appendfsync \
                 always, may forget what was answered, and a repetition is then carried out again"
            }
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

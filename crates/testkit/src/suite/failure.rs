//! How a case says what it saw.

use std::fmt;

use leasehold_core::{Error, Invalid};

/// What a case ends with.
pub type Verdict = Result<(), Failure>;

/// Why a case failed, in a sentence that names what was expected and what came.
#[derive(Clone, Debug)]
pub struct Failure {
    text: String,
    too_slow: bool,
}

impl Failure {
    /// A failure that says `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), too_slow: false }
    }

    /// The machine was too slow for this attempt to mean anything.
    pub(crate) fn too_slow(text: impl Into<String>) -> Self {
        Self { text: text.into(), too_slow: true }
    }

    pub(crate) fn is_too_slow(&self) -> bool {
        self.too_slow
    }

    /// The same failure, with what was being tried in front.
    #[must_use]
    pub fn while_(mut self, trying: impl fmt::Display) -> Self {
        self.text = format!("{trying}: {}", self.text);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(format!("the coordinator failed: {error}"))
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::new(format!("the case itself is wrong: {invalid}"))
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::suite::Failure::new(format!($($message)+)));
        }
    };
}

/// Fails the case unless both are equal; shows them.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($message:tt)+) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            let what = format!($($message)+);
            return Err($crate::suite::Failure::new(format!("{what}: got {left:?}, expected {right:?}")));
        }
    }};
}

/// Fails the case unless the value has this form; gives what the pattern binds.
macro_rules! ensure_let {
    ($pattern:pat = $value:expr => $out:expr, $($message:tt)+) => {
        match $value {
            $pattern => $out,
            #[allow(unreachable_patterns, reason = "some enums of the contract may grow")]
            other => {
                let what = format!($($message)+);
                return Err($crate::suite::Failure::new(format!("{what}: got {other:?}")));
            }
        }
    };
}

pub(crate) use {ensure, ensure_eq, ensure_let};

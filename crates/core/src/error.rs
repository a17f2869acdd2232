//! Errors, grouped by what the caller may do next.
//!
//! "Held by another" is an answer, not an error, and lives in [`crate::record`]. An [`Error`] means that the question
//! could not be asked, or that nobody knows what became of it; these two are never folded into one another, and neither
//! is folded into yes or no.

use alloc::{borrow::Cow, string::String};
use core::fmt;

use crate::name::Resource;

/// A value that was refused before anything was sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {problem}")]
pub struct Invalid {
    what: &'static str,
    problem: Cow<'static, str>,
}

impl Invalid {
    /// `what problem`, as in "TTL must be between 50ms and 7d".
    pub const fn new(what: &'static str, problem: &'static str) -> Self {
        Self { what, problem: Cow::Borrowed(problem) }
    }

    /// The same with a problem that names figures.
    pub fn with(what: &'static str, problem: String) -> Self {
        Self { what, problem: Cow::Owned(problem) }
    }

    /// Which value was refused.
    pub const fn what(&self) -> &'static str {
        self.what
    }
}

/// What the caller may do next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// Certainly no effect: the request never reached the engine, or the engine refused to begin. Ask again.
    Unavailable,
    /// The request may have taken effect. Repeat it only with the same lease id, or give the claim up.
    Unknown,
    /// The engine refuses this caller (credentials, permissions). Asking again will not help.
    Denied,
    /// This engine, or this build, cannot do it. Nothing is emulated.
    Unsupported,
    /// A value is out of bounds or settings contradict each other. Nothing was sent.
    Invalid,
    /// The engine broke an invariant (a damaged store, a token that went back). Stop and page somebody.
    Corrupt,
}

impl Kind {
    /// One stable lower-case word, for logs and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::Invalid => "invalid",
            Self::Corrupt => "corrupt",
        }
    }

    /// What a failure of this kind means for the lease it was about.
    const fn meaning(self) -> &'static str {
        match self {
            Self::Unavailable => "nothing was changed",
            Self::Unknown => "it may or may not have taken effect",
            Self::Denied | Self::Unsupported | Self::Invalid => "nothing was done",
            Self::Corrupt => "nothing this engine says can be trusted until it is repaired",
        }
    }
}

/// What happened, on which resource and engine, what it means for the lease, and what to do next.
///
/// Carries no secret: `place` is a display form of the engine's address that its coordinator has cleaned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    resource: Option<Resource>,
    place: Option<String>,
    advice: Option<Cow<'static, str>>,
}

impl Error {
    /// An error that says `what` happened, in a few words without a final stop.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), resource: None, place: None, advice: None }
    }

    /// Adds the resource it is about, unless one is named already.
    #[must_use]
    pub fn on(mut self, resource: &Resource) -> Self {
        self.resource.get_or_insert_with(|| resource.clone());
        self
    }

    /// Adds the engine and its place (`sqlite:/var/lib/leasehold/leases.db`), unless named already. Must be free of secrets.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.place.get_or_insert_with(|| place.into());
        self
    }

    /// Adds what to do next, as a sentence without a final stop.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<Cow<'static, str>>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The same error where the caller has since made sure that nothing was changed (it was a read, or was taken back).
    #[must_use]
    pub fn without_effect(mut self) -> Self {
        if self.kind == Kind::Unknown {
            self.kind = Kind::Unavailable;
        }
        self
    }

    /// The same error where an earlier attempt of the same request may have taken effect.
    #[must_use]
    pub fn unknown(mut self) -> Self {
        self.kind = Kind::Unknown;
        self
    }

    /// What the caller may do next.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What happened.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The resource it is about, where there is one.
    pub fn resource(&self) -> Option<&Resource> {
        self.resource.as_ref()
    }

    /// What to do next, where there is something.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// True when asking again, unchanged, may help.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::Unknown)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match (&self.resource, &self.place) {
            (Some(resource), Some(place)) => write!(f, " (resource {resource}, on {place})")?,
            (Some(resource), None) => write!(f, " (resource {resource})")?,
            (None, Some(place)) => write!(f, " (on {place})")?,
            (None, None) => {}
        }
        write!(f, ": {}", self.kind.meaning())?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Error {}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        use alloc::string::ToString as _;
        Self::new(Kind::Invalid, invalid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_error_says_what_where_meaning_and_next_step() {
        let error = Error::new(Kind::Unknown, "no answer to the acquire within 5s")
            .on(&Resource::new("orders/42").unwrap())
            .at("sqlite:/tmp/leases.db")
            .advise("the same claim is asked again until the wait ends");
        assert_eq!(
            error.to_string(),
            "no answer to the acquire within 5s (resource orders/42, on sqlite:/tmp/leases.db): it may or may not have \
             taken effect; the same claim is asked again until the wait ends"
        );
    }

    #[test]
    fn only_unavailable_and_unknown_may_be_asked_again() {
        let kinds =
            [Kind::Unavailable, Kind::Unknown, Kind::Denied, Kind::Unsupported, Kind::Invalid, Kind::Corrupt];
        let transient = kinds.map(|kind| Error::new(kind, "x").is_transient());
        assert_eq!(transient, [true, true, false, false, false, false]);
    }
}

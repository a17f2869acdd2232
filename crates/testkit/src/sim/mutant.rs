//! Faults of design, to be switched on one at a time: each was made by somebody in earnest. A simulator that does not notice
//! one of them would not notice it in the real code either.

/// One fault of design.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mutant {
    /// The holder counts its window from the answer.
    MeasureFromReply,
    /// The new holder reads before the resource knows its token.
    NoSeal,
    /// The fence takes higher tokens only, and so refuses the holder's second write.
    FenceLt,
    /// The engine renews for whoever bears the holder's label.
    RenewByLabel,
    /// An engine that lost its memory grants at once.
    NoQuarantine,
    /// Tokens are counted, and not floored by time or by what claimants have seen.
    NoFloor,
    /// A majority's highest token is taken as it is, without a second step.
    RedlockOnePhase,
    /// A lost lease comes back with a late answer.
    Resurrect,
    /// The engine ends whatever lease the resource has.
    ReleaseByName,
    /// A claim without an answer counts as refused.
    CancelIsFailure,
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant::MeasureFromReply,
    Mutant::NoSeal,
    Mutant::FenceLt,
    Mutant::RenewByLabel,
    Mutant::NoQuarantine,
    Mutant::NoFloor,
    Mutant::RedlockOnePhase,
    Mutant::Resurrect,
    Mutant::ReleaseByName,
    Mutant::CancelIsFailure,
];

impl Mutant {
    /// The broken coordinator of [`crate::broken`] that breaks the same, where it is the engine that is at fault: the
    /// conformance suite catches that one.
    pub const fn twin(self) -> Option<&'static str> {
        match self {
            Self::RenewByLabel => Some("RenewsByTokenAlone"),
            Self::NoQuarantine => Some("ForgetsInSilence"),
            Self::NoFloor => Some("IgnoresTheFloor"),
            Self::ReleaseByName => Some("ReleasesByNameAlone"),
            _ => None,
        }
    }

    /// Its name, as the command line takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MeasureFromReply => "measure_from_reply",
            Self::NoSeal => "no_seal",
            Self::FenceLt => "fence_lt",
            Self::RenewByLabel => "renew_by_label",
            Self::NoQuarantine => "no_quarantine",
            Self::NoFloor => "no_floor",
            Self::RedlockOnePhase => "redlock_one_phase",
            Self::Resurrect => "resurrect",
            Self::ReleaseByName => "release_by_name",
            Self::CancelIsFailure => "cancel_is_failure",
        }
    }
}

//! What is questionable about a derived TTL. A finding never changes a figure; it says why not to trust one blindly.

use alloc::vec::Vec;
use core::{fmt, time::Duration};

use super::{Component, DRIFT_RANGE, Figure, Inputs};
use crate::ttl::Ttl;

/// Something that whoever sets the TTL should know. Its text says what, and what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// A needed input is zero: more likely not measured than instant.
    Zero(Component),
    /// The pauses of the holder's process were not measured and count as zero.
    PauseUnknown,
    /// The drift buffer is neither zero nor within 50 … 200 ms.
    DriftOutOfRange(Duration),
    /// A drift buffer shorter than what two clocks may diverge over the TTL, 2ρT.
    DriftBelowRate {
        /// The drift buffer.
        drift: Duration,
        /// 2ρT of the covering TTL.
        diverge: Duration,
    },
    /// The covering TTL, less the clock margin, does not cover the work and a round trip.
    WindowBelowWork {
        /// What the holder has.
        window: Duration,
        /// What the work and a round trip take.
        needs: Duration,
    },
    /// The TTL that covers the work is shorter than the smallest that can be renewed reliably.
    CoveringBelowRenewed,
    /// The covering TTL is above what the namespace allows.
    CoveringAboveMax(Ttl),
    /// The renewed TTL is above what the namespace allows.
    RenewedAboveMax(Ttl),
}

impl Finding {
    /// One stable lower-case word, for JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Zero(_) => "zero_input",
            Self::PauseUnknown => "pause_unknown",
            Self::DriftOutOfRange(_) => "drift_out_of_range",
            Self::DriftBelowRate { .. } => "drift_below_rate",
            Self::WindowBelowWork { .. } => "window_below_work",
            Self::CoveringBelowRenewed => "covering_below_renewed",
            Self::CoveringAboveMax(_) => "covering_above_max",
            Self::RenewedAboveMax(_) => "renewed_above_max",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero(component) => {
                write!(f, "{component} is zero; measure it, a TTL derived from a guess is a guess")
            }
            Self::PauseUnknown => f.write_str(
                "pause p99 was not given and counts as zero; the TTL for a renewed lease is a lower bound until it is measured",
            ),
            Self::DriftOutOfRange(drift) => write!(
                f,
                "a drift buffer of {drift:?} is outside 50ms to 200ms; use zero within one site, and find the faulty clock \
                 rather than go above"
            ),
            Self::DriftBelowRate { drift, diverge } => write!(
                f,
                "over this TTL two clocks may diverge by {diverge:?}, more than the drift buffer of {drift:?}; a buffer must \
                 grow with the TTL"
            ),
            Self::WindowBelowWork { window, needs } => write!(
                f,
                "after the clock margin the holder has {window:?} of the covering TTL, but the work and a round trip take \
                 {needs:?}; raise the margin"
            ),
            Self::CoveringBelowRenewed => f.write_str(
                "the TTL that covers the work is too short to be renewed reliably; with renewal use the larger one",
            ),
            Self::CoveringAboveMax(max) => {
                write!(f, "the TTL that covers the work is above the {max} that the namespace allows; renew instead")
            }
            Self::RenewedAboveMax(max) => write!(
                f,
                "the TTL for a renewed lease is above the {max} that the namespace allows; the coordinator is too far away or \
                 the holder pauses too long"
            ),
        }
    }
}

/// Judges inputs that have passed their checks.
pub(super) fn judge(inputs: &Inputs, covering: &Figure, renewed: &Figure) -> Vec<Finding> {
    let mut found = Vec::new();
    let zero = |given: Option<Duration>| given.is_some_and(|given| given.is_zero());
    let needed = [
        (Component::Work, inputs.work_p99),
        (Component::RoundTrip, inputs.rtt_p99),
        (Component::Margin, inputs.margin),
    ];
    found.extend(needed.iter().filter(|(_, given)| zero(*given)).map(|&(part, _)| Finding::Zero(part)));
    if inputs.pause_p99.is_none() {
        found.push(Finding::PauseUnknown);
    }
    judge_drift(inputs, covering, &mut found);

    let needs = inputs.work_p99.unwrap_or_default().saturating_add(inputs.rtt_p99.unwrap_or_default());
    if covering.ttl.is_some() && covering.window < needs {
        found.push(Finding::WindowBelowWork { window: covering.window, needs });
    }
    if covering.rounded < renewed.rounded {
        found.push(Finding::CoveringBelowRenewed);
    }
    let above = |figure: &Figure| figure.ttl.is_none_or(|ttl| ttl > inputs.max_ttl);
    if above(covering) {
        found.push(Finding::CoveringAboveMax(inputs.max_ttl));
    }
    if above(renewed) {
        found.push(Finding::RenewedAboveMax(inputs.max_ttl));
    }
    found
}

fn judge_drift(inputs: &Inputs, covering: &Figure, found: &mut Vec<Finding>) {
    let drift = inputs.drift;
    if drift.is_zero() {
        return;
    }
    if drift < DRIFT_RANGE.0 || drift > DRIFT_RANGE.1 {
        found.push(Finding::DriftOutOfRange(drift));
    }
    let Some(ttl) = covering.ttl else { return };
    // ppm of microseconds: at most 7 days × 200,000, far below 2^64.
    let diverge = ttl.as_micros() * 2 * u64::from(inputs.clocks.drift_ppm()) / super::WHOLE;
    let diverge = Duration::from_micros(diverge);
    if drift < diverge {
        found.push(Finding::DriftBelowRate { drift, diverge });
    }
}

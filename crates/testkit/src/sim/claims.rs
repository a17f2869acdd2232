//! Which promise is claimed under which fault: every invariant names the assumptions it needs, every storm names the ones it
//! breaks, and a run is judged by the invariants that are left.

use core::time::Duration;

use super::{
    client::Kindred,
    schedule::{Action, Schedule},
};
use crate::check::{Bounds, History, Report};

/// What an invariant may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assumption {
    /// A1: clocks keep their rate within the margin.
    Rates,
    /// A2: the clock by which the engine judges does not step.
    NoStep,
    /// A3: the engine keeps what it acknowledged, or shows that it may not have.
    Remembers,
    /// A4: there is one engine.
    OneStore,
    /// No clock of the holder stands still while time goes on.
    ClocksRun,
    /// No operator frees a resource under its holder.
    NoForce,
    /// A request that was sent once is not applied twice.
    Once,
}

use Assumption::{ClocksRun, NoForce, NoStep, Once, OneStore, Rates, Remembers};

/// Every invariant, and what it needs. The fence (A6) is there in every run.
pub const NEEDS: &[(&str, &[Assumption])] = &[
    ("S1-overlap", &[Rates, NoStep, Remembers, OneStore, ClocksRun, NoForce]),
    ("S2-order", &[Remembers, OneStore]),
    ("S3-identity", &[Remembers, OneStore]),
    ("S4-conservative", &[Rates, ClocksRun]),
    ("S5-resurrection", &[]),
    ("S6-fence", &[]),
    ("S7-seal", &[]),
    ("S8-op-seq", &[]),
    ("S9-exact", &[]),
    ("S10-ambiguity", &[Remembers, OneStore, Once]),
    ("S11-amnesia", &[Rates, NoStep]),
    ("S12-regression", &[]),
    ("S13-effects", &[]),
    ("L1-wait", &[Remembers, NoStep]),
    ("L2-handover", &[Remembers, NoStep]),
    ("L3-orphan", &[Remembers, NoStep]),
    ("L4-healthy", &[Remembers]),
    ("L5-stuck", &[Rates, ClocksRun]),
    ("L6-quarantine", &[Rates, NoStep]),
    ("L7-locked", &[NoStep]),
    ("L9-rightful", &[Remembers, OneStore]),
];

/// True when a run of this schedule must keep the invariant.
pub fn claimed(invariant: &str, schedule: &Schedule) -> bool {
    let Some((_, needs)) = NEEDS.iter().find(|(name, _)| *name == invariant) else { return false };
    let kindred = schedule.setup.kindred;
    let storms = super::scenario::storms_of(schedule.scenario).iter();
    let broken = storms.flat_map(|storm| storm.breaks(kindred));
    let doubled = (schedule.setup.net.twice > 0).then_some(&Once);
    !broken.chain(doubled).any(|broken| needs.contains(broken))
}

/// Judges what is claimed.
pub(super) fn judge(history: &History, schedule: &Schedule) -> Report {
    let mut report = history.judge_within(&bounds(schedule));
    report.violations.retain(|violation| claimed(violation.invariant, schedule));
    report
}

/// How long things may take once it is calm.
fn bounds(schedule: &Schedule) -> Bounds {
    let setup = &schedule.setup;
    let wants = schedule.steps.iter().filter_map(|step| match step.action {
        Action::Want(_, want) => Some(want),
        _ => None,
    });
    // What was sent before the calm may arrive in it.
    let longest_ms =
        setup.net.slow_ms + wants.map(|want| want.ttl_ms + want.lock_delay_ms).max().unwrap_or(0);
    // Whole seconds and an election on this one; a margin for two clocks, and a first look, on that one.
    let stands_ms = match setup.kindred {
        Kindred::Etcd => longest_ms + 3_500,
        Kindred::Observed => 2 * longest_ms + 500,
        _ => longest_ms + longest_ms / 100 + 50,
    };
    // The front looks every second, a back-off every two; a dead one in front costs a reservation.
    let handover_ms = match setup.kindred {
        Kindred::Local | Kindred::Server => longest_ms + 4_000,
        _ => 5_000,
    };
    let wait_ms = (setup.end_ms - setup.calm_ms).saturating_sub(5_000);
    let of = |ms: u32| Duration::from_millis(u64::from(ms));
    Bounds { stands: of(stands_ms), handover: of(handover_ms), wait: of(wait_ms) }
}

//! Where a client's figures go: into its own histograms ([`crate::Leases::vitals`]) and, with the feature `metrics`, to the
//! recorder that the program has installed.

#[cfg_attr(not(feature = "metrics"), path = "silent.rs")]
mod facade;

use std::time::Duration;

use leasehold_core::{Error, Namespace, holder::Loss, profile::Profile, record::Gone};

use crate::vitals::{Recordings, Vitals};
use facade::Facade;

/// A timer of the runtime rings up to a millisecond late by design; what is later than this is a pause.
const GRAIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Meter {
    recordings: Recordings,
    facade: Facade,
}

impl Meter {
    pub(crate) fn new(profile: &Profile, namespace: &Namespace) -> Self {
        Self { recordings: Recordings::default(), facade: Facade::new(profile.engine, namespace) }
    }

    pub(crate) fn vitals(&self) -> Vitals {
        self.recordings.vitals()
    }

    /// A call was answered, or given up after `took`.
    pub(crate) fn called(&self, what: &'static str, error: Option<&Error>, took: Duration) {
        self.recordings.round_trip.record(took);
        self.facade.called(operation(what), error.map_or("ok", |error| error.kind().word()), took);
    }

    /// A renewal left, this late, with this much of the window left.
    pub(crate) fn renewal_left(&self, late: Duration, window_left: Duration) {
        self.recordings.renewal_lateness.record(late);
        self.facade.renewal_left(late, window_left);
    }

    /// A renewal came to this.
    pub(crate) fn renewed(&self, outcome: &'static str) {
        self.facade.renewed(outcome);
    }

    /// A timer woke this process, this late.
    pub(crate) fn woken(&self, late: Duration) {
        let pause = late.saturating_sub(GRAIN);
        self.recordings.host_pause.record(pause);
        self.facade.paused(pause);
    }

    /// A grant arrived. `lapse`: it found an expired one.
    pub(crate) fn granted(&self, lapse: bool) {
        self.facade.granted(lapse);
    }

    /// A lease is in hand. `asked`: since it was asked for; `woken`: since the wake that announced it.
    pub(crate) fn acquired(&self, asked: Duration, woken: Option<Duration>) {
        self.recordings.wait.record(asked);
        if let Some(woken) = woken {
            self.recordings.hand_over.record(woken);
        }
        self.facade.acquired(asked, woken);
    }

    /// A lease is in the driver's care from now on.
    pub(crate) fn held(&self) {
        self.facade.held(1.0);
    }

    /// The work under a lease has ended, and it is being released.
    pub(crate) fn worked(&self, work: Duration) {
        self.recordings.work.record(work);
        self.facade.held(-1.0);
        self.facade.worked(work);
    }

    /// A lease is lost, or in other hands.
    pub(crate) fn lost(&self, loss: &Loss) {
        self.facade.held(-1.0);
        if *loss != Loss::HandedOff {
            self.facade.lost(loss.word());
        }
    }

    /// Somebody asks for a lease, or is answered.
    pub(crate) fn preempted(&self, answer: &'static str) {
        self.facade.preempted(answer);
    }

    /// A claim begins to wait, or no longer does.
    pub(crate) fn waiting(&self, begins: bool) {
        self.facade.waiting(if begins { 1.0 } else { -1.0 });
    }

    /// A claim was answered by a quarantine.
    pub(crate) fn quarantined(&self) {
        self.facade.quarantined();
    }

    /// A token went back.
    pub(crate) fn regressed(&self) {
        self.facade.regressed();
    }

    /// The wall clock stepped.
    pub(crate) fn clock_stepped(&self) {
        self.facade.clock_stepped();
    }
}

/// What became of a renewal that was answered "gone". A revoked one is an operator's doing and no failure.
pub(crate) fn gone_word(gone: &Gone) -> &'static str {
    if matches!(gone, Gone::Revoked { .. }) { "revoked" } else { "gone" }
}

/// The operation's word in the metric, from its words in messages.
fn operation(what: &'static str) -> &'static str {
    match what {
        "claim" => "acquire",
        "renewal" => "renew",
        "revocation" => "revoke",
        "preparation" => "prepare",
        "listing" => "list",
        "look at a resource" => "inspect",
        "look at a history" => "history",
        other => other,
    }
}

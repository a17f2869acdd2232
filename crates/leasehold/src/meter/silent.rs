//! The facade of a build without the feature `metrics`: it tells nobody.
#![allow(clippy::unused_self, reason = "as its counterpart")]

use std::time::Duration;

use leasehold_core::Namespace;

#[derive(Debug)]
pub(super) struct Facade;

impl Facade {
    pub(super) fn new(_: &'static str, _: &Namespace) -> Self {
        Self
    }

    pub(super) fn called(&self, _: &'static str, _: &'static str, _: Duration) {}
    pub(super) fn renewal_left(&self, _: Duration, _: Duration) {}
    pub(super) fn renewed(&self, _: &'static str) {}
    pub(super) fn paused(&self, _: Duration) {}
    pub(super) fn granted(&self, _: bool) {}
    pub(super) fn acquired(&self, _: Duration, _: Option<Duration>) {}
    pub(super) fn held(&self, _: f64) {}
    pub(super) fn worked(&self, _: Duration) {}
    pub(super) fn lost(&self, _: &'static str) {}
    pub(super) fn preempted(&self, _: &'static str) {}
    pub(super) fn waiting(&self, _: f64) {}
    pub(super) fn quarantined(&self) {}
    pub(super) fn regressed(&self) {}
    pub(super) fn clock_stepped(&self) {}
}

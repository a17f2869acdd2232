//! The lines of `settings`.

use leasehold::{
    Leases,
    settings::stored::{Change, Stored},
};
use serde::Serialize;

use super::text;
use crate::people;

/// A change of the settings that the coordinator keeps. All of it is `null` where there never was one.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeLine {
    namespace: String,
    place: String,
    version: Option<u64>,
    by: Option<String>,
    at: Option<String>,
    bytes: Option<usize>,
}

/// The same with the settings.
#[derive(Debug, Serialize)]
pub(crate) struct SettingsLine {
    #[serde(flatten)]
    change: ChangeLine,
    /// TOML, as it was given.
    text: Option<String>,
}

impl ChangeLine {
    pub(crate) fn new(leases: &Leases, change: Option<&Change>) -> Self {
        Self {
            namespace: leases.namespace().as_str().to_owned(),
            place: leases.profile().place.clone(),
            version: change.map(|change| change.version),
            by: change.map(|change| text(&change.by)),
            at: change.and_then(|change| people::exact_instant(change.at_us)),
            bytes: change.map(|change| change.bytes),
        }
    }
}

impl SettingsLine {
    pub(crate) fn new(leases: &Leases, stored: Option<&Stored>) -> Self {
        let change = ChangeLine::new(leases, stored.map(|stored| &stored.change));
        Self { change, text: stored.map(|stored| stored.text.clone()) }
    }
}

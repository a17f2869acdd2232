//! What a run is to be, and what each worker is told of it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::Ttl;
use serde::{Deserialize, Serialize};

use crate::{
    failure::Failure,
    settings::{text, variable},
};

/// The resources over which the workers contend. Few, so that there are always some who wait.
pub(super) const RESOURCES: [&str; 3] = ["r-0", "r-1", "r-2"];
/// What the control's register of a resource is called in the history.
pub(crate) const CONTROL: &str = "control:";
/// The file that tells workers to finish.
pub(super) const STOP: &str = "stop";
/// The file that tells workers to come to rest for a moment; it contains the number of the round.
pub(super) const REST: &str = "rest";
/// The environment variable that makes a process a worker: its [`Plan`] as JSON. Not an argument, because it has the URL's
/// credentials, and arguments are seen by everybody.
pub(super) const PLAN: &str = "LEASEHOLD_VERIFY_PLAN";

/// How the workers exclude one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Recipe {
    /// By leases.
    Leases,
    /// By what the textbook says, as a comparison: a key with an expiry, and nothing that checks.
    Naive,
}

/// What was asked for, checked.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) time: Duration,
    pub(crate) workers: usize,
    pub(crate) seed: u64,
    pub(crate) recipe: Recipe,
    /// `None`: one that fits the coordinator.
    pub(crate) ttl: Option<Ttl>,
    pub(crate) history: Option<PathBuf>,
}

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) name: String,
    /// May carry credentials: never print it.
    pub(super) url: String,
    pub(super) namespace: String,
    pub(super) folder: PathBuf,
    pub(super) ttl_ms: u64,
    pub(super) seed: u64,
    pub(super) recipe: Recipe,
    /// The process that started it, without which it ends.
    pub(super) starter: u32,
}

impl Plan {
    /// The plan of this process.
    pub(super) fn of_this_process() -> Result<Self, Failure> {
        let alone = || {
            Failure::usage("this verb is for the workers of `leasehold verify`, which starts them itself")
                .advise("run `leasehold verify`")
        };
        let text = text(PLAN, &variable)?.ok_or_else(alone)?;
        serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{PLAN}: {error}")))
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// Where this worker writes down what happens.
    pub(super) fn journal(&self) -> PathBuf {
        journal(&self.folder, &self.name)
    }

    /// Where it says that it has come to rest.
    pub(super) fn resting(&self) -> PathBuf {
        resting(&self.folder, &self.name)
    }
}

/// The history of one worker.
pub(super) fn journal(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.jsonl"))
}

/// The file by which a worker says that it rests.
pub(super) fn resting(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.rests"))
}

/// A duration in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration in milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

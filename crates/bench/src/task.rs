//! What a measured program is told and what it answers: the whole contract between the runner and anybody who is measured,
//! in whichever language.
//!
//! ```text
//!   program TASK        one JSON object as the last argument
//!   stdout, last line   one JSON object, figure's name → number
//!   exit ≠ 0            not measured; the last line of stderr says why
//! ```

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// Whatever keeps a figure from being measured.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The figures of one measurement, by name.
pub(crate) type Answer = BTreeMap<String, f64>;

/// The names of figures.
pub(crate) mod figure {
    /// Pairs of one acquire and one release, per second.
    pub(crate) const RATE: &str = "per_second";
    /// The slowest of several processes, as a share of what would be fair.
    pub(crate) const SLOWEST: &str = "slowest";
    /// From the release to the next grant, µs.
    pub(crate) const P50: &str = "p50_us";
    pub(crate) const P99: &str = "p99_us";
    /// What the engine was asked per hand-over.
    pub(crate) const COMMANDS: &str = "commands";
    /// The longest that a waiter waited for its turn, in fair turns.
    pub(crate) const TURN: &str = "turn";
    /// Of one core, in percent: the measured process, and the engine's processes.
    pub(crate) const CLIENT: &str = "client_percent";
    pub(crate) const ENGINE: &str = "engine_percent";
    /// Memory per lease.
    pub(crate) const CLIENT_BYTES: &str = "client_bytes";
    pub(crate) const ENGINE_BYTES: &str = "engine_bytes";
    /// Updates of PostgreSQL that left the indexes alone, percent.
    pub(crate) const HOT: &str = "hot_percent";
    /// Leases that were lost while they were kept.
    pub(crate) const LOST: &str = "lost";
    /// Wall time of a command, ms.
    pub(crate) const WALL: &str = "wall_ms";
    pub(crate) const NANOSECONDS: &str = "ns";
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// `size` tasks acquire and release, each a resource of its own.
    Pairs,
    /// The same while one of several servers answers nothing.
    Stalled,
    /// The same by `size` processes.
    Processes,
    /// `size` waiters hand one resource on.
    HandOver,
    /// `size` leases are held and renewed.
    Keep,
    /// One holder and `size` waiters, and nothing happens.
    Rest,
    /// A command is run under a lease.
    Command,
    /// A holder asks whether it still holds.
    Check,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) engine: String,
    pub(crate) what: What,
    pub(crate) who: String,
    /// Tasks, processes, waiters or leases.
    pub(crate) size: u32,
    /// How long to measure, ms.
    pub(crate) millis: u64,
    /// As Leasehold names the engine.
    pub(crate) url: String,
    /// `host:port` of each server.
    pub(crate) hosts: Vec<String>,
    /// The engine's processes; their children count as well.
    pub(crate) pids: Vec<u32>,
    /// For files.
    pub(crate) folder: PathBuf,
}

impl Task {
    pub(crate) fn span(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// The same for one of several.
    pub(crate) fn tasks(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX).max(1)
    }

    pub(crate) fn host(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }
}

/// A refusal with words of our own.
pub(crate) fn failed<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(why.into().into())
}

/// A number as a figure. Counts and times are far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts and times of a benchmark are far below 2^53")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

/// A count of things in memory as a figure.
pub(crate) fn count(things: usize) -> f64 {
    number(u64::try_from(things).unwrap_or(u64::MAX))
}

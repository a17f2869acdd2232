//! A run whose lease somebody asks for: what the command is told, and by when it must have ended.
//!
//! The command gets SIGTERM, as for any drain. Who asks, why and how long there is it finds in a file, whose path is in its
//! environment from the start and which is there only once somebody has asked. It is put in place whole, before the signal.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::{LeaseId, preempt::Preemption};
use serde::Serialize;

/// Names the file in the command's environment.
pub(super) const VARIABLE: &str = "LEASEHOLD_PREEMPT_FILE";

/// What a run does when somebody asks for its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum OnPreempt {
    /// The command drains.
    #[default]
    Drain,
    /// Whoever asks is told no.
    Refuse,
}

/// What the command can read.
#[derive(Serialize)]
struct Told<'a> {
    by: &'a str,
    reason: &'a str,
    within_ms: u64,
}

/// Where the file of this lease is, once it is there: in the folder for what lives as long as the session or the service, else
/// in the folder for temporary files. The lease id keeps it apart from all others.
pub(super) fn path(lease_id: LeaseId) -> PathBuf {
    let folder = |name| crate::settings::variable(name).map(PathBuf::from).filter(|path| path.is_dir());
    let folder =
        folder("RUNTIME_DIRECTORY").or_else(|| folder("XDG_RUNTIME_DIR")).unwrap_or_else(std::env::temp_dir);
    folder.join(format!("leasehold-{lease_id}.preempt"))
}

/// Puts the file in place. It is written beside and moved there, so that nobody reads half of it.
pub(super) fn write(path: &Path, asked: &Preemption, left: Duration) -> io::Result<()> {
    let told = Told {
        by: asked.by().as_str(),
        reason: asked.reason().as_str(),
        within_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
    };
    let mut line = serde_json::to_vec(&told)?;
    line.push(b'\n');
    let beside = path.with_extension(OsStr::new("new"));
    // A name that exists is not ours: a link of somebody else is not followed.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(&line)?;
    drop(file);
    fs::rename(&beside, path)
}

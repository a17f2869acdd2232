//! A TTL that changes while the command runs: the configuration file is looked at now and then, and what it says counts from
//! the next renewal.
//!
//! No signal asks for it: each one that can be caught is the command's. A file that cannot be read, or a value that does not
//! fit, changes nothing; that is said once for each change of the file, on the standard error and in the log.

use std::{io::Write as _, path::Path};

use leasehold::{Lease, Ttl, settings::File};

use super::{Plan, tell};
use crate::{
    config::{self, Config},
    supervise::boottime_ns,
};

/// Between two looks (ours: whoever changes a file waits for seconds; one `stat` each is no load).
const EVERY_NS: u64 = 2_000_000_000;

/// The file, as it was looked at last.
#[derive(Debug)]
pub(super) struct Retune {
    file: Option<File>,
    due_ns: u64,
    /// What counts now.
    ttl: Ttl,
}

impl Retune {
    /// From now on.
    pub(super) fn begin(plan: &Plan) -> Self {
        // The file was read a moment ago. What has changed since is found by the first look, which reads it once more.
        Self {
            file: plan.file.as_deref().map(File::new),
            due_ns: boottime_ns().saturating_add(EVERY_NS),
            ttl: plan.ttl,
        }
    }

    /// The lease is another guard's by now, with the TTL of the plan: what the file says is to be told to it.
    pub(super) fn start_over(&mut self, plan: &Plan) {
        self.ttl = plan.ttl;
        self.file.iter_mut().for_each(File::forget);
    }

    /// When it wants to look again.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.file.as_ref().map(|_| self.due_ns)
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns().is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// Looks, and lets the lease have what is new.
    pub(super) fn look(&mut self, now_ns: u64, plan: &Plan, lease: &Lease) {
        self.due_ns = now_ns.saturating_add(EVERY_NS);
        let Some(file) = &mut self.file else { return };
        let Some(found) = file.look(config::parse) else { return };
        let path = file.path().to_owned();
        let answer = found.and_then(|config| wanted(&config, plan)).and_then(|ttl| {
            if ttl != self.ttl {
                lease.set_ttl(ttl).map_err(|error| error.to_string())?;
            }
            Ok(ttl)
        });
        match answer {
            Ok(ttl) if ttl != self.ttl => {
                tell::retuned(lease, self.ttl, ttl);
                self.ttl = ttl;
            }
            Ok(_) => {}
            Err(problem) => self.refuse(&path, &problem, lease),
        }
    }

    /// Nothing of the new file counts.
    fn refuse(&self, file: &Path, problem: &str, lease: &Lease) {
        tell::refused(lease, self.ttl, problem);
        // Nobody is left to hear that this could not be written.
        let _ = writeln!(
            std::io::stderr(),
            "leasehold: {}: {problem}; the TTL stays {}",
            file.display(),
            self.ttl
        );
    }
}

/// The TTL that the file asks for, if it fits the rest of the run.
fn wanted(config: &Config, plan: &Plan) -> Result<Ttl, String> {
    let ttl = config.rules.of(&plan.resource).ttl.unwrap_or(Ttl::DEFAULT);
    if plan.grace > ttl.as_duration() / 3 {
        return Err(format!("ttl: {ttl} is less than three times the grace of this run, {:?}", plan.grace));
    }
    Ok(ttl)
}

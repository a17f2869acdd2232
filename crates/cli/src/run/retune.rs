//! A TTL that changes while the command runs: the configuration file and the coordinator's settings are looked at now and then,
//! and what they say counts from the next renewal.
//!
//! No signal asks for it: each one that can be caught is the command's. A file that cannot be read, or a value that does not
//! fit, changes nothing; that is said once for each change, on the standard error and in the log.

use std::{io::Write as _, time::Duration};

use leasehold::{
    Lease, Leases, Ttl,
    settings::{File, Follower, Tuning},
};

use super::{Plan, tell};
use crate::{config, supervise::boottime_ns};

/// Between two looks (ours: whoever changes a file waits for seconds; one `stat` each is no load).
const EVERY_NS: u64 = 2_000_000_000;
/// Between two looks of the library at the coordinator's settings (ours: as often as a lease of the default TTL is renewed).
pub(crate) const EVERY: Duration = Duration::from_secs(10);

/// What was looked at last.
#[derive(Debug)]
pub(super) struct Retune {
    /// `None`: an option is the last word.
    due_ns: Option<u64>,
    file: Option<File>,
    /// What the file says of our resource.
    own: Tuning,
    common: Common,
    /// What counts now.
    ttl: Ttl,
}

/// What the coordinator says.
#[derive(Debug)]
struct Common {
    /// `None`: it could not be asked.
    follower: Option<Follower>,
    tuning: Option<Tuning>,
    problem: Option<String>,
}

impl Retune {
    /// From now on.
    pub(super) fn begin(plan: &Plan, follower: Option<Follower>) -> Self {
        // The file was read a moment ago. What has changed since is found by the first look, which reads it once more.
        let file = plan.file.as_deref().map(File::new);
        let follows = plan.asked.ttl.is_none() && (file.is_some() || follower.is_some());
        Self {
            due_ns: follows.then(|| boottime_ns().saturating_add(EVERY_NS)),
            file,
            own: plan.own,
            common: Common { follower, tuning: Some(plan.common), problem: None },
            ttl: plan.terms.ttl,
        }
    }

    /// The lease is another guard's by now, with the TTL of the plan: what the settings say is to be told to it.
    pub(super) fn start_over(&mut self, plan: &Plan) {
        self.ttl = plan.terms.ttl;
        self.file.iter_mut().for_each(File::forget);
        self.common.tuning = None;
    }

    /// When it wants to look again.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns.is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// Looks, and lets the lease have what is new.
    pub(super) fn look(&mut self, now_ns: u64, plan: &Plan, leases: &Leases, lease: &Lease) {
        self.due_ns = Some(now_ns.saturating_add(EVERY_NS));
        self.look_at_the_coordinator(plan, leases, lease);
        self.look_at_the_file(plan, lease);
    }

    fn look_at_the_file(&mut self, plan: &Plan, lease: &Lease) {
        let Some(file) = &mut self.file else { return };
        let Some(found) = file.look(config::parse) else { return };
        let place = file.path().display().to_string();
        let own = found.map(|config| config.rules.of(&plan.resource));
        let common = self.common.tuning.unwrap_or_default();
        match own.and_then(|own| self.adopt(own.over(common), plan, lease).map(|()| own)) {
            Ok(own) => self.own = own,
            Err(problem) => self.refuse(&place, &problem, lease),
        }
    }

    fn look_at_the_coordinator(&mut self, plan: &Plan, leases: &Leases, lease: &Lease) {
        let Some(follower) = &self.common.follower else { return };
        let place = &leases.profile().place;
        let problem = follower.problem();
        if problem != self.common.problem {
            self.common.problem.clone_from(&problem);
            // The library has logged it.
            if let Some(problem) = &problem {
                self.say(place, problem);
            }
        }
        let tuning = leases.common_rules().of(&plan.resource);
        if self.common.tuning.replace(tuning) == Some(tuning) {
            return;
        }
        if let Err(problem) = self.adopt(self.own.over(tuning), plan, lease) {
            self.refuse(place, &problem, lease);
        }
    }

    /// Lets the lease have the TTL of these settings, if it fits the rest of the run.
    fn adopt(&mut self, tuning: Tuning, plan: &Plan, lease: &Lease) -> Result<(), String> {
        let ttl = tuning.ttl.unwrap_or(Ttl::DEFAULT);
        let grace = plan.terms.grace;
        if grace > ttl.as_duration() / 3 {
            return Err(format!("ttl: {ttl} is less than three times the grace of this run, {grace:?}"));
        }
        if ttl != self.ttl {
            lease.set_ttl(ttl).map_err(|error| error.to_string())?;
            tell::retuned(lease, self.ttl, ttl);
            self.ttl = ttl;
        }
        Ok(())
    }

    /// Nothing of the new settings counts.
    fn refuse(&self, place: &str, problem: &str, lease: &Lease) {
        tell::refused(lease, self.ttl, problem);
        self.say(place, problem);
    }

    fn say(&self, place: &str, problem: &str) {
        say(place, problem, &format!("the TTL stays {}", self.ttl));
    }
}

/// Says on the standard error which settings do not count, and what does.
pub(super) fn say(place: &str, problem: &str, stays: &str) {
    // Nobody is left to hear that this could not be written.
    let _ = writeln!(std::io::stderr(), "leasehold: {place}: {problem}; {stays}");
}

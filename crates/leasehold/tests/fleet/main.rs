//! Many real processes on one lease file, through the public library: killed, stopped, restarted, and judged together.
//!
//! Every process writes down what it believed and when; the protected resource writes down what it let in. The judge sees
//! the joint history. Beside each promise stands a control in which it is broken on purpose: a judge that cannot fail is
//! worth nothing.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![cfg(feature = "sqlite")]

mod chaos;
mod pauses;
mod queue;
mod register;
mod worker;

use std::{fs, time::Duration};

use leasehold::{Lease, Leases, blocking::block_on};
use leasehold_testkit::{
    check::{History, What},
    clock::boot_ns,
    process::{Fleet, Journal, wait_until},
    random,
};
use tempfile::TempDir;
use worker::{RESOURCE, Role};

/// Far beyond anything a healthy run needs, even on a machine that builds something else at the same time.
const LONG: Duration = Duration::from_secs(60);

/// The entrance of the workers; nothing when the tests run.
#[test]
fn worker() {
    worker::play();
}

/// A folder, a lease file in it, and the processes that contend for what it leases.
struct World {
    // Ended before the folder goes.
    fleet: Fleet,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = TempDir::with_prefix("fleet-").unwrap();
        Self { fleet: Fleet::new(folder.path()), folder }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("leases.db").display())
    }

    fn start(
        &mut self,
        name: &str,
        role: Role,
        fenced: bool,
    ) -> std::sync::Arc<leasehold_testkit::process::Child> {
        let spawn = worker::spawn(role, &self.url(), fenced);
        self.fleet.start(name, spawn).unwrap()
    }

    fn connect(&self) -> Leases {
        block_on(Leases::connect(&self.url())).unwrap()
    }

    fn tell(&self, what: &str) {
        fs::write(self.folder.path().join(what), "").unwrap();
    }

    fn history(&self) -> History {
        self.fleet.history().unwrap()
    }

    /// Waits until `process` has written down something of this kind.
    fn hears(&self, process: &str, what: &str, of: impl Fn(&What) -> bool) {
        let heard = || {
            let history = self.history();
            let found =
                history.events().iter().any(|event| of_process(&event.process, process) && of(&event.what));
            found.then_some(())
        };
        wait_until(format!("{what} of {process}"), LONG, heard).unwrap();
    }
}

/// Processes are called by their name and number.
fn of_process(process: &str, name: &str) -> bool {
    process.split_once(':').is_some_and(|(before, _)| before == name)
}

/// The test's own process as a holder of [`RESOURCE`], written down like the others.
struct Successor {
    lease: Lease,
    journal: Journal,
    id: leasehold::LeaseId,
}

impl Successor {
    /// Waits for the resource and takes it.
    fn take(world: &World, leases: &Leases) -> Self {
        let path = world.folder.path().join("successor.jsonl");
        let mut journal = Journal::open(path, &format!("successor:{}", std::process::id())).unwrap();
        let id = random::lease_id();
        journal.note(RESOURCE, id, What::Attempt).unwrap();
        let lease =
            block_on(leases.lease(RESOURCE).ttl(Duration::from_secs(60)).wait(LONG).acquire()).unwrap();
        let (now_ns, close_ns, token) = (boot_ns(), lease.closes().boot_ns, lease.token());
        lease.check().unwrap();
        let granted = What::Granted { token, sent_ns: None, open_ns: now_ns, close_ns, ttl_ms: None };
        journal.note_at(now_ns, RESOURCE, id, granted).unwrap();
        Self { lease, journal, id }
    }

    fn release(mut self) {
        self.journal.note(RESOURCE, self.id, What::Released { token: self.lease.token() }).unwrap();
        let _ = block_on(self.lease.release()).unwrap();
    }
}

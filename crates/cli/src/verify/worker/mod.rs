//! A worker: a process that acquires, renews and writes, writes down what it believed, and may be killed at any moment.
//!
//! Every belief is dated *before* the question is asked whose answer it is: a process that is stopped in between was right at
//! that moment, and at no later one. Nothing here may guess; what a worker did not ask it does not write down.

mod leased;
mod textbook;

use std::{fs, future::Future, io, time::Duration};

use leasehold::LeaseId;
use leasehold_testkit::{
    check::What,
    clock::boot_ns,
    process::{Journal, end_with_parent},
    random::Choices,
};

use super::{
    plan::{Plan, RESOURCES, REST, Recipe, STOP, millis, nanos},
    register::{Entry, Registers},
};
use crate::{exit::Exit, failure::Failure};

/// Between two looks at what the parent says.
const GLANCE: Duration = Duration::from_millis(10);
/// How long a worker pauses between two turns at most: it bounds the rate at which the coordinator is asked.
const BETWEEN_TURNS_MS: u64 = 40;

/// Plays the worker that the environment describes, until it is told to stop.
pub(crate) fn work() -> Result<Exit, Failure> {
    let plan = Plan::of_this_process()?;
    let failed = |what: String| Failure::error(Exit::NotRun, "worker", what);
    end_with_parent(plan.starter).map_err(|error| failed(error.to_string()))?;
    let mut hands = Hands::new(plan).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let worked = runtime.block_on(async {
        match hands.plan.recipe {
            Recipe::Leases => leased::contend(&mut hands).await,
            Recipe::Naive => textbook::contend(&mut hands).await,
        }
    });
    worked.map(|()| Exit::Done).map_err(failed)
}

/// What every worker works with, however it excludes the others.
struct Hands {
    plan: Plan,
    journal: Journal,
    registers: Registers,
    choices: Choices,
}

impl Hands {
    fn new(plan: Plan) -> Result<Self, String> {
        let journal = Journal::open(plan.journal(), &plan.name).map_err(|error| error.to_string())?;
        let registers = Registers::open(&plan.folder)?;
        let choices = Choices::new(plan.seed);
        Ok(Self { plan, journal, registers, choices })
    }

    fn note(&mut self, resource: &str, id: LeaseId, what: What) -> Result<(), String> {
        self.note_at(boot_ns(), resource, id, what)
    }

    fn note_at(&mut self, at_ns: u64, resource: &str, id: LeaseId, what: What) -> Result<(), String> {
        told(self.journal.note_at(at_ns, resource, id, what))
    }

    /// Writes down what happened in a register; false when it was too busy for anything to happen.
    fn note_entry(&mut self, id: LeaseId, entry: Option<Entry>) -> Result<bool, String> {
        let Some(Entry { at_ns, resource, what }) = entry else { return Ok(false) };
        self.note_at(at_ns, &resource, id, what)?;
        Ok(true)
    }

    /// The next resource to contend for.
    fn resource(&mut self) -> &'static str {
        let at = self.choices.below(RESOURCES.len() as u64);
        RESOURCES[usize::try_from(at).unwrap_or_default()]
    }

    /// A time in milliseconds from `least` up to, and without, `below`.
    fn time(&mut self, least: u64, below: u64) -> Duration {
        Duration::from_millis(least + self.choices.below(below.saturating_sub(least)))
    }

    /// How long to hold this time, as a part of the TTL: mostly for a moment, now and then for longer than a third of it or
    /// more than all of it, so that it must be renewed.
    fn hold(&mut self, longest: Duration) -> Duration {
        if self.choices.one_in(6) {
            self.time(millis(longest) / 2, millis(longest))
        } else {
            self.time(5, 40)
        }
    }

    fn is_told_to_stop(&self) -> bool {
        self.plan.folder.join(STOP).exists() || self.plan.folder.join(REST).exists()
    }

    /// Between two turns: a moment, or until the round goes on. False when it is time to stop.
    async fn goes_on(&mut self) -> Result<bool, String> {
        let stop = self.plan.folder.join(STOP);
        let pause = self.time(1, BETWEEN_TURNS_MS);
        tokio::time::sleep(pause).await;
        let mut resting = None;
        loop {
            if stop.exists() {
                return Ok(false);
            }
            let round = match fs::read_to_string(self.plan.folder.join(REST)) {
                Ok(round) => round,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
                Err(error) => return Err(error.to_string()),
            };
            if resting.as_ref() != Some(&round) {
                told(fs::write(self.plan.resting(), &round))?;
                resting = Some(round);
            }
            tokio::time::sleep(GLANCE).await;
        }
    }
}

fn told<T>(result: io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("cannot write down what happens: {error}"))
}

/// When something ends that takes this long from now.
fn until(time: Duration) -> u64 {
    boot_ns().saturating_add(nanos(time))
}

/// Waits for a future, at most for this long.
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

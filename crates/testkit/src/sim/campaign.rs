//! Many runs on several threads, and what to say of the first that failed.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{Mutant, Scenario, Schedule, history, run, scenario, shrink::shrink};
use crate::check::Report;

/// Which runs.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// How many runs, one seed each.
    pub runs: u64,
    /// The scenario; `None` for the one that each seed picks.
    pub scenario: Option<&'static Scenario>,
    /// A fault of design to be found.
    pub mutant: Option<Mutant>,
    /// How many failures are looked for before it stops.
    pub stop_after: usize,
    /// How many threads.
    pub threads: usize,
}

/// What the runs showed.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many runs there were.
    pub runs: u64,
    /// Events in all of them.
    pub events: u64,
    /// Grants.
    pub grants: u64,
    /// Grants that followed another of the same resource.
    pub handovers: u64,
    /// Confirmed renewals.
    pub extensions: u64,
    /// Writes that the resource saw.
    pub writes: u64,
    /// Broken invariants, and the seeds that broke them.
    pub broken: BTreeMap<(&'static str, &'static str), Vec<u64>>,
}

impl Tally {
    /// How many runs broke anything.
    pub fn failures(&self) -> usize {
        let mut seeds: Vec<u64> = self.broken.values().flatten().copied().collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds.len()
    }

    /// The invariants that were broken, each once.
    pub fn invariants(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.broken.keys().map(|&(_, invariant)| invariant).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.grants += other.grants;
        self.handovers += other.handovers;
        self.extensions += other.extensions;
        self.writes += other.writes;
        for (what, seeds) in other.broken {
            self.broken.entry(what).or_default().extend(seeds);
        }
    }

    fn count(&mut self, seed: u64, scenario: &'static str, report: &Report) {
        self.runs += 1;
        self.events += report.judged.events as u64;
        self.grants += report.judged.grants as u64;
        self.handovers += report.judged.handovers as u64;
        self.extensions += report.judged.extensions as u64;
        self.writes += report.judged.writes as u64;
        for invariant in report.broken() {
            self.broken.entry((scenario, invariant)).or_default().push(seed);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, events, grants, handovers, extensions, writes, .. } = self;
        write!(
            f,
            "{runs} runs: {grants} grants, {handovers} handovers, {extensions} renewals, {writes} writes, {events} events"
        )?;
        for ((scenario, invariant), seeds) in &self.broken {
            let some: Vec<String> = seeds.iter().take(5).map(u64::to_string).collect();
            write!(f, "\n  {scenario:18} {invariant:16} {} of them: {}", seeds.len(), some.join(" "))?;
        }
        Ok(())
    }
}

impl Campaign {
    /// Runs them all, or until enough have failed.
    pub fn run(&self) -> Tally {
        let next = AtomicU64::new(self.first);
        let tally = Mutex::new(Tally::default());
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| self.work(&next, &tally));
            }
        });
        tally.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, next: &AtomicU64, tally: &Mutex<Tally>) {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.first.saturating_add(self.runs) {
                return;
            }
            let scenario = self.scenario.unwrap_or_else(|| scenario::of_seed(seed));
            let report = run(&scenario.schedule(seed), self.mutant);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.count(seed, scenario.name, &report);
            if tally.failures() >= self.stop_after {
                next.store(u64::MAX / 2, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// A failure, told so that it can be repeated: what is broken, the command that replays it, and the smallest schedule that
/// still breaks it.
pub fn explain(schedule: &Schedule, mutant: Option<Mutant>) -> String {
    let report = run(schedule, mutant);
    let Some(first) = report.violations.first() else {
        return format!("seed {} breaks nothing: {report}", schedule.seed);
    };
    let invariant = first.invariant;
    let broken = |schedule: &Schedule| run(schedule, mutant).broken().contains(&invariant);
    let small = shrink(schedule, broken);
    let mut text = format!("seed {} of scenario {} breaks {invariant}\n", schedule.seed, schedule.scenario);
    // Writing into a String cannot fail.
    let _ = writeln!(text, "replay: {}", replay(schedule, mutant));
    let (few, all) = (small.steps.len(), schedule.steps.len());
    let _ = writeln!(text, "setup: {:?}\n{few} of {all} steps suffice:", small.setup);
    for step in &small.steps {
        let _ = writeln!(text, "  {:>6} ms  {:?}", step.at_ms, step.action);
    }
    text + &run(&small, mutant).to_string()
}

/// What a shrunk run looked like, line by line.
pub fn transcript(schedule: &Schedule, mutant: Option<Mutant>) -> String {
    let mut text = String::new();
    for event in history(schedule, mutant).events() {
        let (at, id) = (Millis(event.at_ns), event.lease_id.to_string());
        let _ = writeln!(
            text,
            "{at:>12} ms {:7} {:3} {}  {:?}",
            event.process,
            event.resource,
            &id[16..20],
            event.what
        );
    }
    text
}

fn replay(schedule: &Schedule, mutant: Option<Mutant>) -> String {
    let mutant = mutant.map_or(String::new(), |mutant| format!(" --mutant {}", mutant.name()));
    format!("cargo xtask sim --seed {} --scenario {}{mutant}", schedule.seed, schedule.scenario)
}

struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:03}", self.0 / 1_000_000, self.0 / 1_000 % 1_000))
    }
}

//! One run, from the namespace to the verdict.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    time::Duration,
};

use leasehold::{Label, Leases, Throwaway, Ttl, blocking::block_on, core::request::Preparation};
use leasehold_testkit::{check::Event, clock::boot_ns};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{
    Ledger, Options, Recipe, Verdict,
    crew::Crew,
    ending,
    facts::{self, Facts, Meter},
    faults::{Faults, spared},
    naive,
    plan::{Plan, STOP, nanos},
    register::Registers,
    report::{Measured, Report},
    tails::Tails,
    usage::Samples,
    verdict::ENOUGH,
};
use crate::{client, exit::Exit, failure::Failure, interrupt::Interrupts, settings::Settings};

/// Between two looks at everything.
const TICK: Duration = Duration::from_millis(50);
/// After so long everybody rests, and what has been written is judged and forgotten.
const ROUND: Duration = Duration::from_secs(60);
/// The same where an overlap is expected, and ends the run.
const SHORT_ROUND: Duration = Duration::from_secs(4);
/// How much longer a run goes on at a time when there is too little to judge.
const MORE: Duration = Duration::from_secs(5);
/// How long workers may take to come to rest, and to end: far beyond a busy machine's worst.
const PATIENCE: Duration = Duration::from_secs(90);
/// So many workers may end by themselves before the run is given up.
const MOST_DEATHS: u32 = 5;
/// Between two looks at memory and descriptors.
const SAMPLED: Duration = Duration::from_secs(5);
/// How long the parent's own client may take to end.
const CLOSING: Duration = Duration::from_secs(5);
/// The shortest TTL of a run: shorter ones are lost to any busy machine.
const LEAST_TTL: Duration = Duration::from_secs(1);

/// What is left of a run.
pub(crate) struct Ran {
    pub(crate) report: Report,
    /// What the page shows: the round with the first violation, else the last one.
    pub(crate) events: Vec<Event>,
}

/// Runs it.
pub(crate) fn run(options: &Options, settings: &Settings) -> Result<Ran, Failure> {
    // Before anything starts a thread.
    let interrupts = Interrupts::watch().map_err(|error| not_run(&error))?;
    let throwaway =
        Throwaway::draw(ending::PREFIX).map_err(|error| Failure::from(error).moved_to(Exit::NotRun))?;
    let mut settings = settings.clone();
    settings.namespace = throwaway.namespace().clone();
    let label = || Label::from_lossy(&format!("verify:{}", std::process::id()));
    let leases = client::connect(&settings, label).map_err(|failure| failure.moved_to(Exit::NotRun))?;
    let ran = play(options, &settings, leases.clone(), interrupts);
    // Whatever became of it: all workers have ended, and a client that still lived would make a record again.
    block_on(leases.close(CLOSING));
    let left = ending::discard(&throwaway, &settings.url);
    let mut ran = ran?;
    if let Some(run) = &mut ran.report.run {
        run.left = left;
    }
    Ok(ran)
}

fn play(
    options: &Options,
    settings: &Settings,
    leases: Leases,
    interrupts: Interrupts,
) -> Result<Ran, Failure> {
    let fresh = Preparation { fresh: true, max_ttl: Some(leases.profile().max_ttl) };
    block_on(leases.prepare(fresh)).map_err(|error| Failure::from(error).moved_to(Exit::NotRun))?;
    if options.recipe == Recipe::Naive {
        in_runtime(naive::prepare(&settings.url))?;
    }
    let ran = Scene::new(options, settings, leases, interrupts).and_then(Scene::play);
    if options.recipe == Recipe::Naive {
        in_runtime(naive::clean(&settings.url, settings.namespace.as_str()))?;
    }
    ran
}

fn in_runtime(work: impl Future<Output = Result<(), String>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| not_run(&error))?;
    runtime.block_on(work).map_err(|what| Failure::error(Exit::NotRun, "verify", what))
}

fn not_run(error: &io::Error) -> Failure {
    Failure::error(Exit::NotRun, "verify", format!("the run could not be made: {error}"))
}

/// Everything of one run. What is dropped ends: workers are killed, the folder is removed.
struct Scene<'a> {
    options: &'a Options,
    // Before the folder.
    crew: Crew,
    tails: Tails,
    faults: Faults,
    ledger: Ledger,
    samples: Samples,
    meter: Meter,
    leases: Leases,
    interrupts: Interrupts,
    facts: Facts,
    offset: Option<facts::ClockOffset>,
    ttl: Ttl,
    round: u64,
    deaths: u32,
    started_ns: u64,
    sampled_ns: u64,
    history: Option<File>,
    shown: Vec<Event>,
    folder: TempDir,
}

impl<'a> Scene<'a> {
    fn new(
        options: &'a Options,
        settings: &Settings,
        leases: Leases,
        interrupts: Interrupts,
    ) -> Result<Self, Failure> {
        let facts = Facts::gather(leases.profile(), settings);
        let ttl = ttl(options, &leases)?;
        let history = options.history.as_deref().map(create).transpose()?;
        let offset = facts::clock_offset(&leases, ttl);
        let make = || -> io::Result<(TempDir, Crew, Meter)> {
            let folder = TempDir::with_prefix("leasehold-verify-")?;
            // Made once, before many want it at once.
            Registers::open(folder.path()).map_err(io::Error::other)?;
            let plan = Plan {
                name: String::new(),
                url: settings.url.clone(),
                namespace: settings.namespace.as_str().to_owned(),
                folder: folder.path().to_owned(),
                ttl_ms: ttl.as_millis(),
                seed: options.seed,
                recipe: options.recipe,
                starter: std::process::id(),
            };
            Ok((folder, Crew::start(plan, options.workers)?, Meter::start(&leases)?))
        };
        let (folder, crew, meter) = make().map_err(|error| not_run(&error))?;
        Ok(Self {
            options,
            crew,
            tails: Tails::new(folder.path().to_owned()),
            faults: Faults::new(options.seed, ttl.as_duration(), options.workers),
            ledger: Ledger::default(),
            samples: Samples::default(),
            meter,
            leases,
            interrupts,
            facts,
            offset,
            ttl,
            round: 0,
            deaths: 0,
            started_ns: boot_ns(),
            sampled_ns: 0,
            history,
            shown: Vec::new(),
            folder,
        })
    }

    fn play(mut self) -> Result<Ran, Failure> {
        let end_ns = self.started_ns.saturating_add(nanos(self.options.time));
        // On a machine so busy that there is too little to judge it goes on for as long again, and at least a minute.
        let latest_ns = end_ns.saturating_add(nanos(self.options.time.max(ROUND)));
        let length = if self.options.recipe == Recipe::Naive { SHORT_ROUND } else { ROUND };
        loop {
            let now_ns = boot_ns();
            let until_ns = if now_ns < end_ns { end_ns } else { now_ns + nanos(MORE) };
            self.work(until_ns.min(now_ns + nanos(length)))?;
            self.rest()?;
            let now_ns = boot_ns();
            let is_over = now_ns >= end_ns && (self.is_enough() || now_ns >= latest_ns);
            if is_over || !self.ledger.broken.is_empty() {
                break;
            }
            self.crew.call_to_work().map_err(|error| not_run(&error))?;
        }
        self.conclude()
    }

    fn is_enough(&self) -> bool {
        let ledger = &self.ledger;
        self.options.recipe == Recipe::Leases
            && ledger.handovers >= ENOUGH
            && ledger.control_landed > 0
            && ledger.stale_tried() > 0
            && !ledger.takeovers_ns.is_empty()
    }

    /// Lets the workers work, and breaks things, until then.
    fn work(&mut self, until_ns: u64) -> Result<(), Failure> {
        while boot_ns() < until_ns {
            self.tick()?;
            let (leases, ttl) = (&self.leases, self.ttl);
            let is_file = leases.profile().engine == "sqlite";
            let probe = || !is_file || answers(leases, ttl);
            self.faults.go_on(&mut self.crew, &self.tails, &probe).map_err(|error| not_run(&error))?;
            self.sample();
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Failure> {
        self.pause()?;
        self.tails.read(self.crew.names()).map_err(|error| not_run(&error))?;
        self.replace_the_dead()
    }

    fn pause(&self) -> Result<(), Failure> {
        match self.interrupts.pause(TICK) {
            Some(signal) => Err(interrupted(signal)),
            None => Ok(()),
        }
    }

    /// A worker that ends by itself could not do its work.
    fn replace_the_dead(&mut self) -> Result<(), Failure> {
        while let Some((index, said)) = self.crew.ended().map_err(|error| not_run(&error))? {
            self.deaths += 1;
            if self.deaths > MOST_DEATHS {
                return Err(Failure::error(Exit::NotRun, "verify", said));
            }
            self.crew.replace(index).map_err(|error| not_run(&error))?;
        }
        Ok(())
    }

    fn sample(&mut self) {
        let now_ns = boot_ns();
        if now_ns.saturating_sub(self.sampled_ns) >= nanos(SAMPLED) {
            self.sampled_ns = now_ns;
            self.samples.look(&self.crew, spared(self.options.workers));
        }
    }

    /// Every fault takes its course, everybody rests, and what has been written is judged.
    fn rest(&mut self) -> Result<(), Failure> {
        self.round += 1;
        while self.faults.last() {
            self.tick()?;
            self.faults.heal(&self.crew, &self.tails).map_err(|error| not_run(&error))?;
        }
        self.crew.call_to_rest(self.round).map_err(|error| not_run(&error))?;
        let latest_ns = boot_ns() + nanos(PATIENCE);
        while !self.crew.rests(self.round) {
            self.pause()?;
            self.replace_the_dead()?;
            if boot_ns() > latest_ns {
                let what = "the workers did not come to rest: the coordinator does not answer, or the machine is too busy";
                return Err(Failure::error(Exit::NotRun, "verify", what));
            }
        }
        self.tails.read(self.crew.names()).map_err(|error| not_run(&error))?;
        let events = self.tails.take();
        self.keep(&events).map_err(|error| not_run(&error))?;
        self.crew.forget_what_was_read().map_err(|error| not_run(&error))?;
        self.shown = self.ledger.judge(events);
        Ok(())
    }

    /// Writes the history down, where one is wished for.
    fn keep(&mut self, events: &[Event]) -> io::Result<()> {
        let Some(file) = &mut self.history else { return Ok(()) };
        let mut text = String::new();
        for event in events {
            text.push_str(&event.line()?);
        }
        file.write_all(text.as_bytes())
    }

    fn conclude(mut self) -> Result<Ran, Failure> {
        fs::write(self.folder.path().join(STOP), "").map_err(|error| not_run(&error))?;
        let took = Duration::from_nanos(boot_ns().saturating_sub(self.started_ns));
        for slot in &self.crew.slots {
            // Whoever does not end by itself is killed when the crew is dropped.
            let _ = slot.child.wait(PATIENCE);
        }
        let has_links = self.crew.slots.iter().any(|slot| !slot.links.is_empty());
        let measured = Measured {
            took,
            ttl: self.ttl,
            observed_expiry: self.options.recipe == Recipe::Leases && is_observed(&self.facts),
            faults: self.faults.counts,
            has_links,
            vitals: self.meter.vitals(),
            offset: self.offset,
            usage: self.samples.usage(),
            namespace: self.leases.namespace().to_string(),
        };
        let verdict = Verdict::of(&self.ledger, self.options.recipe);
        let history = match (&self.options.history, &verdict) {
            (Some(path), _) => Some(path.clone()),
            // Evidence is never thrown away.
            (None, Verdict::Violation) => {
                let path = Path::new(&format!("verify-{}.jsonl", self.options.seed)).to_owned();
                let mut file = create(&path)?;
                let events = std::mem::take(&mut self.shown);
                for event in &events {
                    let line = event.line().map_err(io::Error::other);
                    line.and_then(|line| file.write_all(line.as_bytes())).map_err(|error| not_run(&error))?;
                }
                self.shown = events;
                Some(path)
            }
            _ => None,
        };
        let report = Report::of_run(self.options, self.ledger, verdict, self.facts, measured, history);
        Ok(Ran { report, events: self.shown })
    }
}

fn is_observed(facts: &Facts) -> bool {
    facts.engine == "postgres" && facts.caveat.contains("nobody watched")
}

fn interrupted(signal: Signal) -> Failure {
    Failure::answer(
        Exit::Interrupted(signal),
        "interrupted",
        format!("ended by {signal}; nothing was judged"),
    )
}

fn create(path: &Path) -> Result<File, Failure> {
    let opened = OpenOptions::new().create(true).write(true).truncate(true).open(path);
    opened.map_err(|error| {
        let what = format!("cannot write the history {}: {error}", path.display());
        Failure::error(Exit::NotRun, "verify", what)
    })
}

/// The TTL of the run: a second, or many round trips where those are long, in the engine's steps.
fn ttl(options: &Options, leases: &Leases) -> Result<Ttl, Failure> {
    if let Some(ttl) = options.ttl {
        return Ok(ttl);
    }
    let vitals = block_on(leases.measure(Duration::from_millis(200)))
        .map_err(|error| Failure::from(error).moved_to(Exit::NotRun))?;
    let step = Duration::from_millis(u64::from(leases.profile().capabilities.ttl_step_ms.get()));
    let ttl = LEAST_TTL.max(vitals.round_trip.p99 * 30).max(step * 2);
    Ok(Ttl::new(ttl)?.min(leases.profile().max_ttl))
}

/// Does the lease file answer while a worker stands still? One that stands still inside its commit keeps it locked.
fn answers(leases: &Leases, ttl: Ttl) -> bool {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return false;
    };
    let probe = leases.lease("probe").ttl(ttl.as_duration()).attempt();
    runtime.block_on(async { tokio::time::timeout(ttl.as_duration() / 2, probe).await.is_ok() })
}

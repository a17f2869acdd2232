//! Runs a plan: engine by engine, group by group, round by round; within a round everybody in turn, so that all meet the same
//! machine.

use std::{
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{
    plan::{Entry, Group, Program, Side},
    results::{Line, Results},
    rivals::Rivals,
    stage::{Running, Stage},
    task::{Answer, Failure, Task, What},
};

/// Beyond what a task measures for: to start, to join a line, to end.
const PATIENCE: Duration = Duration::from_secs(90);
/// Beyond that, to acquire and to release one lease among many.
const PATIENCE_EACH: Duration = Duration::from_millis(2);
/// A rival that hangs is given up sooner: its measurement needs a few seconds.
const PATIENCE_WITH_RIVALS: Duration = Duration::from_secs(20);

/// Carries a plan out.
pub(crate) struct Runner<'a> {
    pub(crate) rivals: &'a Rivals,
    pub(crate) rounds: u32,
    /// Where lines go as they come.
    pub(crate) log: &'a mut dyn Write,
    /// For the output of who is measured.
    pub(crate) folder: &'a Path,
}

impl Runner<'_> {
    /// Measures everything. What fails is noted and goes on.
    ///
    /// # Errors
    /// When an engine does not start, or lines cannot be written.
    pub(crate) fn run(&mut self, groups: &[Group], mut tell: impl FnMut(&str)) -> Result<Results, Failure> {
        let mut results = Results::default();
        for on_stage in groups.chunk_by(|one, other| one.stage == other.stage) {
            let Some(stage) = on_stage.first().map(|group| group.stage) else { continue };
            let running = Running::start(stage)?;
            for group in on_stage {
                tell(&format!("{stage}: {} ({} in turn)", group.title, group.entries.len()));
                self.group(group, &running, &mut results)?;
            }
        }
        Ok(results)
    }

    fn group(&mut self, group: &Group, running: &Running, results: &mut Results) -> Result<(), Failure> {
        let rounds = if group.once { 1 } else { self.rounds };
        for round in 0..rounds {
            for entry in &group.entries {
                let cell = entry.cell(group.stage);
                // Who could not be measured once is not asked again: it hung, or is not there.
                if results.failure(&cell).is_some() && entry.who.side == Side::Rival {
                    continue;
                }
                let outcome = self.measure(group, entry, running);
                let line = Line { cell, round, outcome };
                writeln!(self.log, "{}", serde_json::to_string(&line)?)?;
                results.add(line);
            }
        }
        Ok(())
    }

    fn measure(&self, group: &Group, entry: &Entry, running: &Running) -> Result<Answer, String> {
        let task = Task {
            engine: group.stage.engine().to_owned(),
            what: entry.what,
            who: entry.who.id.to_owned(),
            size: entry.size,
            millis: group.millis,
            url: running.url.clone(),
            hosts: running.hosts.clone(),
            pids: running.pids.clone(),
            folder: running.folder().to_owned(),
        };
        let _spinners = Spinners::start(steadied(group.stage, entry));
        if entry.what != What::Stalled {
            return self.ask(entry.who.program, &task);
        }
        running.stall(true).map_err(|error| error.to_string())?;
        let answer = self.ask(entry.who.program, &task);
        running.stall(false).map_err(|error| error.to_string())?;
        answer
    }

    fn ask(&self, program: Program, task: &Task) -> Result<Answer, String> {
        let text = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let spawn = self.rivals.program(program)?.arg(text).bound_to_starter();
        let child = spawn.start("measured", self.folder).map_err(|error| format!("not started: {error}"))?;
        let own = PATIENCE + PATIENCE_EACH * task.size;
        let patience = if program == Program::Own { own } else { PATIENCE_WITH_RIVALS };
        let limit = task.span() + patience;
        let Ok(status) = child.wait(limit) else {
            return Err(format!("hung: no answer within {} s", limit.as_secs()));
        };
        let said = child.stdout().unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if !status.success() {
            let errors = child.stderr().unwrap_or_default();
            let why = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            return Err(format!("failed: {}", why.trim()));
        }
        serde_json::from_str(last).map_err(|_| "failed: it printed no figures".to_owned())
    }
}

/// Whether a lone request waits for nothing but a processor.
fn steadied(stage: Stage, entry: &Entry) -> bool {
    let lone = match entry.what {
        What::Pairs => entry.size == 1,
        What::HandOver => true,
        _ => false,
    };
    stage.wants_spinners() && lone
}

/// Programs that keep the processors from falling asleep and give way to everybody.
struct Spinners(Vec<Child>);

impl Spinners {
    /// One for each processor of the published machine.
    fn start(wanted: bool) -> Self {
        let Ok(program) = std::env::current_exe() else { return Self(Vec::new()) };
        let spinner = |_| {
            let mut command = Command::new("nice");
            command.args(["-n", "19"]).arg(&program).arg("spin");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
        };
        Self((0..if wanted { 2 } else { 0 }).filter_map(spinner).collect())
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for spinner in &mut self.0 {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
    }
}

/// What a spinner does: nothing, until its parent has ended or killed it.
pub(crate) fn spin() -> Result<(), Failure> {
    let parent = nix::unistd::getppid();
    leasehold_testkit::process::end_with_parent(parent.as_raw().unsigned_abs())?;
    loop {
        std::hint::spin_loop();
    }
}

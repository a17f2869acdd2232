//! `bench`: what this coordinator gives, measured from here.
//!
//! ```text
//!   args ──▶ Plan ──▶ parts (pairs, hand-over, renewals) ──▶ figures ──▶ table or JSON
//!                        └─▶ progress (a bar on a terminal)
//! ```
//!
//! Everything happens in a namespace of its own, on resources whose names are the same each time, so that nothing grows;
//! and under a lease, so that two measurements do not measure each other.

mod figures;
mod parts;
mod progress;

use std::{rc::Rc, time::Duration};

use leasehold::{Namespace, Wait, blocking::block_on};
use serde::Serialize;

use crate::{
    args::Bench, client, duration, exit::Exit, failure::Failure, interrupt::Interrupts, people,
    settings::Settings,
};
use figures::{HandOver, Pairs, Renewals};
use parts::Claimant;
use progress::Progress;

/// How long each part takes when nobody says (ours: thousands of operations on every engine, and no coffee).
const EACH: Duration = Duration::from_secs(3);
const EACH_BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3_600));
/// Where it happens unless `--namespace` says otherwise.
const NAMESPACE: &str = "leasehold-bench";
/// The resource whose lease keeps a second measurement away.
const TURN: &str = "turn";
/// After an interruption, what was acquired may take this long to be released.
const FAREWELL: Duration = Duration::from_secs(5);

/// What to measure; all bounds are checked.
#[derive(Clone, Copy, Debug)]
struct Plan {
    each: Duration,
    tasks: u16,
    waiters: u16,
    leases: u32,
}

#[derive(Debug, Serialize)]
struct Line {
    place: String,
    namespace: String,
    /// One task, one resource: what a lone caller sees.
    pairs: Pairs,
    /// Many tasks of one client, each with a resource of its own.
    pairs_together: Pairs,
    hand_over: HandOver,
    renewals: Renewals,
}

pub(crate) fn run(args: &Bench, settings: &Settings) -> Result<Exit, Failure> {
    let plan = plan(args)?;
    let settings = Rc::new(Settings { namespace: namespace(settings)?, ..settings.clone() });
    let interrupts =
        Interrupts::watch().map_err(|error| Failure::usage(format!("signals cannot be watched: {error}")))?;
    let claimant = Claimant::over(client::connect(&settings, client::operator)?, &settings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Failure::usage(format!("no runtime: {error}")))?;
    let local = tokio::task::LocalSet::new();
    let measured = local.block_on(&runtime, interrupts.watching(measure(plan, &claimant, &settings)));
    // What an interruption cut off is given back.
    block_on(claimant.leases.close(FAREWELL));
    match measured {
        Ok(line) => {
            let line = line?;
            settings.output.result(&line, || describe(&line))?;
            Ok(Exit::Done)
        }
        Err(signal) => Ok(Exit::Interrupted(signal)),
    }
}

fn plan(args: &Bench) -> Result<Plan, Failure> {
    let each = args.each.as_deref().map_or(Ok(EACH), |text| duration::parse("--for", text))?;
    if each < EACH_BOUNDS.0 || each > EACH_BOUNDS.1 {
        return Err(Failure::usage("--for: must be 200ms to 1h"));
    }
    let bounded = |option: &str, value: u32, most: u32| {
        if (1..=most).contains(&value) {
            Ok(value)
        } else {
            Err(Failure::usage(format!("{option}: must be 1 to {most}")))
        }
    };
    let narrow = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    Ok(Plan {
        each,
        tasks: narrow(bounded("--tasks", args.tasks, 1_024)?),
        waiters: narrow(bounded("--waiters", args.waiters, 64)?),
        leases: bounded("--leases", args.leases, 100_000)?,
    })
}

/// The namespace that was asked for, or one where nothing but measurements happens.
fn namespace(settings: &Settings) -> Result<Namespace, Failure> {
    if settings.namespace == Namespace::default() {
        return Ok(Namespace::new(NAMESPACE)?);
    }
    Ok(settings.namespace.clone())
}

async fn measure(plan: Plan, claimant: &Claimant, settings: &Rc<Settings>) -> Result<Line, Failure> {
    let turn = claimant.take(TURN, Wait::No, claimant.usual_ttl()).await?;
    let progress = Progress::new(settings.output, plan.each);
    let line = Line {
        place: claimant.leases.profile().place.clone(),
        namespace: claimant.leases.namespace().to_string(),
        pairs: progress.during("one task", parts::pairs(claimant, 1, plan.each)).await?,
        pairs_together: {
            let name = format!("{} tasks together", plan.tasks);
            progress.during(&name, parts::pairs(claimant, plan.tasks, plan.each)).await?
        },
        hand_over: {
            let name = format!("hand-over, {} waiting", plan.waiters);
            progress.during(&name, parts::hand_over(settings, plan.waiters, plan.each)).await?
        },
        renewals: {
            let name = format!("{} leases held", plan.leases);
            progress.during(&name, parts::renewals(settings, plan.leases, plan.each)).await?
        },
    };
    progress.over();
    parts::release(turn).await?;
    Ok(line)
}

fn describe(line: &Line) -> Vec<String> {
    let mut lines = vec![format!("{}, namespace {}", line.place, line.namespace), String::new()];
    let mut rows = Vec::new();
    rows.extend(line.pairs.rows());
    rows.extend(line.pairs_together.rows());
    rows.extend(line.hand_over.rows());
    let head = Some(["", "per second", "p50", "p99", "max"]);
    lines.extend(crate::table::table(head, &rows).lines().map(str::to_owned));
    lines.push(String::new());
    lines.extend(line.renewals.lines());
    lines.push(format!(
        "each part took {}; compare figures of one run only: machines, disks and neighbours are noisy",
        people::duration(Duration::from_millis(line.pairs.took_ms))
    ));
    lines
}

//! `verify`: workers, faults and a judge on the user's own coordinator; and the judge alone, on a history.

mod check;

use std::{path::Path, time::Duration};

use leasehold_testkit::{check::Event, random};

use crate::{
    args::{Verify, VerifyVerb},
    duration,
    exit::Exit,
    failure::Failure,
    output::Output,
    settings::Settings,
    verify::{self, Options, Recipe, Report, lines},
};

/// Without `--for`.
const DEFAULT_TIME: Duration = Duration::from_secs(60);
const DEFAULT_WORKERS: usize = 8;
/// Fewer do not contend; more are a load test.
const WORKERS: std::ops::RangeInclusive<usize> = 3..=64;
const TIMES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

pub(crate) fn run(
    args: &Verify,
    output: Output,
    settings: impl FnOnce() -> Result<Settings, Failure>,
) -> Result<Exit, Failure> {
    match &args.verb {
        Some(VerifyVerb::Worker) => return verify::work(),
        Some(VerifyVerb::Check(check)) => return check::run(check, output),
        None => {}
    }
    let (options, settings) = (options(args)?, settings()?);
    let ran = verify::run(&options, &settings)?;
    conclude(&ran.report, &ran.events, args.html.as_deref(), output)
}

fn options(args: &Verify) -> Result<Options, Failure> {
    let time = args.time.as_deref().map_or(Ok(DEFAULT_TIME), |text| duration::parse("--for", text))?;
    if !TIMES.contains(&time) {
        return Err(Failure::usage("--for: must be 1s to 7d"));
    }
    let workers = args.workers.unwrap_or(DEFAULT_WORKERS);
    if !WORKERS.contains(&workers) {
        return Err(Failure::usage(format!("--workers: must be {} to {}", WORKERS.start(), WORKERS.end())));
    }
    let recipe = match args.baseline.as_deref() {
        None => Recipe::Leases,
        Some("naive") => Recipe::Naive,
        Some(other) => {
            return Err(Failure::usage(format!("--baseline: there is no {other}")).advise("say naive"));
        }
    };
    let ttl = args.ttl.as_deref().map(|text| duration::ttl("--ttl", text)).transpose()?;
    let seed = args.seed.unwrap_or_else(|| random::seed() % 1_000_000);
    Ok(Options { time, workers, seed, recipe, ttl, history: args.history.clone() })
}

/// Tells the result. It is a result also when it is no pass, so it stands on the standard output.
fn conclude(report: &Report, events: &[Event], html: Option<&Path>, output: Output) -> Result<Exit, Failure> {
    if let Some(path) = html {
        std::fs::write(path, verify::page(report, events)).map_err(|error| {
            Failure::error(Exit::NotRun, "verify", format!("cannot write {}: {error}", path.display()))
        })?;
    }
    output.result(report, || lines(report))?;
    Ok(report.verdict.exit())
}

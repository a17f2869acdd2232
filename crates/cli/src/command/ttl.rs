//! `ttl`: derives a TTL from measurements and shows every part of it.

use std::{num::NonZeroU32, time::Duration};

use leasehold::core::derive_ttl::{Derivation, Figure, Granularity, Inputs, Underivable, derive};
use serde::Serialize;

use crate::{args::Ttl, duration, exit::Exit, failure::Failure, output::Output};

pub(crate) fn run(args: &Ttl, output: Output) -> Result<Exit, Failure> {
    let inputs = inputs(args)?;
    let derived = derive(&inputs).map_err(|reason| {
        let failure = Failure::usage(reason.to_string());
        match reason {
            Underivable::Missing(_) => failure.advise("give --work-p99, --rtt-p99 and --margin"),
            _ => failure,
        }
    })?;
    let line = Line {
        covering: FigureFields::of(&derived.covering),
        renewed: FigureFields::of(&derived.renewed),
        findings: derived
            .findings
            .iter()
            .map(|finding| FindingFields { finding: finding.word(), text: finding.to_string() })
            .collect(),
    };
    output.result(&line, || describe(&derived))?;
    Ok(Exit::Done)
}

fn inputs(args: &Ttl) -> Result<Inputs, Failure> {
    let read =
        |option, text: &Option<String>| text.as_deref().map(|text| duration::parse(option, text)).transpose();
    let defaults = Inputs::default();
    let engine = match read("--granularity", &args.granularity)? {
        None => defaults.engine,
        Some(step) => granularity(step)?,
    };
    Ok(Inputs {
        work_p99: read("--work-p99", &args.work_p99)?,
        rtt_p99: read("--rtt-p99", &args.rtt_p99)?,
        margin: read("--margin", &args.margin)?,
        drift: read("--drift", &args.drift)?.unwrap_or(defaults.drift),
        step: read("--step", &args.step)?.unwrap_or(defaults.step),
        pause_p99: read("--pause-p99", &args.pause_p99)?,
        engine,
        ..defaults
    })
}

/// What an engine counts in is also the least that it grants.
fn granularity(step: Duration) -> Result<Granularity, Failure> {
    let refuse = || Failure::usage("--granularity: must be a whole number of milliseconds, from 1ms to 7d");
    let in_ms = u32::try_from(step.as_millis()).ok().and_then(NonZeroU32::new).ok_or_else(refuse)?;
    if Duration::from_millis(in_ms.get().into()) != step || step > leasehold::Ttl::MAX.as_duration() {
        return Err(refuse());
    }
    Ok(Granularity { step_ms: in_ms, min_ms: in_ms })
}

fn describe(derived: &Derivation) -> Vec<String> {
    let mut lines = Vec::new();
    let titles = [
        (&derived.covering, "nobody renews it (acquire): it must cover one piece of work"),
        (&derived.renewed, "renewed in the background (run, the library): it must survive a lost renewal"),
    ];
    for (figure, title) in titles {
        let shown = figure.ttl.map_or_else(|| "no TTL".to_owned(), |ttl| ttl.to_string());
        lines.push(format!("{shown}  {title}"));
        for part in figure.parts.iter().filter(|part| !part.adds.is_zero()) {
            let drives = if part.component == figure.drives { "  <- drives it" } else { "" };
            lines.push(format!("  {:>10}  {}{drives}", format!("{:?}", part.adds), part.component));
        }
        if figure.ttl.is_some() {
            lines.push(format!("  {:>10}  window left to the holder", format!("{:?}", figure.window)));
        }
        lines.push(String::new());
    }
    if derived.findings.is_empty() {
        lines.pop();
    }
    lines.extend(derived.findings.iter().map(|finding| format!("note: {finding}")));
    lines
}

#[derive(Debug, Serialize)]
struct Line {
    covering: FigureFields,
    renewed: FigureFields,
    findings: Vec<FindingFields>,
}

#[derive(Debug, Serialize)]
struct FigureFields {
    /// `null` when it is above the longest TTL there is.
    ttl_ms: Option<u64>,
    exact_us: u64,
    window_us: u64,
    drives: &'static str,
    parts: Vec<PartFields>,
}

#[derive(Debug, Serialize)]
struct PartFields {
    part: &'static str,
    adds_us: u64,
}

#[derive(Debug, Serialize)]
struct FindingFields {
    finding: &'static str,
    text: String,
}

impl FigureFields {
    fn of(figure: &Figure) -> Self {
        let parts = figure
            .parts
            .iter()
            .map(|part| PartFields { part: part.component.word(), adds_us: micros(part.adds) });
        Self {
            ttl_ms: figure.ttl.map(leasehold::Ttl::as_millis),
            exact_us: micros(figure.exact),
            window_us: micros(figure.window),
            drives: figure.drives.word(),
            parts: parts.collect(),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

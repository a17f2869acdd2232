//! `ttl`: derives a TTL from measurements and shows every part of it.

mod measured;

use std::{num::NonZeroU32, time::Duration};

use leasehold::core::derive_ttl::{
    Component, Derivation, Figure, Finding, Granularity, Inputs, Underivable, derive,
};
use serde::Serialize;

use crate::{args::Ttl, duration, exit::Exit, failure::Failure, output::Output, settings::Settings};
use measured::{Measured, MeasuredFields};

pub(crate) fn run(
    args: &Ttl,
    output: Output,
    settings: impl FnOnce() -> Result<Settings, Failure>,
) -> Result<Exit, Failure> {
    let given = inputs(args)?;
    let asked = args.check.as_deref().map(|text| duration::ttl("--check", text)).transpose()?;
    let measured = match args.measure.as_deref() {
        Some(text) => Some(measured::measure(duration::parse("--measure", text)?, &settings()?)?),
        None => None,
    };
    let inputs = measured.as_ref().map_or(given, |found| found.fill(given, args.granularity.is_some()));
    // Who measured and says nothing of the work, or only wants to know about a TTL that is renewed, asks one question less.
    let renewed_only =
        (measured.is_some() || asked.is_some()) && given.work_p99.is_none() && given.margin.is_none();
    let inputs = if renewed_only {
        Inputs { work_p99: Some(Duration::ZERO), margin: Some(Duration::ZERO), ..inputs }
    } else {
        inputs
    };
    let mut derived = derive(&inputs).map_err(|reason| {
        let failure = Failure::usage(reason.to_string());
        match reason {
            Underivable::Missing(_) => failure.advise("give --work-p99, --rtt-p99 and --margin"),
            _ => failure,
        }
    })?;
    if renewed_only {
        derived.findings.retain(|finding| is_about_renewal(*finding));
    }
    let verdict = asked.map(|asked| CheckFields::of(asked, &derived.renewed));
    let line = Line {
        measured: measured.as_ref().map(Measured::fields),
        check: verdict,
        covering: (!renewed_only).then(|| FigureFields::of(&derived.covering)),
        renewed: FigureFields::of(&derived.renewed),
        findings: derived
            .findings
            .iter()
            .map(|finding| FindingFields { finding: finding.word(), text: finding.to_string() })
            .collect(),
    };
    output.result(&line, || {
        let lines =
            measured.iter().flat_map(Measured::lines).chain(verdict.iter().flat_map(CheckFields::lines));
        lines.chain(describe(&derived, renewed_only)).collect()
    })?;
    Ok(if verdict.is_some_and(|verdict| !verdict.enough) { Exit::Unfit } else { Exit::Done })
}

/// Findings that say something where nothing is known of the work.
fn is_about_renewal(finding: Finding) -> bool {
    matches!(
        finding,
        Finding::PauseUnknown | Finding::RenewedAboveMax(_) | Finding::Zero(Component::RoundTrip)
    )
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

fn describe(derived: &Derivation, renewed_only: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let titles = [
        (&derived.covering, "nobody renews it (acquire): it must cover one piece of work"),
        (&derived.renewed, "renewed in the background (run, the library): it must survive a lost renewal"),
    ];
    for (figure, title) in titles.into_iter().skip(usize::from(renewed_only)) {
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
    /// Only where something was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<MeasuredFields>,
    /// Only where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<CheckFields>,
    /// `null` where nothing is known of the work.
    covering: Option<FigureFields>,
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

/// Is this TTL long enough for a lease that is renewed?
#[derive(Clone, Copy, Debug, Serialize)]
struct CheckFields {
    ttl_ms: u64,
    needed_us: u64,
    enough: bool,
}

impl CheckFields {
    fn of(asked: leasehold::Ttl, renewed: &Figure) -> Self {
        // Rounding is for whoever chooses a figure; this one is chosen.
        let needed = renewed.exact.max(leasehold::Ttl::MIN.as_duration());
        Self { ttl_ms: asked.as_millis(), needed_us: micros(needed), enough: asked.as_duration() >= needed }
    }

    fn lines(&self) -> Vec<String> {
        let (asked, needed) = (Duration::from_millis(self.ttl_ms), Duration::from_micros(self.needed_us));
        let verdict = if self.enough { "is enough for" } else { "is too short for" };
        vec![format!("{asked:?} {verdict} a lease that is renewed, which needs {needed:?}"), String::new()]
    }
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

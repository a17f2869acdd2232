//! The report of a run or of a history, for people and for machines.

use std::{path::PathBuf, time::Duration};

use leasehold::{Ttl, Vitals};
use leasehold_testkit::check::{Event, Violation, What};
use serde::Serialize;

use super::{
    Ledger, Options, Recipe, Verdict,
    facts::{ClockOffset, Facts},
    faults::Counts,
    usage::Usage,
};
use crate::people;

/// What a takeover needs beyond the TTL: a waiter looks again after a second at the latest, and a waiter that has died in
/// front of it is passed over after half a second.
const WAITERS: Duration = Duration::from_millis(1_500);
/// The median of fewer says more of this machine than of the coordinator: one waiter may have stood behind several that died.
const ENOUGH_TAKEOVERS: u64 = 10;
/// etcd ends leases up to half a second late, and a commit later; its own granularity is in the TTL already.
const ETCD_LAG: Duration = Duration::from_secs(1);

/// So long the engine remembers resources that nobody uses, where they are not discarded.
const REMEMBERED: &str = "7d";

/// What the parent has measured.
pub(super) struct Measured {
    pub(super) took: Duration,
    pub(super) ttl: Ttl,
    pub(super) observed_expiry: bool,
    pub(super) faults: Counts,
    pub(super) has_links: bool,
    pub(super) vitals: Vitals,
    pub(super) offset: Option<ClockOffset>,
    pub(super) usage: Usage,
    pub(super) namespace: String,
}

/// One invariant.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) invariant: &'static str,
    pub(crate) text: String,
    pub(crate) violations: u64,
    /// Figures: `None` where nothing could be broken.
    pub(crate) tried: Option<u64>,
    pub(crate) pass: bool,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    pub(crate) run: Option<Run>,
    pub(crate) grants: u64,
    pub(crate) renewals: u64,
    pub(crate) handovers: u64,
    pub(crate) invariants: Vec<Line>,
    pub(crate) control_landed: u64,
    pub(crate) takeover_p50_ms: Option<u64>,
    pub(crate) takeover_max_ms: Option<u64>,
    pub(crate) takeovers: u64,
    /// The smallest evidence.
    pub(crate) violations: Vec<Violation>,
    pub(crate) history: Option<PathBuf>,
}

/// What only a run knows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) recipe: Recipe,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) clock: Option<ClockOffset>,
    pub(crate) workers: usize,
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) ttl_ms: u64,
    #[serde(flatten)]
    pub(crate) faults: Counts,
    pub(crate) has_links: bool,
    pub(crate) takeover_bound_ms: u64,
    pub(crate) rtt_p50_us: u64,
    pub(crate) rtt_p99_us: u64,
    pub(crate) rtt_max_us: u64,
    pub(crate) host_pause_max_us: u64,
    pub(crate) usage: Usage,
    pub(crate) namespace: String,
    /// Why something of it may be left at the coordinator; `None` when nothing is.
    pub(crate) left: Option<String>,
}

impl Report {
    /// Of a run.
    pub(super) fn of_run(
        options: &Options,
        ledger: Ledger,
        verdict: Verdict,
        facts: Facts,
        measured: Measured,
        history: Option<PathBuf>,
    ) -> Self {
        let vitals = measured.vitals;
        let lag = match facts.engine {
            "etcd" => ETCD_LAG,
            // The first look of a waiter may come just after a renewal.
            _ if measured.observed_expiry => measured.ttl.as_duration(),
            _ => Duration::ZERO,
        };
        let slow = vitals.round_trip.max + vitals.host_pause.max;
        let bound = measured.ttl.as_duration() + lag + WAITERS + slow;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let run = Run {
            recipe: options.recipe,
            facts,
            clock: measured.offset,
            workers: options.workers,
            seed: options.seed,
            seconds: measured.took.as_secs(),
            ttl_ms: measured.ttl.as_millis(),
            faults: measured.faults,
            has_links: measured.has_links,
            takeover_bound_ms: super::plan::millis(bound),
            rtt_p50_us: micros(vitals.round_trip.p50),
            rtt_p99_us: micros(vitals.round_trip.p99),
            rtt_max_us: micros(vitals.round_trip.max),
            host_pause_max_us: micros(vitals.host_pause.max),
            usage: measured.usage,
            namespace: measured.namespace,
            // Known when it is over.
            left: None,
        };
        let mut report = Self::of_history(ledger, verdict);
        report.history = history;
        if options.recipe == Recipe::Leases {
            report.judge_run(&run);
        }
        report.run = Some(run);
        report
    }

    /// What does not follow from the events alone.
    fn judge_run(&mut self, run: &Run) {
        let enough = self.takeovers >= ENOUGH_TAKEOVERS;
        let late = is_late(self.takeovers, self.takeover_p50_ms, run.takeover_bound_ms);
        let text = match (self.takeover_p50_ms, self.takeover_max_ms) {
            (Some(p50), Some(max)) => {
                let [p50, max, bound] = [p50, max, run.takeover_bound_ms].map(milliseconds);
                let judged = if enough { "" } else { ", too few to be judged" };
                format!(
                    "takeover after an unclean end: p50 {p50}, max {max}, bound {bound} for the p50{judged}"
                )
            }
            _ => "takeover after an unclean end: none was seen".to_owned(),
        };
        let tried = Some(self.takeovers);
        self.invariants.push(Line { invariant: "L1", text, violations: u64::from(late), tried, pass: !late });
        let usage = run.usage;
        let leaks = !usage.is_bounded();
        let text = format!(
            "memory of one process at most {} MiB (grew by {}), descriptors {} (grew by {})",
            usage.memory_kib / 1_024,
            usage.memory_growth_kib / 1_024,
            usage.descriptors,
            usage.descriptors_growth
        );
        self.invariants.push(Line {
            invariant: "use",
            text,
            violations: u64::from(leaks),
            tried: None,
            pass: !leaks,
        });
        let verdict = std::mem::replace(&mut self.verdict, Verdict::Pass);
        self.verdict = if late || leaks {
            Verdict::Violation
        } else {
            verdict.unless(self.takeovers == 0, || "nobody took over from a holder that had died".to_owned())
        };
    }

    /// Of events alone.
    pub(crate) fn of_history(ledger: Ledger, verdict: Verdict) -> Self {
        let ms = |ns: Option<u64>| ns.map(|ns| ns / 1_000_000);
        Self {
            verdict,
            run: None,
            grants: ledger.grants,
            renewals: ledger.extensions,
            handovers: ledger.handovers,
            invariants: invariants(&ledger),
            control_landed: ledger.control_landed,
            takeover_p50_ms: ms(ledger.takeover(0.5)),
            takeover_max_ms: ms(ledger.takeover(1.0)),
            takeovers: ledger.takeovers_ns.len() as u64,
            violations: ledger.shown,
            history: None,
        }
    }
}

/// One line for each invariant that people ask about, and one for all others.
fn invariants(ledger: &Ledger) -> Vec<Line> {
    let line = |invariant: &'static str, name: &str, tried: u64, text: String| {
        let violations = ledger.breaches(name);
        Line { invariant, text, violations, tried: Some(tried), pass: violations == 0 }
    };
    let stale = ledger.stale_tried();
    let mut lines = vec![
        line(
            "S1",
            "S1-overlap",
            ledger.handovers,
            format!("windows overlap, in {} hand-overs", ledger.handovers),
        ),
        line("S2", "S2-order", ledger.grants, format!("tokens out of order, in {} grants", ledger.grants)),
        line("S6", "S6-fence", stale, format!("stale writes let in by the fence, of {stale} tried")),
        line(
            "S10",
            "S10-ambiguity",
            ledger.disowned,
            format!("claims without an answer that stood after \"nothing stands\", of {}", ledger.disowned),
        ),
    ];
    let told = ["S1-overlap", "S2-order", "S6-fence", "S10-ambiguity"];
    let others: Vec<_> = ledger.broken.iter().filter(|(name, _)| !told.contains(name)).collect();
    let violations = others.iter().map(|(_, count)| **count).sum();
    let names = match others.as_slice() {
        [] => "S3 S4 S5 S7 S9 L9".to_owned(),
        broken => broken.iter().map(|(name, _)| **name).collect::<Vec<_>>().join(" "),
    };
    let text = format!("violations of the others ({names}), in {} events", ledger.events);
    lines
        .push(Line { invariant: "…", text, violations, tried: Some(ledger.events), pass: violations == 0 });
    lines
}

/// The report in lines for a terminal.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |name: &str, text: String| lines.push(format!("{name:<9} {text}"));
    if let Some(run) = &report.run {
        before(run, &mut say);
    }
    say("judged", judged(report));
    for line in &report.invariants {
        let word = if line.pass { "PASS" } else { "FAIL" };
        // Some are counted and some are measured.
        let counted = !matches!(line.invariant, "L1" | "use");
        let text = if counted { format!("{} {}", line.violations, line.text) } else { line.text.clone() };
        say(line.invariant, format!("{text:<84} {word}"));
        if line.invariant == "S6" {
            say("", control(report.control_landed));
        }
    }
    if let Some(run) = &report.run {
        after(run, &mut say);
    }
    for violation in &report.violations {
        say("violation", format!("{} on {}: {}", violation.invariant, violation.resource, violation.text));
        for event in evidence(violation) {
            say("", event);
        }
    }
    let history = match &report.history {
        Some(path) => format!("   history: {}", path.display()),
        None => String::new(),
    };
    match &report.verdict {
        Verdict::Pass => say("result", format!("PASS (exit 0){history}")),
        Verdict::Violation => say("result", format!("VIOLATION (exit 1){history}")),
        Verdict::Inconclusive(why) => {
            say("result", format!("INCONCLUSIVE (exit 2): {}{history}", why.join("; ")));
        }
    }
    lines
}

fn before(run: &Run, say: &mut impl FnMut(&str, String)) {
    let facts = &run.facts;
    let store = if facts.store.is_empty() { String::new() } else { format!("  {}", facts.store) };
    say("store", format!("{}  doctor: {}{store}", facts.place, facts.doctor));
    if let Some(clock) = &run.clock {
        say("clock", format!("server - client {:+.1} ms ± {:.1}", clock.offset_ms, clock.error_ms));
    }
    match run.recipe {
        Recipe::Leases => {
            let Facts { windows, tokens, after_failover, .. } = facts;
            say(
                "label",
                format!(
                    "windows: {windows} · tokens: {tokens} · after a restart or failover: {after_failover}"
                ),
            );
        }
        Recipe::Naive => {
            say("recipe", "the textbook's: a key with an expiry, and nothing that checks".to_owned());
        }
    }
    let cuts = if run.has_links { format!(", {} cuts", run.faults.cuts) } else { String::new() };
    say(
        "run",
        format!(
            "{} workers, seed {}, {}, TTL {}: {} kills, {} pauses past the TTL{cuts}",
            run.workers,
            run.seed,
            people::duration(Duration::from_secs(run.seconds)),
            milliseconds(run.ttl_ms),
            run.faults.kills,
            run.faults.pauses,
        ),
    );
}

fn judged(report: &Report) -> String {
    let Report { grants, renewals, handovers, .. } = report;
    format!("{grants} grants, {renewals} renewals, {handovers} hand-overs")
}

fn control(landed: u64) -> String {
    let meaning = if landed == 0 { "the test could not have failed" } else { "the test can see the fault" };
    format!("control: {landed} stale writes landed where nothing is fenced   ({meaning})")
}

fn after(run: &Run, say: &mut impl FnMut(&str, String)) {
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    let ms = |us: u64| us as f64 / 1e3;
    say(
        "rtt",
        format!(
            "p50 {:.1} p99 {:.1} max {:.0} ms · longest pause of this machine {:.0} ms   (a TTL for it: leasehold ttl --measure 1m)",
            ms(run.rtt_p50_us),
            ms(run.rtt_p99_us),
            ms(run.rtt_max_us),
            ms(run.host_pause_max_us)
        ),
    );
    let mut untested = vec!["failover", "power loss", "steps of the server's clock", "several machines"];
    if !run.has_links {
        untested.insert(0, "cuts of the network");
    }
    say("not shown", format!("{}   (see: leasehold doctor)", untested.join(", ")));
    let namespace = &run.namespace;
    let left = match &run.left {
        None => format!("nothing: the namespace {namespace} is discarded"),
        Some(why) => format!(
            "some of the namespace {namespace}, its resources for {REMEMBERED}: it could not be discarded, {why}"
        ),
    };
    say("left", left);
}

/// The events that show a violation: who, when after the first of them, with which token.
pub(super) fn evidence(violation: &Violation) -> Vec<String> {
    let zero_ns = violation.evidence.iter().map(|event| event.at_ns).min().unwrap_or(0);
    violation.evidence.iter().map(|event| told(event, zero_ns)).collect()
}

fn told(event: &Event, zero_ns: u64) -> String {
    let after = |ns: u64| {
        let (sign, off) = if ns < zero_ns { ('-', zero_ns - ns) } else { ('+', ns - zero_ns) };
        format!("{sign}{:.3} ms", Duration::from_nanos(off).as_secs_f64() * 1e3)
    };
    let what = match event.what {
        What::Granted { token, open_ns, close_ns, .. } => {
            format!(
                "granted with token {token}: believes from {} until {} or a renewal",
                after(open_ns),
                after(close_ns)
            )
        }
        What::Write { token, admitted, version, .. } => {
            let word = if admitted { "let in" } else { "refused" };
            format!("wrote under token {token}: {word}, version {version}")
        }
        What::Sealed { token, admitted, .. } => {
            let word = if admitted { "let in" } else { "refused" };
            format!("sealed under token {token}: {word}")
        }
        ref other => match other.token() {
            Some(token) => format!("{}, token {token}", word(other)),
            None => word(other).to_owned(),
        },
    };
    format!("{} {} (lease id {}): {what}", after(event.at_ns), event.process, event.lease_id)
}

/// What happened, in a word.
fn word(what: &What) -> &'static str {
    match what {
        What::Attempt => "asked",
        What::GaveUp => "gave up",
        What::Extended { .. } => "believes in a renewal",
        What::Held { .. } => "was told that it holds",
        What::Released { .. } => "released",
        What::Lost { .. } => "found it lost",
        What::Stands { .. } => "its grant stands",
        What::Disowned => "was told that nothing stands",
        _ => "other",
    }
}

fn milliseconds(ms: u64) -> String {
    people::duration(Duration::from_millis(ms))
}

fn is_late(takeovers: u64, p50_ms: Option<u64>, bound_ms: u64) -> bool {
    takeovers >= ENOUGH_TAKEOVERS && p50_ms.is_some_and(|p50| p50 > bound_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takeovers_are_late_by_their_median_and_few_of_them_never() {
        assert!(!is_late(1, Some(3_009), 2_517));
        assert!(is_late(ENOUGH_TAKEOVERS, Some(2_518), 2_517));
        assert!(!is_late(ENOUGH_TAKEOVERS, Some(2_517), 2_517));
        assert!(!is_late(0, None, 2_517));
    }
}

//! A history, read and sorted into grants.

use std::{collections::BTreeMap, fmt, io, path::Path};

use leasehold_core::{LeaseId, Token};

use core::time::Duration;

use super::{
    ClockErrors, Event, Fairness, Judged, Report, Violation, What, ambiguity, amnesia, conservative, effects,
    exact, fairness, fence, healthy, identity, numbering, order, orphan, overlap, quarantine, regression,
    resurrection, rightful, sealing, waiting,
};

/// Everything that was written down.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    errors: ClockErrors,
}

/// Why a history cannot be read.
#[derive(Debug)]
pub enum Unreadable {
    /// The file cannot be read.
    Io(io::Error),
    /// A line is no event. Only the last line of a file may be torn, and then lacks its end.
    Line {
        /// Which, from 1.
        number: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the history cannot be read: {error}"),
            Self::Line { number, error } => write!(f, "line {number} of the history is no event: {error}"),
        }
    }
}

impl std::error::Error for Unreadable {}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How long things may take once nothing is broken any more (after [`What::Calm`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// From an attempt to its grant.
    pub wait: Duration,
    /// From when a resource is free and somebody waits, to the next grant.
    pub handover: Duration,
    /// From when nobody believes in a grant any more to when it is gone from the coordinator.
    pub stands: Duration,
}

/// How belief in a grant ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The holder released.
    Released,
    /// The holder gave it up as lost.
    Lost,
}

/// One grant, from its events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantSpan {
    /// The event that began it.
    pub granted: Event,
    /// Its token.
    pub token: Token,
    /// When its request was sent; the answer where that is not known.
    pub sent_ns: u64,
    /// When belief began.
    pub open_ns: u64,
    /// When belief ended: the last close, or the moment it was released or lost if that came first.
    pub end_ns: u64,
    /// How it ended before its close, where it did.
    pub ending: Option<(u64, Ending)>,
}

impl GrantSpan {
    /// The resource.
    pub fn resource(&self) -> &str {
        &self.granted.resource
    }

    /// The lease id.
    pub fn lease_id(&self) -> LeaseId {
        self.granted.lease_id
    }
}

impl History {
    /// A history of these events, in any order.
    pub fn new(mut events: Vec<Event>) -> Self {
        // Stable: events of one process at the same moment stay as they were written.
        events.sort_by_key(|event| event.at_ns);
        Self { events, errors: ClockErrors::default() }
    }

    /// The same history, whose processes' clocks agree no better than this.
    #[must_use]
    pub fn within(mut self, errors: ClockErrors) -> Self {
        self.errors = errors;
        self
    }

    /// Reads JSON lines. A last line without its end was torn by the death of its writer and is left out.
    ///
    /// # Errors
    /// [`Unreadable::Line`] when any other line is no event.
    pub fn parse(text: &str) -> Result<Vec<Event>, Unreadable> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |(at, line)| {
            serde_json::from_str(line).map_err(|error| Unreadable::Line { number: at + 1, error })
        };
        whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
    }

    /// Reads and joins the histories that several processes wrote.
    ///
    /// # Errors
    /// [`Unreadable`] when one of them cannot be read.
    pub fn read<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, Unreadable> {
        let mut events = Vec::new();
        for path in paths {
            events.extend(Self::parse(&std::fs::read_to_string(path)?)?);
        }
        Ok(Self::new(events))
    }

    /// The events, by time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The grants of each resource, by the moment belief began.
    pub fn grants(&self) -> BTreeMap<&str, Vec<GrantSpan>> {
        let mut open: BTreeMap<(&str, LeaseId), GrantSpan> = BTreeMap::new();
        let mut grants: BTreeMap<&str, Vec<GrantSpan>> = BTreeMap::new();
        for event in &self.events {
            let key = (event.resource.as_str(), event.lease_id);
            match event.what {
                What::Granted { token, sent_ns, open_ns, close_ns, .. } => {
                    let span = GrantSpan {
                        granted: event.clone(),
                        token,
                        sent_ns: sent_ns.unwrap_or(open_ns),
                        open_ns,
                        end_ns: close_ns,
                        ending: None,
                    };
                    if let Some(before) = open.insert(key, span) {
                        grants.entry(key.0).or_default().push(before);
                    }
                }
                What::Extended { close_ns, .. } => {
                    if let Some(span) = open.get_mut(&key).filter(|span| span.ending.is_none()) {
                        span.end_ns = span.end_ns.max(close_ns);
                    }
                }
                What::Released { .. } => end(open.get_mut(&key), event.at_ns, Ending::Released),
                What::Lost { .. } => end(open.get_mut(&key), event.at_ns, Ending::Lost),
                _ => {}
            }
        }
        for ((resource, _), span) in open {
            grants.entry(resource).or_default().push(span);
        }
        for spans in grants.values_mut() {
            spans.sort_by_key(|span| span.open_ns);
        }
        grants
    }

    /// Judges safety.
    pub fn judge(&self) -> Report {
        let grants = self.grants();
        let mut report = Report { judged: self.count(&grants), ..Report::default() };
        for spans in grants.values() {
            overlap::judge(spans, &self.errors, &mut report.violations, &mut report.possible);
            order::judge(spans, &self.errors, &mut report.violations, &mut report.possible);
        }
        identity::judge(&self.events, &mut report.violations);
        resurrection::judge(&self.events, &mut report.violations);
        conservative::judge(&self.events, &mut report.violations);
        fence::judge(&self.events, &mut report.violations);
        sealing::judge(&self.events, &mut report.violations);
        numbering::judge(&self.events, &mut report.violations);
        exact::judge(&self.events, &mut report.violations);
        ambiguity::judge(&self.events, &mut report.violations);
        amnesia::judge(&self.events, &mut report.violations);
        regression::judge(&self.events, &mut report.violations);
        effects::judge(&self.events, &mut report.violations);
        healthy::judge_stuck(&self.events, &mut report.violations);
        quarantine::judge(&self.events, &mut report.violations);
        orphan::judge_locked(&self.events, &mut report.violations);
        rightful::judge(&self.events, &mut report.violations);
        report
    }

    /// Judges safety, and that once it was calm everything came to rest within these bounds.
    pub fn judge_within(&self, bounds: &Bounds) -> Report {
        let mut report = self.judge();
        waiting::judge(&self.events, bounds.wait, bounds.handover, &mut report.violations);
        orphan::judge(&self.events, bounds.stands, &mut report.violations);
        healthy::judge(&self.events, &mut report.violations);
        report
    }

    /// Judges safety, and whether everybody was served.
    pub fn judge_with(&self, fairness: &Fairness) -> Report {
        let mut report = self.judge();
        fairness::judge(&self.events, fairness, &mut report.violations);
        report
    }

    fn count(&self, grants: &BTreeMap<&str, Vec<GrantSpan>>) -> Judged {
        let count =
            |wanted: fn(&What) -> bool| self.events.iter().filter(|event| wanted(&event.what)).count();
        Judged {
            events: self.events.len(),
            grants: count(|what| matches!(what, What::Granted { .. })),
            extensions: count(|what| matches!(what, What::Extended { .. })),
            writes: count(|what| matches!(what, What::Write { .. })),
            handovers: grants.values().map(|spans| spans.len().saturating_sub(1)).sum(),
        }
    }
}

fn end(span: Option<&mut GrantSpan>, at_ns: u64, how: Ending) {
    if let Some(span) = span.filter(|span| span.ending.is_none()) {
        span.ending = Some((at_ns, how));
        span.end_ns = span.end_ns.min(at_ns);
    }
}

/// A violation shown by these events.
pub(super) fn violation(invariant: &'static str, text: String, evidence: &[&Event]) -> Violation {
    let resource = evidence.first().map(|event| event.resource.clone()).unwrap_or_default();
    Violation { invariant, resource, text, evidence: evidence.iter().map(|&event| event.clone()).collect() }
}

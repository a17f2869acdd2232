//! What a run shows: the checker's judgement, round by round, and the figures beside it.

use std::collections::{BTreeMap, HashMap, HashSet};

use leasehold::LeaseId;
use leasehold_testkit::check::{Ending, Event, History, Violation, What};

use super::plan::CONTROL;

/// The judgement so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) events: u64,
    pub(crate) grants: u64,
    pub(crate) extensions: u64,
    pub(crate) handovers: u64,
    /// Writes under an older token than one that was there before, at the fence: refused, and let in.
    pub(crate) stale_refused: u64,
    pub(crate) stale_admitted: u64,
    /// The same at the control, where everything is let in.
    pub(crate) control_landed: u64,
    /// Claims that came to nothing, and those of them whose caller was told that certainly nothing stands although the
    /// coordinator had not answered.
    pub(crate) given_up: u64,
    pub(crate) disowned: u64,
    /// From the last renewal of a holder that ended uncleanly to its successor's grant, in nanoseconds.
    pub(crate) takeovers_ns: Vec<u64>,
    /// Broken invariants, and how often.
    pub(crate) broken: BTreeMap<&'static str, u64>,
    /// The first of each: two events, where two suffice.
    pub(crate) shown: Vec<Violation>,
    /// What the next round must know of this one: the last grant and the highest write of each resource.
    carried: Vec<Event>,
}

impl Ledger {
    /// Judges the events of one round, after which nobody holds anything. The whole that was judged, by time.
    pub(crate) fn judge(&mut self, round: Vec<Event>) -> Vec<Event> {
        let before_ns = self.carried.iter().map(|event| event.at_ns).max().unwrap_or(0);
        let (control, leased): (Vec<Event>, Vec<Event>) = std::mem::take(&mut self.carried)
            .into_iter()
            .chain(round)
            .partition(|event| event.resource.starts_with(CONTROL));
        let (control, leased) = (History::new(control), History::new(leased));
        let report = leased.judge();
        let is_new = |violation: &Violation| violation.evidence.iter().any(|event| event.at_ns > before_ns);
        for violation in report.violations.into_iter().filter(is_new) {
            self.stale_admitted += u64::from(violation.invariant == "S6-fence");
            *self.broken.entry(violation.invariant).or_default() += 1;
            if !self.shown.iter().any(|shown| shown.invariant == violation.invariant) {
                self.shown.push(violation);
            }
        }
        let stale = |violation: &Violation| violation.invariant == "S6-fence" && is_new(violation);
        self.control_landed += control.judge().violations.iter().filter(|found| stale(found)).count() as u64;
        self.count(leased.events(), before_ns);
        self.measure(&leased, before_ns);
        self.carried = [&leased, &control].into_iter().flat_map(last_of_each).collect();
        let mut judged: Vec<Event> = leased.events().iter().chain(control.events()).cloned().collect();
        judged.sort_by_key(|event| event.at_ns);
        judged
    }

    fn count(&mut self, events: &[Event], before_ns: u64) {
        for event in events.iter().filter(|event| event.at_ns > before_ns) {
            self.events += 1;
            match event.what {
                What::Granted { .. } => self.grants += 1,
                What::Extended { .. } => self.extensions += 1,
                What::Write { admitted: false, .. } => self.stale_refused += 1,
                What::GaveUp => self.given_up += 1,
                What::Disowned => self.disowned += 1,
                _ => {}
            }
        }
    }

    /// Hand-overs, and how long those took whose holder had not released.
    fn measure(&mut self, history: &History, before_ns: u64) {
        let mut sent: HashMap<(&str, LeaseId), u64> = HashMap::new();
        let mut asked: HashMap<(&str, LeaseId), u64> = HashMap::new();
        for event in history.events() {
            let key = (event.resource.as_str(), event.lease_id);
            match event.what {
                What::Attempt => {
                    asked.insert(key, event.at_ns);
                }
                What::Granted { sent_ns: Some(sent_ns), .. }
                | What::Extended { sent_ns: Some(sent_ns), .. } => {
                    let last = sent.entry(key).or_default();
                    *last = (*last).max(sent_ns);
                }
                _ => {}
            }
        }
        for (resource, spans) in history.grants() {
            for pair in spans.windows(2) {
                let [first, second] = pair else { continue };
                if second.granted.at_ns <= before_ns {
                    continue;
                }
                self.handovers += 1;
                let (Some(sent_ns), Some(asked_ns)) =
                    (sent.get(&(resource, first.lease_id())), asked.get(&(resource, second.lease_id())))
                else {
                    continue;
                };
                let was_released = matches!(first.ending, Some((_, Ending::Released)));
                // Who asks only later has waited for something else.
                if !was_released && asked_ns < sent_ns {
                    self.takeovers_ns.push(second.open_ns.saturating_sub(*sent_ns));
                }
            }
        }
    }

    /// Writes under an older token than one that was there before, at the fence.
    pub(crate) fn stale_tried(&self) -> u64 {
        self.stale_refused + self.stale_admitted
    }

    /// The takeover that this share of all (0 … 1) did not exceed, in nanoseconds.
    pub(crate) fn takeover(&self, share: f64) -> Option<u64> {
        let mut sorted = self.takeovers_ns.clone();
        sorted.sort_unstable();
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index into a list"
        )]
        let at = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
        sorted.get(at).copied()
    }

    /// How often this invariant was broken.
    pub(crate) fn breaches(&self, invariant: &str) -> u64 {
        self.broken.get(invariant).copied().unwrap_or(0)
    }
}

/// The events of the last grant, and the highest write, of each resource.
fn last_of_each(history: &History) -> Vec<Event> {
    let last: HashSet<(&str, LeaseId)> = history
        .grants()
        .into_iter()
        .filter_map(|(resource, spans)| Some((resource, spans.last()?.lease_id())))
        .collect();
    let mut highest: HashMap<&str, &Event> = HashMap::new();
    for event in history.events() {
        if let What::Write { admitted: true, token, .. } = event.what {
            let kept = highest.entry(&event.resource).or_insert(event);
            if kept.what.token() <= Some(token) {
                *kept = event;
            }
        }
    }
    let is_kept = |event: &&Event| {
        last.contains(&(event.resource.as_str(), event.lease_id))
            || highest.get(event.resource.as_str()) == Some(event)
    };
    history.events().iter().filter(is_kept).cloned().collect()
}

#[cfg(test)]
mod tests {
    use leasehold::Token;

    use super::*;

    fn granted(id: u8, token: u64, open_ns: u64) -> Event {
        let token = Token::new(token).unwrap();
        let what = What::Granted { token, sent_ns: None, open_ns, close_ns: open_ns + 100, ttl_ms: None };
        let lease_id = LeaseId::from_bytes([id; 16]);
        Event { at_ns: open_ns, process: format!("w{id}"), resource: "r".to_owned(), lease_id, what }
    }

    #[test]
    fn what_overlaps_from_one_round_to_the_next_is_found_and_counted_once() {
        let mut ledger = Ledger::default();
        ledger.judge(vec![granted(1, 1, 1_000)]);
        assert!(ledger.broken.is_empty());
        ledger.judge(vec![granted(2, 2, 1_050)]);
        assert_eq!((ledger.breaches("S1-overlap"), ledger.grants, ledger.handovers), (1, 2, 1));
        ledger.judge(vec![granted(3, 3, 2_000)]);
        assert_eq!((ledger.breaches("S1-overlap"), ledger.grants, ledger.handovers), (1, 3, 2));
    }

    #[test]
    fn a_token_that_falls_from_one_round_to_the_next_is_found() {
        let mut ledger = Ledger::default();
        ledger.judge(vec![granted(1, 9, 1_000)]);
        ledger.judge(vec![granted(2, 8, 2_000)]);
        assert_eq!(ledger.breaches("S2-order"), 1);
    }
}

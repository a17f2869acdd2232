//! S1, exclusion: no two windows of one resource overlap.
//!
//! What breaks for a user: two processes believe at the same moment that they alone may act. Both run the migration, both
//! send the money.

use super::{ClockErrors, GrantSpan, Violation, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S1-overlap";

/// What is certain goes to `violations`; what clocks that disagree could have made up goes to `possible`.
pub(super) fn judge(
    by_open: &[GrantSpan],
    errors: &ClockErrors,
    violations: &mut Vec<Violation>,
    possible: &mut Vec<Violation>,
) {
    // The one that ends last so far: whoever opens before that end overlaps it.
    let mut latest: Option<&GrantSpan> = None;
    for span in by_open.iter().filter(|span| span.end_ns > span.open_ns) {
        if let Some(before) = latest.filter(|before| span.open_ns < before.end_ns) {
            let shared = before.end_ns.min(span.end_ns) - span.open_ns;
            let text = format!(
                "{} and {} both believed for {shared} ns: the first until {}, the second from {}",
                before.granted.process, span.granted.process, before.end_ns, span.open_ns
            );
            let error_ns = errors.between(&before.granted.process, &span.granted.process);
            let verdict = if shared > error_ns { &mut *violations } else { &mut *possible };
            verdict.push(violation(NAME, text, &[&before.granted, &span.granted]));
        }
        if latest.is_none_or(|before| span.end_ns > before.end_ns) {
            latest = Some(span);
        }
    }
}

//! S2, token order: a later grant has a higher token.
//!
//! What breaks for a user: a fence that admits the highest token lets the old holder in and keeps the new one out.

use super::{ClockErrors, GrantSpan, Violation, history::violation};

/// The name under which it is reported.
pub(super) const NAME: &str = "S2-order";

/// A grant whose answer had arrived before another's request was sent was made before it, whatever the clocks of the
/// engine say.
pub(super) fn judge(
    by_open: &[GrantSpan],
    errors: &ClockErrors,
    violations: &mut Vec<Violation>,
    possible: &mut Vec<Violation>,
) {
    let mut by_sent: Vec<&GrantSpan> = by_open.iter().collect();
    by_sent.sort_by_key(|span| span.sent_ns);
    let mut answered = by_open.iter().peekable();
    let mut highest: Option<&GrantSpan> = None;
    for later in by_sent {
        while let Some(earlier) = answered.next_if(|earlier| earlier.open_ns < later.sent_ns) {
            if highest.is_none_or(|highest| earlier.token > highest.token) {
                highest = Some(earlier);
            }
        }
        // Equal tokens of different grants are a matter of identity, and reported there.
        if let Some(earlier) = highest.filter(|earlier| earlier.token > later.token) {
            let text = format!("token {} was granted after token {}", later.token, earlier.token);
            let apart_ns = later.sent_ns - earlier.open_ns;
            let error_ns = errors.between(&earlier.granted.process, &later.granted.process);
            let verdict = if apart_ns > error_ns { &mut *violations } else { &mut *possible };
            verdict.push(violation(NAME, text, &[&earlier.granted, &later.granted]));
        }
    }
}

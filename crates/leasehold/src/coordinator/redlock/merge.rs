//! What several nodes say about one resource, made into one word. Pure.
//!
//! A grant is what a majority has under one lease id. What fewer have is a remnant: of a claim that found no majority, of a
//! grant that has ended where it counts, or of one that a node missed the end of. A remnant is not held; it stands in the way
//! of others only together with nodes that are down, and its TTL ends it.

use std::collections::BTreeMap;

use leasehold_core::{
    LeaseId, Resource, Token,
    quorum::Quorum,
    record::{End, EndReason, Gone, Inspection, Record},
};

use crate::coordinator::redis::answer::Seen;

/// What orders records of one grant by how much their node knows: one that is not dated has only an offer, whose token is the
/// node's own.
pub(super) fn knowledge(record: &Record) -> (bool, Token, bool, u64) {
    (record.granted_us > 0, record.token, record.revoked.is_some(), record.granted_us)
}

/// One record of several that name the same grant: the newest token, and the time for which a majority has it.
pub(super) fn record(quorum: Quorum, records: &[Record]) -> Option<Record> {
    let mut merged = records.iter().max_by_key(|record| knowledge(record))?.clone();
    let each = records.iter().map(|record| record.remaining);
    merged.remaining = quorum.lasts(each).unwrap_or(merged.remaining);
    Some(merged)
}

/// The records of the grant that most nodes name.
fn strongest(records: &[Record]) -> Vec<Record> {
    let mut parties: BTreeMap<[u8; 16], Vec<Record>> = BTreeMap::new();
    for record in records {
        parties.entry(record.lease_id.as_bytes().to_owned()).or_default().push(record.clone());
    }
    parties.into_values().max_by_key(Vec::len).unwrap_or_default()
}

/// The grant that a majority names, if there is one.
pub(super) fn majority_record(quorum: Quorum, records: &[Record]) -> Option<Record> {
    let strongest = strongest(records);
    if strongest.len() < quorum.majority() {
        return None;
    }
    record(quorum, &strongest)
}

/// Why a grant is gone, of several nodes' reasons: what most say; and of what equally many say, what tells more.
pub(super) fn gone(quorum: Quorum, reasons: &[Gone]) -> Gone {
    let rank = |reason: &Gone| match reason {
        Gone::Revoked { .. } => 4,
        Gone::Superseded { .. } => 3,
        Gone::Released => 2,
        Gone::Expired => 1,
        _ => 0,
    };
    let often = |of: u8| reasons.iter().filter(|reason| rank(reason) == of).count();
    let Some(chosen) = (0..=4_u8).max_by_key(|&of| (often(of), of)) else { return Gone::Absent };
    let of_kind: Vec<&Gone> = reasons.iter().filter(|reason| rank(reason) == chosen).collect();
    let newest = of_kind.iter().max_by_key(|reason| match reason {
        Gone::Superseded { token } => token.get(),
        _ => 0,
    });
    let mut answer = newest.map_or(Gone::Absent, |reason| (**reason).clone());
    if let Gone::Revoked { remaining, .. } = &mut answer {
        let each = of_kind.iter().filter_map(|reason| match reason {
            Gone::Revoked { remaining, .. } => Some(*remaining),
            _ => None,
        });
        *remaining = quorum.lasts(each).unwrap_or(*remaining);
    }
    answer
}

/// How the previous grant ended: the latest that was one, which a majority knows unless it has ended there otherwise.
pub(super) fn last_end<'a>(quorum: Quorum, ends: impl IntoIterator<Item = &'a End>) -> Option<End> {
    let ends: Vec<&End> = ends.into_iter().collect();
    let known = |lease_id: LeaseId| ends.iter().filter(|end| end.lease_id == lease_id).count();
    let told = |end: &End| {
        let word = match end.reason {
            EndReason::Revoked(_) => 2,
            EndReason::Released => 1,
            _ => 0,
        };
        (end.token, word, end.at_us)
    };
    // A minority's end is that of a remnant, unless only some were heard.
    let unheard = quorum.nodes().saturating_sub(ends.len());
    let counts = |end: &&&End| known(end.lease_id) + unheard >= quorum.majority();
    let latest = ends.iter().filter(counts).max_by_key(|end| told(end));
    latest
        .or_else(|| ends.iter().max_by_key(|end| (known(end.lease_id), told(end))))
        .map(|end| (*end).clone())
}

/// The highest token that a majority has stored. What only a minority has was offered and never taken up.
fn last_token(quorum: Quorum, each: &[Seen]) -> Option<Token> {
    let mut tokens: Vec<Option<Token>> = each.iter().map(|seen| seen.last_token).collect();
    tokens.sort_unstable_by(|a, b| b.cmp(a));
    let silent = quorum.nodes().saturating_sub(tokens.len());
    tokens.get((quorum.majority() - 1).saturating_sub(silent)).copied().flatten()
}

/// True when what these nodes saw leaves no question, whatever the others say.
pub(super) fn is_clear(quorum: Quorum, each: &[Seen]) -> bool {
    let free = each.iter().filter(|seen| seen.record.is_none()).count();
    let mut same: BTreeMap<_, usize> = BTreeMap::new();
    for record in each.iter().filter_map(|seen| seen.record.as_ref()) {
        *same.entry((record.lease_id.as_bytes().to_owned(), record.token)).or_default() += 1;
    }
    free >= quorum.majority() || same.into_values().any(|nodes| nodes >= quorum.majority())
}

/// One resource as several nodes saw it.
pub(super) fn seen(quorum: Quorum, resource: Resource, each: &[Seen]) -> Inspection {
    let records: Vec<Record> = each.iter().filter_map(|seen| seen.record.clone()).collect();
    let strongest = strongest(&records);
    let silent = quorum.nodes() - each.len().min(quorum.nodes());
    let free = each.len() - records.len();
    // Held when a majority has it; also when it may be one together with the silent and nobody else could get one.
    let held = strongest.len() >= quorum.majority()
        || (!strongest.is_empty()
            && strongest.len() + silent >= quorum.majority()
            && free < quorum.majority());
    let record = if held { record(quorum, &strongest) } else { None };
    Inspection {
        resource,
        last_token: last_token(quorum, each),
        last_end: last_end(quorum, each.iter().filter_map(|seen| seen.last_end.as_ref())),
        last_success_us: each.iter().filter_map(|seen| seen.last_success_us).filter(|&at| at > 0).max(),
        // There is no order, so there are no places.
        waiters: Vec::new(),
        waiting: 0,
        record,
    }
}

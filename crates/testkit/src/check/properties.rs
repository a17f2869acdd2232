//! Correct random histories are never flagged; one planted fault always is.

use leasehold_core::{LeaseId, Token};
use proptest::prelude::*;

use super::{Event, History, What, conservative, fence, identity, order, overlap, resurrection};
use crate::random::Choices;

/// What a correct system could have written: grants of two resources, one after the other, some renewed, some released,
/// some lost, some deserted; with writes.
fn correct(seed: u64, grants: u64) -> Vec<Event> {
    let mut choices = Choices::new(seed);
    let mut events = Vec::new();
    let mut free_at = [1_000u64; 2];
    let mut tokens = [100u64; 2];
    let mut versions = [0u64; 2];
    // The highest token that each resource has seen.
    let mut seen = [0u64; 2];
    for number in 0..grants {
        let at = usize::from(choices.one_in(2));
        let sent_ns = free_at[at] - choices.below(500).min(free_at[at]);
        let open_ns = free_at[at] + choices.below(1_000);
        let ttl_ms = 1 + choices.below(5);
        let mut close_ns = sent_ns + ttl_ms * 1_000_000 - choices.below(1_000);
        tokens[at] += 1 + choices.below(3);
        let token = Token::new(tokens[at]).unwrap();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(number + 1).to_le_bytes());
        let event = |at_ns, what| Event {
            at_ns,
            process: format!("p{}", number % 4),
            resource: format!("r{at}"),
            lease_id: LeaseId::from_bytes(id),
            what,
        };
        events.push(event(sent_ns, What::Attempt));
        let what = What::Granted { token, sent_ns: Some(sent_ns), open_ns, close_ns, ttl_ms: Some(ttl_ms) };
        events.push(event(open_ns, what));
        let mut now = open_ns;
        for _ in 0..choices.below(4) {
            let sent_ns = now + (close_ns - now) / 3;
            now = sent_ns + (close_ns - sent_ns) / 3;
            if now >= close_ns {
                break;
            }
            close_ns = close_ns.max(sent_ns + ttl_ms * 1_000_000 - 5);
            events.push(event(now, What::Extended { token, sent_ns: Some(sent_ns), close_ns }));
            versions[at] += 1;
            seen[at] = tokens[at];
            events.push(event(
                now + 1,
                What::Write { token, admitted: true, version: versions[at], op_seq: None, based_on: None },
            ));
        }
        now += 2;
        let end_ns = match choices.below(3) {
            0 if now < close_ns => {
                events.push(event(now, What::Held { token }));
                events.push(event(now, What::Released { token }));
                now
            }
            1 if now < close_ns => {
                events.push(event(now, What::Lost { token }));
                now
            }
            _ => close_ns.max(now),
        };
        // A late write of the old holder, which the fence of the resource refuses.
        if choices.one_in(4) && versions[at] > 0 {
            let stale = Token::new(seen[at] - 1).unwrap();
            events.push(event(
                end_ns + 1,
                What::Write {
                    token: stale,
                    admitted: false,
                    version: versions[at],
                    op_seq: None,
                    based_on: None,
                },
            ));
        }
        free_at[at] = end_ns + 1 + choices.below(10_000);
    }
    events
}

/// Plants one fault; `None` where this history has no place for it. With the invariant that it breaks.
fn plant(events: &mut Vec<Event>, fault: u64, pick: u64) -> Option<&'static str> {
    let grants: Vec<usize> = positions(events, |what| matches!(what, What::Granted { .. }));
    let nth = |list: &[usize]| list.get(usize::try_from(pick).ok()?.checked_rem(list.len())?).copied();
    match fault {
        // A second holder inside the first one's window.
        0 => {
            let at = nth(&grants)?;
            let mut other = events[at].clone();
            other.lease_id = LeaseId::from_bytes([0xEE; 16]);
            let What::Granted { open_ns, close_ns, .. } = other.what else { return None };
            let token = Token::new(Token::MAX).ok()?;
            other.what = What::Granted { token, sent_ns: None, open_ns, close_ns, ttl_ms: None };
            events.insert(at, other);
            Some(overlap::NAME)
        }
        // A grant, after all others, whose token is below the first one's.
        1 => {
            let mut late = events[*grants.first()?].clone();
            let end = events.iter().map(|event| event.at_ns).max()? + 1_000_000_000;
            (late.at_ns, late.lease_id) = (end, LeaseId::from_bytes([0xEE; 16]));
            let what = What::Granted {
                token: Token::new(1).ok()?,
                sent_ns: None,
                open_ns: end,
                close_ns: end + 1,
                ttl_ms: None,
            };
            late.what = what;
            events.push(late);
            Some(order::NAME)
        }
        // A grant with the token of another.
        2 => {
            let mut late = events[nth(&grants)?].clone();
            let end = events.iter().map(|event| event.at_ns).max()? + 1_000_000_000;
            (late.at_ns, late.lease_id) = (end, LeaseId::from_bytes([0xEE; 16]));
            let token = late.what.token()?;
            late.what = What::Granted { token, sent_ns: None, open_ns: end, close_ns: end + 1, ttl_ms: None };
            events.push(late);
            Some(identity::NAME)
        }
        // A holder who believes after the end.
        3 => {
            let ends = positions(events, |what| matches!(what, What::Released { .. } | What::Lost { .. }));
            let mut held = events[nth(&ends)?].clone();
            held.at_ns += 1;
            held.what = What::Held { token: held.what.token()? };
            events.push(held);
            Some(resurrection::NAME)
        }
        // A window counted from later than its request.
        4 => {
            let event = &mut events[nth(&grants)?];
            let What::Granted { token, sent_ns: Some(sent_ns), open_ns, ttl_ms: Some(ttl_ms), .. } =
                event.what
            else {
                return None;
            };
            let close_ns = sent_ns + ttl_ms * 1_000_000 + 1;
            event.what =
                What::Granted { token, sent_ns: Some(sent_ns), open_ns, close_ns, ttl_ms: Some(ttl_ms) };
            Some(conservative::NAME)
        }
        // An old holder whose write is let in.
        _ => {
            let writes = positions(events, |what| matches!(what, What::Write { admitted: true, .. }));
            let mut late = events[nth(&writes)?].clone();
            late.what = What::Write {
                token: Token::new(1).ok()?,
                admitted: true,
                version: u64::MAX,
                op_seq: None,
                based_on: None,
            };
            events.push(late);
            Some(fence::NAME)
        }
    }
}

fn positions(events: &[Event], wanted: impl Fn(&What) -> bool) -> Vec<usize> {
    events.iter().enumerate().filter(|(_, event)| wanted(&event.what)).map(|(at, _)| at).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_correct_history_is_never_flagged(seed: u64, grants in 0u64..60) {
        let report = History::new(correct(seed, grants)).judge();
        prop_assert!(report.is_clean(), "{}", report);
        prop_assert_eq!(report.judged.grants as u64, grants);
    }

    #[test]
    fn a_planted_fault_is_always_flagged(seed: u64, grants in 1u64..60, fault in 0u64..6, pick: u64) {
        let mut events = correct(seed, grants);
        if let Some(expected) = plant(&mut events, fault, pick) {
            let report = History::new(events).judge();
            prop_assert!(report.broken().contains(&expected), "{expected} was planted: {}", report);
        }
    }

    #[test]
    fn reading_never_panics(text in "\\PC{0,200}|([{}\":,a-z0-9\\n]{0,200})") {
        let _ = History::parse(&text);
    }
}

#[test]
fn every_fault_finds_a_place_often_enough() {
    let mut planted = [0; 6];
    for seed in 0..200 {
        for fault in 0..6u64 {
            let mut events = correct(seed, 20);
            planted[usize::try_from(fault).unwrap()] += u32::from(plant(&mut events, fault, seed).is_some());
        }
    }
    assert!(planted.iter().all(|&times| times >= 150), "{planted:?}");
}

//! The readers of the core and of histories take nothing for what it is not, and survive everything.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{collections::HashSet, fmt::Display, str::FromStr};

use leasehold_core::{
    HolderId, Label, LeaseId, Namespace, Resource, Token, Ttl,
    fence::OpSeq,
    ticket::{KeyId, Ticket},
};
use leasehold_testkit::{
    check::{Event, History, What},
    hostile,
};
use proptest::prelude::*;

/// What is read has one spelling: the one that was read.
fn one_spelling<T: FromStr + Display>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string(), text);
    }
}

fn every_reader(text: &str) {
    let number = text.parse::<Token>().map(Token::get).or(text.parse::<OpSeq>().map(OpSeq::get));
    assert!(number.is_err() || text.bytes().all(|digit| digit.is_ascii_digit()), "{text}");
    one_spelling::<LeaseId>(text);
    one_spelling::<HolderId>(text);
    one_spelling::<Ticket>(text);
    for name in
        [Namespace::new(text).map(|name| name.to_string()), KeyId::new(text).map(|name| name.to_string())]
    {
        assert!(name.is_err() || name.as_deref() == Ok(text) && text.len() <= 63 && text.is_ascii());
    }
    if let Ok(resource) = Resource::new(text) {
        assert_eq!(Resource::decode(&resource.encode()).as_ref(), Ok(&resource));
        assert!(resource.encode().is_ascii() && !resource.encode().contains(['{', '}', '/', ':', '*']));
    }
    if let Ok(resource) = Resource::decode(text) {
        assert_eq!(resource.encode(), text, "one name has one encoding");
    }
    assert!(Label::from_lossy(text).as_str().len() <= 255);
    if let Ok(events) = History::parse(text) {
        // Also what no process of ours would have written is judged.
        let _ = History::new(events).judge().to_string();
    }
}

#[test]
fn no_hostile_text_is_taken_for_what_it_is_not() {
    for text in hostile::texts() {
        every_reader(&text);
    }
}

#[test]
fn hostile_names_keep_apart() {
    let names: HashSet<Resource> =
        hostile::texts().iter().filter_map(|text| Resource::new(text).ok()).collect();
    let encoded: HashSet<String> = names.iter().map(Resource::encode).collect();
    assert!(names.len() > 1_000 && encoded.len() == names.len());
}

fn ticket() -> impl Strategy<Value = Ticket> {
    (any::<[u8; 32]>(), "\\PC{1,40}", 1..=Token::MAX, any::<[u8; 16]>(), any::<u64>()).prop_filter_map(
        "a resource has a name that can be one",
        |(signed, name, token, lease_id, not_after_us)| {
            Some(Ticket {
                key: KeyId::new("k-1").unwrap(),
                namespace: Namespace::default(),
                resource: Resource::new(&name).ok()?,
                token: Token::new(token).unwrap(),
                lease_id: LeaseId::from_bytes(lease_id),
                not_after_us,
                signature: std::array::from_fn(|at| signed[at % 32]),
            })
        },
    )
}

fn what() -> impl Strategy<Value = What> {
    let token = || (1..=Token::MAX).prop_map(|token| Token::new(token).unwrap());
    prop_oneof![
        Just(What::Attempt),
        (token(), any::<Option<u64>>(), any::<[u64; 2]>(), any::<Option<u64>>()).prop_map(
            |(token, sent_ns, [open_ns, close_ns], ttl_ms)| What::Granted {
                token,
                sent_ns,
                open_ns,
                close_ns,
                ttl_ms
            }
        ),
        (token(), any::<Option<u64>>(), any::<u64>()).prop_map(|(token, sent_ns, close_ns)| What::Extended {
            token,
            sent_ns,
            close_ns
        }),
        token().prop_map(|token| What::Held { token }),
        token().prop_map(|token| What::Lost { token }),
        (token(), any::<bool>(), any::<u64>(), any::<[Option<u64>; 2]>()).prop_map(
            |(token, admitted, version, [op_seq, based_on])| What::Write {
                token,
                admitted,
                version,
                op_seq,
                based_on
            }
        ),
        (token(), any::<bool>(), any::<u64>()).prop_map(|(token, admitted, version)| What::Sealed {
            token,
            admitted,
            version
        }),
        any::<[u64; 2]>().prop_map(|[left_ms, ttl_ms]| What::Busy { left_ms, ttl_ms }),
        any::<[u64; 2]>().prop_map(|[sent_ns, left_ms]| What::Quarantined { sent_ns, left_ms }),
        any::<u64>().prop_map(|for_ms| What::Forgot { for_ms }),
        any::<u64>().prop_map(|hold_ms| What::Limited { hold_ms }),
        Just(What::Calm),
        Just(What::Disowned),
        Just(What::Free),
        token().prop_map(|token| What::Stands { token }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    (any::<u64>(), "\\PC{0,10}", 0u8..3, 0u8..4, what()).prop_map(|(at_ns, process, resource, id, what)| {
        Event {
            at_ns,
            process,
            resource: format!("r{resource}"),
            lease_id: LeaseId::from_bytes([id; 16]),
            what,
        }
    })
}

proptest! {
    #[test]
    fn a_ticket_survives_text_and_nothing_else_is_one(ticket in ticket(), text in "\\PC{0,60}|lht1[:0-9a-f%.]{0,80}") {
        let written = ticket.to_string();
        prop_assert_eq!(written.parse::<Ticket>(), Ok(ticket));
        for torn in hostile::near(written.as_bytes()) {
            if let Ok(torn) = String::from_utf8(torn) {
                one_spelling::<Ticket>(&torn);
            }
        }
        every_reader(&text);
    }

    #[test]
    fn a_ttl_is_within_its_bounds(ms: u64) {
        if let Ok(ttl) = Ttl::from_millis(ms) {
            prop_assert!(ttl.as_millis() == ms && ttl >= Ttl::MIN && ttl <= Ttl::MAX);
        }
    }

    /// Whatever was written is read back, and judged, also with times and versions that cannot be.
    #[test]
    fn a_history_survives_its_file_and_any_history_is_judged(events in prop::collection::vec(event(), 0..12)) {
        let text: String = events.iter().map(|event| event.line().unwrap()).collect();
        prop_assert_eq!(&History::parse(&text).unwrap(), &events);
        let _ = History::new(events).judge().to_string();
    }
}

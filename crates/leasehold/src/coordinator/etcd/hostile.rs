//! Values in etcd that we did not write, or not so: read as damage, or as something that can be worked with.

use leasehold_core::{
    HolderId, Label, LeaseId, Namespace, Resource, Token, Ttl,
    line::MemoryLine,
    request::Release,
    slot::{Held, Now, Slot},
};
use leasehold_testkit::hostile;
use prost::Message as _;

use super::{
    keys::{self, Keys},
    label::Version,
    record::{Mark, Meta, PastRecord, Place, State, Term, decode},
};

fn held() -> Held {
    Held {
        lease_id: LeaseId::from_bytes([1; 16]),
        token: Token::new(Token::MAX).unwrap(),
        ttl: Ttl::DEFAULT,
        expires_us: 99,
        granted_us: 5,
        holder_id: HolderId::from_bytes([2; 16]),
        label: Label::from_lossy("host:1:job"),
        revoked: None,
    }
}

fn every_reader(bytes: &[u8]) {
    if let Ok(state) = decode::<State>("it", bytes) {
        if let Ok(slot) = state.to_slot(u64::MAX, u64::MAX) {
            // What can be read can be written, and is then the same.
            let again = State::of_slot(&slot, state.term(), state.touched_us);
            assert_eq!(again.to_slot(u64::MAX, u64::MAX).unwrap(), slot);
        }
        let mut after = State { last_end: state.last_end.clone(), ..State::default() };
        let _ = after.follow(&state).map(|past| past.to_past());
    }
    let _ = decode::<Meta>("it", bytes).map(|meta| meta.max_ttl());
    let _ = decode::<PastRecord>("it", bytes).map(|past| past.to_past());
    let _ = (decode::<Mark>("it", bytes), decode::<Place>("it", bytes));
    let _ = (keys::claimant_of(bytes), keys::resource_of(bytes, "leasehold/ns/state/"));
}

#[test]
fn no_hostile_value_makes_reading_panic() {
    let slot = Slot { last_token: Some(held().token), held: Some(held()), ..Slot::default() };
    let mut state = State::of_slot(&slot, Term { seconds: u64::MAX, shared: true }, u64::MAX);
    state.ends = u64::MAX;
    let mark = Mark::of(&held(), i64::MIN);
    for written in [state.encode_to_vec(), mark.encode_to_vec()] {
        for bytes in hostile::near(&written) {
            every_reader(&bytes);
        }
    }
    for bytes in hostile::bytes() {
        every_reader(&bytes);
    }
}

#[test]
fn a_count_of_ended_grants_that_is_at_its_end_goes_on() {
    let mut slot = Slot { held: Some(held()), ..Slot::default() };
    let mut before = State::of_slot(&slot, Term::default(), 0);
    before.ends = u64::MAX;
    let release = Release {
        resource: Resource::new("r").unwrap(),
        lease_id: held().lease_id,
        token: None,
        succeeded: false,
    };
    slot.release(&mut MemoryLine::default(), &release, Now { clock_us: 1, unix_us: 1 }).unwrap();
    let mut after = State::of_slot(&slot, Term::default(), 0);
    assert!(after.follow(&before).is_some());
}

#[test]
fn keys_of_hostile_names_lead_back_to_them_and_to_nothing_else() {
    let keys = Keys::new("leasehold", &Namespace::default());
    for resource in hostile::texts().iter().filter_map(|text| Resource::new(text).ok()) {
        let (state, line) = (keys.state(&resource), keys.line(&resource));
        assert_eq!(keys::resource_of(state.as_bytes(), &keys.states()).as_ref(), Some(&resource));
        assert_eq!(keys::resource_of(line.as_bytes(), &keys.lines()).as_ref(), Some(&resource));
        assert_eq!(state.matches('/').count(), 3, "{state}");
    }
}

#[test]
fn no_hostile_version_makes_reading_panic() {
    for text in hostile::texts() {
        let known = Version::parse(&text);
        assert!(
            known.is_none() || text.starts_with(|first: char| first.is_ascii_digit() || first == '+'),
            "{text}"
        );
    }
}

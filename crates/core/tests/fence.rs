//! The rule of the fence, and the written form of a ticket.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use leasehold_core::{
    Label, LeaseId, Namespace, Resource, Token,
    fence::{Ask, Bound, MAX_TOKEN_LEAD_US, Mark, OpSeq, Pass, Refusal, judge, raised},
    ticket::{KeyId, Ticket},
};
use proptest::prelude::*;

fn pass(token: u64, grant: u8, op_seq: u64) -> Pass {
    let resource = Resource::new("r").unwrap();
    let pass = Pass::new(
        Namespace::default(),
        resource,
        Token::new(token).unwrap(),
        LeaseId::from_bytes([grant; 16]),
    );
    match OpSeq::new(op_seq) {
        Ok(op_seq) => pass.numbered(op_seq),
        Err(_) => pass,
    }
}

/// Lets the passes come one after the other; the words of the answers.
fn play(passes: &[(Ask, Pass)]) -> (Vec<&'static str>, Option<Mark>) {
    let mut stored = None;
    let words = passes
        .iter()
        .map(|(ask, pass)| match judge(stored.as_ref(), pass, *ask) {
            Ok(mark) => {
                stored = Some(mark);
                "admitted"
            }
            Err(refusal) => refusal.word(),
        })
        .collect();
    (words, stored)
}

#[test]
fn the_rule_of_the_fence() {
    let (words, _) = play(&[
        (Ask::Write, pass(5, 1, 0)),
        (Ask::Seal, pass(5, 1, 0)),
        (Ask::Write, pass(5, 1, 0)),
        (Ask::Seal, pass(5, 1, 0)),
        (Ask::Write, pass(5, 2, 0)),
        (Ask::Seal, pass(5, 2, 0)),
        (Ask::Write, pass(4, 1, 0)),
        (Ask::Seal, pass(4, 1, 0)),
        (Ask::Write, pass(6, 3, 0)),
        (Ask::Write, pass(5, 1, 0)),
    ]);
    assert_eq!(
        words,
        [
            "no_such_resource",
            "admitted",
            "admitted",
            "admitted",
            "collision",
            "collision",
            "stale",
            "stale",
            "admitted",
            "stale"
        ]
    );
    assert_eq!(play(&[(Ask::Enter, pass(5, 1, 7))]).0, ["admitted"]);
}

#[test]
fn writes_of_one_grant_do_not_cross_when_they_are_numbered() {
    let (words, stored) = play(&[
        (Ask::Seal, pass(5, 1, 0)),
        (Ask::Write, pass(5, 1, 2)),
        (Ask::Write, pass(5, 1, 1)),
        (Ask::Write, pass(5, 1, 2)),
        // A seal is no write and uses no number up.
        (Ask::Seal, pass(5, 1, 9)),
        (Ask::Write, pass(5, 1, 3)),
        // Without a number: awaited one by one.
        (Ask::Write, pass(5, 1, 0)),
        (Ask::Write, pass(5, 1, 3)),
        (Ask::Write, pass(6, 2, 1)),
    ]);
    assert_eq!(
        words,
        ["admitted", "admitted", "stale", "stale", "admitted", "admitted", "admitted", "stale", "admitted"]
    );
    assert_eq!(stored.unwrap().op_seq, OpSeq::new(1).ok());
}

#[test]
fn a_token_raised_by_hand_shuts_lower_ones_out_and_lets_its_own_grant_in() {
    let by = Label::new("alice").unwrap();
    let mark = raised(None, Token::new(7).unwrap(), &by);
    let other = Label::new("bob").unwrap();
    assert_eq!(raised(Some(&mark), Token::new(7).unwrap(), &other), mark);
    assert_eq!(raised(Some(&mark), Token::new(6).unwrap(), &other), mark);
    assert!(matches!(judge(Some(&mark), &pass(6, 1, 0), Ask::Seal), Err(Refusal::Stale { .. })));
    let own = judge(Some(&mark), &pass(7, 1, 0), Ask::Write).unwrap();
    assert!(matches!(judge(Some(&own), &pass(7, 2, 0), Ask::Write), Err(Refusal::Collision { .. })));
}

#[test]
fn an_absurdly_high_token_is_refused_by_a_bound() {
    let now_us = 1_800_000_000_000_000;
    let token = |value| Token::new(value).unwrap();
    let bound = Bound::default();
    assert_eq!(bound.check(token(now_us + MAX_TOKEN_LEAD_US), now_us), Ok(()));
    let limit = now_us + MAX_TOKEN_LEAD_US;
    assert_eq!(bound.check(token(limit + 1), now_us), Err(Refusal::TokenTooHigh { limit }));
    assert_eq!(Bound::NONE.check(token(Token::MAX), 0), Ok(()));
    assert_eq!(bound.check(token(Token::MAX), u64::MAX), Ok(()), "no overflow");
}

proptest! {
    /// Whatever comes in whatever order: what is remembered never goes back, only one grant has a token, and what was
    /// admitted is in order.
    #[test]
    fn the_fence_is_monotone(
        moves in proptest::collection::vec((0_u8..3, 1_u64..6, 0_u8..3, 0_u64..5), 0..60),
    ) {
        let mut stored: Option<Mark> = None;
        let mut admitted: Vec<Pass> = Vec::new();
        for (ask, token, grant, op_seq) in moves {
            let ask = [Ask::Seal, Ask::Write, Ask::Enter][usize::from(ask)];
            let pass = pass(token, grant, op_seq);
            let before = stored.clone();
            match judge(before.as_ref(), &pass, ask) {
                Ok(mark) => {
                    prop_assert!(before.as_ref().is_none_or(|before| (before.token, before.op_seq) <= (mark.token, mark.op_seq) || before.token < mark.token));
                    prop_assert_eq!((mark.token, mark.lease_id), (pass.token, Some(pass.lease_id)));
                    if ask != Ask::Seal { admitted.push(pass) }
                    stored = Some(mark);
                }
                Err(refusal) => {
                    prop_assert_eq!(refusal.stored(), before.as_ref());
                    prop_assert_eq!(refusal == Refusal::NoSuchResource, before.is_none());
                }
            }
        }
        for pair in admitted.windows(2) {
            prop_assert!(pair[0].token <= pair[1].token);
            if pair[0].token == pair[1].token {
                prop_assert_eq!(pair[0].lease_id, pair[1].lease_id);
                if let (Some(first), Some(second)) = (pair[0].op_seq, pair[1].op_seq) {
                    prop_assert!(first < second);
                }
            }
        }
    }

    #[test]
    fn a_ticket_survives_text_and_has_one_spelling(
        name in "\\PC{1,60}",
        token in 1..=Token::MAX,
        bytes: [u8; 16],
        not_after_us: u64,
        sign: [u8; 32],
    ) {
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&sign);
        let ticket = Ticket {
            key: KeyId::new("2026-a").unwrap(),
            namespace: Namespace::default(),
            resource: Resource::new(&name).unwrap(),
            token: Token::new(token).unwrap(),
            lease_id: LeaseId::from_bytes(bytes),
            not_after_us,
            signature,
        };
        let text = ticket.to_string();
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(&text.parse::<Ticket>().unwrap(), &ticket);
        prop_assert!(text.to_uppercase().parse::<Ticket>().is_err());
        prop_assert!(text.replace(":default:", ":default::").parse::<Ticket>().is_err());
    }

    #[test]
    fn no_text_makes_reading_a_ticket_panic(text in "\\PC{0,200}|lht1(:[0-9a-f%.]{0,40}){0,9}") {
        if let Ok(ticket) = text.parse::<Ticket>() {
            prop_assert_eq!(ticket.to_string(), text);
        }
    }
}

//! Signed tickets: what is forged, replayed, expired, or signed by a key that has gone.

use std::time::Duration;

use leasehold::{
    Namespace, Resource, Token,
    blocking::block_on,
    clock,
    fence::{
        Fence, MemoryFence, Pass, Policy, Refusal,
        tickets::{Issuer, KeyId, Keyring, Ticket},
    },
};

use crate::table::{pass, word};

const MINUTE: Duration = Duration::from_secs(60);

fn issuer(name: &str, secret: u8) -> Issuer {
    Issuer::new(KeyId::new(name).unwrap(), &[secret; 32])
}

fn fence_of(issuers: &[&Issuer]) -> Fence {
    let keys = Keyring::new(issuers.iter().map(|issuer| issuer.public())).unwrap();
    Fence::over(MemoryFence::default()).policy(Policy::default().signed_by(keys))
}

fn seal(fence: &Fence, pass: &Pass) -> String {
    word(block_on(fence.seal(pass)))
}

#[test]
fn a_signed_ticket_is_let_in_and_an_unsigned_token_is_not() {
    let issuer = issuer("a", 1);
    let fence = fence_of(&[&issuer]);
    let plain = pass("r", 10, 1);
    assert_eq!(seal(&fence, &plain), "unsigned");
    let ticket = issuer.issue(&plain, MINUTE);
    // Through text, as a client would send it.
    let signed = Pass::from(ticket.to_string().parse::<Ticket>().unwrap());
    assert_eq!(seal(&fence, &signed), "admitted");
    assert_eq!(word(block_on(fence.check(&signed))), "admitted");
    assert_eq!(word(block_on(fence.check(&plain))), "unsigned");
}

#[test]
fn a_forged_ticket_is_refused_whichever_part_was_changed() {
    let issuer = issuer("a", 1);
    let fence = fence_of(&[&issuer]);
    let good = issuer.issue(&pass("r", 10, 1), MINUTE);
    let changed = [
        Ticket { token: Token::new(11).unwrap(), ..good.clone() },
        Ticket { resource: Resource::new("other").unwrap(), ..good.clone() },
        Ticket { namespace: Namespace::new("other").unwrap(), ..good.clone() },
        Ticket { lease_id: pass("r", 1, 9).lease_id, ..good.clone() },
        Ticket { not_after_us: good.not_after_us + 1, ..good.clone() },
        Ticket { signature: [0; 64], ..good.clone() },
        Ticket { signature: [0xff; 64], ..good.clone() },
        Ticket { signature: issuer.issue(&pass("r", 11, 1), MINUTE).signature, ..good.clone() },
    ];
    for forged in changed {
        assert_eq!(seal(&fence, &Pass::from(forged)), "forged");
    }
    for bit in 0..512 {
        let mut signature = good.signature;
        signature[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(seal(&fence, &Pass::from(Ticket { signature, ..good.clone() })), "forged", "bit {bit}");
    }
    assert_eq!(seal(&fence, &Pass::from(good)), "admitted");
}

#[test]
fn a_ticket_replayed_for_another_resource_or_grant_is_refused() {
    let issuer = issuer("a", 1);
    let fence = fence_of(&[&issuer]);
    let ticket = issuer.issue(&pass("mine", 10, 1), MINUTE);
    let other_space = Pass { namespace: Namespace::new("other").unwrap(), ..pass("mine", 10, 1) };
    for other in [pass("yours", 10, 1), pass("mine", 11, 1), pass("mine", 10, 2), other_space] {
        assert_eq!(seal(&fence, &other.with_ticket(ticket.clone())), "foreign_ticket");
    }
}

#[test]
fn an_expired_ticket_is_refused_and_one_that_lasts_too_long_is_too() {
    let issuer = issuer("a", 1);
    let fence = fence_of(&[&issuer]);
    let now_us = clock::unix_us();
    let until = |us| Pass::from(issuer.issue_until(&pass("r", 10, 1), us));
    assert_eq!(seal(&fence, &until(now_us - 1)), "ticket_expired");
    assert_eq!(seal(&fence, &until(0)), "ticket_expired");
    assert_eq!(seal(&fence, &until(u64::MAX)), "ticket_too_long");
    let keys = Keyring::new([issuer.public()]).unwrap().at_most(MINUTE);
    let verify = |us| keys.verify(&until(us), 1_000_000).map_err(|refusal| refusal.word());
    assert_eq!(verify(1_000_000), Ok(()), "the last moment counts");
    assert_eq!(verify(999_999), Err("ticket_expired"));
    assert_eq!(verify(61_000_000), Ok(()));
    assert_eq!(verify(61_000_001), Err("ticket_too_long"));
}

#[test]
fn keys_are_rotated_by_their_names() {
    let (old, new) = (issuer("2026-a", 1), issuer("2026-b", 2));
    let by_old = Pass::from(old.issue(&pass("r", 10, 1), MINUTE));
    let by_new = Pass::from(new.issue(&pass("r", 11, 2), MINUTE));
    assert_eq!(seal(&fence_of(&[&old]), &by_new), "unknown_key");
    let both = fence_of(&[&old, &new]);
    assert_eq!((seal(&both, &by_old), seal(&both, &by_new)), ("admitted".into(), "admitted".into()));
    assert_eq!(seal(&fence_of(&[&new]), &by_old), "unknown_key");
    // A new key under an old name is another key.
    assert_eq!(seal(&fence_of(&[&issuer("2026-a", 3)]), &by_old), "forged");
}

#[test]
fn a_signed_but_stale_ticket_is_stale_and_an_absurd_token_is_refused_although_signed() {
    let issuer = issuer("a", 1);
    let fence = fence_of(&[&issuer]);
    let signed = |token, grant| Pass::from(issuer.issue(&pass("r", token, grant), MINUTE));
    assert_eq!(seal(&fence, &signed(20, 2)), "admitted");
    assert_eq!(seal(&fence, &signed(10, 1)), "stale");
    assert_eq!(seal(&fence, &signed(Token::MAX, 3)), "token_too_high");
}

#[test]
fn secrets_are_never_shown_and_weak_keys_are_refused() {
    let issuer = Issuer::generate(KeyId::new("a").unwrap()).unwrap();
    assert_eq!(format!("{issuer:?}"), "Issuer { key: KeyId(\"a\"), .. }");
    let again = Issuer::new(KeyId::new("a").unwrap(), &issuer.secret());
    assert_eq!(again.public(), issuer.public());
    // The point of order one: every signature would be its.
    let mut weak = [0; 32];
    weak[0] = 1;
    Keyring::new([(KeyId::new("weak").unwrap(), weak)]).unwrap_err();
    Keyring::new([]).unwrap_err();
    Keyring::new([issuer.public(), issuer.public()]).unwrap_err();
    let refusal = Keyring::new([issuer.public()]).unwrap().verify(&pass("r", 1, 1), 0);
    assert!(matches!(refusal, Err(Refusal::Ticket(_))));
}

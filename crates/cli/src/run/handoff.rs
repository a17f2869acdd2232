//! A lease as bytes, on its way from the front to the guard; and how long it may be held, which the front may have learnt after
//! the guard was forked.
//!
//! Both are the same program on the same machine, one forked from the other: there is no version to agree on, and clock
//! readings mean the same in both.

use std::time::Duration;

use leasehold::{
    Belief, LeaseId, Resource, Token, Ttl,
    core::{holder::Identity, window::Reading},
};

use super::nanos;

/// Lease id, token, TTL, hold limit and two readings; the resource's name follows.
const FIXED: usize = 16 + 8 + 8 + 8 + 2 * 24;

/// Writes a belief.
pub(super) fn encode(belief: &Belief, max_hold: Option<Duration>) -> Vec<u8> {
    let Belief { identity, ttl, sent, opened } = belief;
    let mut bytes = Vec::with_capacity(FIXED + identity.resource.as_str().len());
    bytes.extend_from_slice(identity.lease_id.as_bytes());
    // A limit of 584 years is none.
    let limit_ns = max_hold.map_or(u64::MAX, nanos);
    let numbers = [identity.token.get(), ttl.as_millis(), limit_ns].into_iter();
    for number in numbers.chain(clocks(*sent)).chain(clocks(*opened)) {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(identity.resource.as_str().as_bytes());
    bytes
}

/// Reads what [`encode`] wrote; `None` for anything else.
pub(super) fn decode(bytes: &[u8]) -> Option<(Belief, Option<Duration>)> {
    let (lease_id, rest) = bytes.split_first_chunk::<16>()?;
    let mut rest = rest;
    let mut number = || {
        let (number, after) = rest.split_first_chunk::<8>()?;
        rest = after;
        Some(u64::from_le_bytes(*number))
    };
    let token = Token::new(number()?).ok()?;
    let ttl = Ttl::from_millis(number()?).ok()?;
    let limit_ns = number()?;
    let max_hold = (limit_ns != u64::MAX).then(|| Duration::from_nanos(limit_ns));
    let sent = Reading { boot_ns: number()?, raw_ns: number()?, real_ns: number()? };
    let opened = Reading { boot_ns: number()?, raw_ns: number()?, real_ns: number()? };
    let resource = Resource::new(std::str::from_utf8(rest).ok()?).ok()?;
    let identity = Identity { resource, lease_id: LeaseId::from_bytes(*lease_id), token };
    Some((Belief { identity, ttl, sent, opened }, max_hold))
}

fn clocks(reading: Reading) -> [u64; 3] {
    [reading.boot_ns, reading.raw_ns, reading.real_ns]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_survives_the_way() {
        let belief = Belief {
            identity: Identity {
                resource: Resource::new("a\n🦀").unwrap(),
                lease_id: LeaseId::from_bytes([7; 16]),
                token: Token::new(Token::MAX).unwrap(),
            },
            ttl: Ttl::MAX,
            sent: Reading { boot_ns: 1, raw_ns: 2, real_ns: u64::MAX },
            opened: Reading::all(9),
        };
        let limit = Some(Duration::from_secs(3_600));
        assert_eq!(decode(&encode(&belief, limit)), Some((belief.clone(), limit)));
        let bytes = encode(&belief, None);
        assert_eq!(decode(&bytes), Some((belief, None)));
        assert!((0..=FIXED).all(|cut| decode(&bytes[..cut]).is_none()));
    }

    #[test]
    fn a_damaged_belief_has_one_spelling_or_none() {
        let belief = Belief {
            identity: Identity {
                resource: Resource::new("orders/42").unwrap(),
                lease_id: LeaseId::from_bytes([7; 16]),
                token: Token::new(1).unwrap(),
            },
            ttl: Ttl::MIN,
            sent: Reading::all(1),
            opened: Reading::all(2),
        };
        let near = leasehold_testkit::hostile::near(&encode(&belief, Some(Duration::from_secs(1))));
        for bytes in near.into_iter().chain(leasehold_testkit::hostile::bytes()) {
            if let Some((read, max_hold)) = decode(&bytes) {
                assert_eq!(encode(&read, max_hold), bytes);
            }
        }
    }
}

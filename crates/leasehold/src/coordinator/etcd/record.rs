//! What we keep in etcd, as protobuf: the namespace's settings, the state of a resource, the mark of a live grant, a place in
//! the queue. And how a state becomes a [`Slot`] and back.

use leasehold_core::{
    Error, HolderId, Label, LeaseId, Token, Ttl,
    record::{End, EndReason, Notice, Past},
    slot::{Held, Slot},
};
use prost::Message;

use super::failure::corrupt;

/// The layout that this version writes. A higher one is refused.
pub(super) const FORMAT: u32 = 1;

/// The namespace's settings.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Meta {
    #[prost(uint32, tag = "1")]
    pub(super) format: u32,
    /// Tokens are above this plus the cluster's revision: µs since 1970 when the namespace was made, raised when need be.
    #[prost(uint64, tag = "2")]
    pub(super) base: u64,
    #[prost(uint64, tag = "3")]
    pub(super) max_ttl_ms: u64,
}

/// What is remembered of a resource, whether or not it is held.
#[derive(Clone, PartialEq, Message)]
pub(super) struct State {
    #[prost(uint64, tag = "1")]
    pub(super) last_token: u64,
    /// The grant that nobody has ended yet. It lives as long as its mark is there.
    #[prost(message, optional, tag = "2")]
    pub(super) held: Option<HeldRecord>,
    #[prost(message, optional, tag = "3")]
    pub(super) last_end: Option<EndRecord>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) last_success_us: Option<u64>,
    /// When this was last written, µs since 1970 by the writer's clock. Decides when it may be forgotten, and nothing else.
    #[prost(uint64, tag = "5")]
    pub(super) touched_us: u64,
    /// How many grants have ended so far, as far as the history goes.
    #[prost(uint64, tag = "6")]
    pub(super) ends: u64,
}

/// A grant that has ended.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PastRecord {
    /// The how manyth of its resource it was.
    #[prost(uint64, tag = "1")]
    pub(super) nth: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) holder_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(super) label: String,
    #[prost(uint64, tag = "4")]
    pub(super) granted_us: u64,
    #[prost(message, optional, tag = "5")]
    pub(super) end: Option<EndRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeldRecord {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) lease_id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(super) token: u64,
    #[prost(uint64, tag = "3")]
    pub(super) ttl_ms: u64,
    #[prost(uint64, tag = "4")]
    pub(super) granted_us: u64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) holder_id: Vec<u8>,
    #[prost(string, tag = "6")]
    pub(super) label: String,
    #[prost(message, optional, tag = "7")]
    pub(super) revoked: Option<NoticeRecord>,
    /// Seconds that etcd gave the lease of the mark: the TTL and the lock-delay.
    #[prost(uint64, tag = "8")]
    pub(super) term_s: u64,
    /// True when that lease carries other grants of the same client as well.
    #[prost(bool, tag = "9")]
    pub(super) shared: bool,
}

/// What a grant hangs on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Term {
    /// Seconds that etcd gave the lease.
    pub(super) seconds: u64,
    /// True when the lease carries other grants of the same client as well.
    pub(super) shared: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NoticeRecord {
    #[prost(string, tag = "1")]
    pub(super) by: String,
    #[prost(string, tag = "2")]
    pub(super) reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndRecord {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) lease_id: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(super) token: u64,
    /// 0 released, 1 expired, 2 revoked.
    #[prost(uint32, tag = "3")]
    pub(super) reason: u32,
    #[prost(string, tag = "4")]
    pub(super) note: String,
    #[prost(string, tag = "5")]
    pub(super) by: String,
    #[prost(uint64, tag = "6")]
    pub(super) at_us: u64,
}

/// The value of a mark: no two grants have the same, and a revoked one has another than before.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Mark {
    #[prost(uint64, tag = "1")]
    pub(super) token: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) lease_id: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub(super) revoked: bool,
    /// The lease that it hangs on.
    #[prost(int64, tag = "4")]
    pub(super) lease: i64,
}

/// Who looked last for what to forget.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Turn {
    /// µs since 1970 by the clock of whoever looked. Decides when somebody looks again, and nothing else.
    #[prost(uint64, tag = "1")]
    pub(super) at_us: u64,
    /// The encoded name of the resource after which to go on; empty: from the beginning.
    #[prost(string, tag = "2")]
    pub(super) after: String,
}

/// The value of a place in the queue.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Place {
    #[prost(string, tag = "1")]
    pub(super) label: String,
    /// µs since 1970 by the waiter's clock. For people.
    #[prost(uint64, tag = "2")]
    pub(super) joined_us: u64,
}

/// Reads a value that we wrote.
pub(super) fn decode<M: Message + Default>(what: &str, value: &[u8]) -> Result<M, Error> {
    M::decode(value).map_err(|_| corrupt(format!("{what} in etcd is damaged")))
}

impl Meta {
    pub(super) fn max_ttl(&self) -> Result<Ttl, Error> {
        Ttl::from_millis(self.max_ttl_ms)
            .map_err(|invalid| corrupt(format!("the namespace's longest {invalid}")))
    }
}

impl State {
    /// The slot that this state stands for. `expires_us` is when the grant ends, by the clock that the slot will be shown.
    pub(super) fn to_slot(&self, expires_us: u64, free_since_us: u64) -> Result<Slot, Error> {
        Ok(Slot {
            last_token: optional_token(self.last_token)?,
            held: self.held.as_ref().map(|held| held.to_held(expires_us)).transpose()?,
            free_since_us,
            last_end: self.last_end.as_ref().map(EndRecord::to_end).transpose()?,
            last_success_us: self.last_success_us,
        })
    }

    /// The state to write for a slot. `term` is that of the grant, where there is one.
    pub(super) fn of_slot(slot: &Slot, term: Term, touched_us: u64) -> Self {
        Self {
            last_token: slot.last_token.map_or(0, Token::get),
            held: slot.held.as_ref().map(|held| HeldRecord::of_held(held, term)),
            last_end: slot.last_end.as_ref().map(EndRecord::of_end),
            last_success_us: slot.last_success_us,
            touched_us,
            ends: 0,
        }
    }

    /// Goes on counting where the state `before` was. What the history is told of the grant that stood then and does not stand
    /// any more.
    pub(super) fn follow(&mut self, before: &Self) -> Option<PastRecord> {
        self.ends = before.ends;
        let held = before.held.as_ref()?;
        if self.held.as_ref().is_some_and(|now| now.token == held.token) {
            return None;
        }
        let end = self.last_end.clone().filter(|end| end.token == held.token)?;
        self.ends = self.ends.wrapping_add(1);
        Some(PastRecord {
            nth: self.ends,
            holder_id: held.holder_id.clone(),
            label: held.label.clone(),
            granted_us: held.granted_us,
            end: Some(end),
        })
    }

    /// What the grant hangs on, while there is one.
    pub(super) fn term(&self) -> Term {
        self.held
            .as_ref()
            .map_or_else(Term::default, |held| Term { seconds: held.term_s, shared: held.shared })
    }

    /// Seconds that etcd gave the grant, while there is one.
    pub(super) fn term_s(&self) -> u64 {
        self.term().seconds
    }
}

impl PastRecord {
    pub(super) fn to_past(&self) -> Result<Past, Error> {
        let end = self.end.as_ref().ok_or_else(|| corrupt("a grant in the history has no end"))?;
        Ok(Past {
            holder_id: HolderId::from_bytes(id(&self.holder_id)?),
            label: Label::from_lossy(&self.label),
            granted_us: self.granted_us,
            end: end.to_end()?,
        })
    }
}

impl HeldRecord {
    fn to_held(&self, expires_us: u64) -> Result<Held, Error> {
        Ok(Held {
            lease_id: lease_id(&self.lease_id)?,
            token: token(self.token)?,
            ttl: Ttl::from_millis(self.ttl_ms).map_err(|invalid| corrupt(format!("a lease's {invalid}")))?,
            expires_us,
            granted_us: self.granted_us,
            holder_id: HolderId::from_bytes(id(&self.holder_id)?),
            label: Label::from_lossy(&self.label),
            revoked: self.revoked.as_ref().map(|notice| Notice {
                by: Label::from_lossy(&notice.by),
                reason: Label::from_lossy(&notice.reason),
            }),
        })
    }

    fn of_held(held: &Held, term: Term) -> Self {
        Self {
            lease_id: held.lease_id.as_bytes().to_vec(),
            token: held.token.get(),
            ttl_ms: held.ttl.as_millis(),
            granted_us: held.granted_us,
            holder_id: held.holder_id.as_bytes().to_vec(),
            label: held.label.as_str().to_owned(),
            revoked: held.revoked.as_ref().map(|notice| NoticeRecord {
                by: notice.by.as_str().to_owned(),
                reason: notice.reason.as_str().to_owned(),
            }),
            term_s: term.seconds,
            shared: term.shared,
        }
    }
}

impl EndRecord {
    fn to_end(&self) -> Result<End, Error> {
        let reason = match self.reason {
            0 => EndReason::Released,
            1 => EndReason::Expired,
            2 => EndReason::Revoked(Label::from_lossy(&self.note)),
            other => return Err(corrupt(format!("{other} in etcd is no way for a lease to end"))),
        };
        Ok(End {
            lease_id: lease_id(&self.lease_id)?,
            token: token(self.token)?,
            reason,
            by: Label::from_lossy(&self.by),
            at_us: self.at_us,
        })
    }

    fn of_end(end: &End) -> Self {
        let (reason, note) = match &end.reason {
            EndReason::Expired => (1, String::new()),
            EndReason::Revoked(note) => (2, note.as_str().to_owned()),
            _ => (0, String::new()),
        };
        Self {
            lease_id: end.lease_id.as_bytes().to_vec(),
            token: end.token.get(),
            reason,
            note,
            by: end.by.as_str().to_owned(),
            at_us: end.at_us,
        }
    }
}

impl Mark {
    pub(super) fn of(held: &Held, lease: i64) -> Self {
        Self {
            lease,
            token: held.token.get(),
            lease_id: held.lease_id.as_bytes().to_vec(),
            revoked: held.revoked.is_some(),
        }
    }
}

fn id(bytes: &[u8]) -> Result<[u8; 16], Error> {
    bytes.try_into().map_err(|_| corrupt("an id in etcd is not 16 bytes long"))
}

fn lease_id(bytes: &[u8]) -> Result<LeaseId, Error> {
    id(bytes).map(LeaseId::from_bytes)
}

fn token(value: u64) -> Result<Token, Error> {
    Token::new(value).map_err(|_| corrupt(format!("{value} in etcd is no fencing token")))
}

fn optional_token(value: u64) -> Result<Option<Token>, Error> {
    if value == 0 { Ok(None) } else { token(value).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_survives_the_way_through_etcd() {
        let held = Held {
            lease_id: LeaseId::from_bytes([1; 16]),
            token: Token::new(7).unwrap(),
            ttl: Ttl::DEFAULT,
            expires_us: 99,
            granted_us: 5,
            holder_id: HolderId::from_bytes([2; 16]),
            label: Label::from_lossy("host:1:job"),
            revoked: Some(Notice { by: Label::from_lossy("me"), reason: Label::from_lossy("why") }),
        };
        let end = |reason| End {
            lease_id: LeaseId::from_bytes([3; 16]),
            token: Token::new(6).unwrap(),
            reason,
            by: Label::default(),
            at_us: 4,
        };
        for reason in [EndReason::Released, EndReason::Expired, EndReason::Revoked(Label::from_lossy("x"))] {
            let slot = Slot {
                last_token: Some(held.token),
                held: Some(held.clone()),
                free_since_us: 0,
                last_end: Some(end(reason)),
                last_success_us: Some(3),
            };
            let bytes = State::of_slot(&slot, Term { seconds: 30, shared: true }, 9).encode_to_vec();
            let state: State = decode("it", &bytes).unwrap();
            assert_eq!((state.to_slot(99, 0).unwrap(), state.term_s()), (slot, 30));
        }
        assert_eq!(State::default().to_slot(0, 0).unwrap(), Slot::default());
    }

    #[test]
    fn what_we_did_not_write_is_refused() {
        assert!(decode::<State>("it", b"\xff\xff").is_err());
        let state = State { held: Some(HeldRecord::default()), ..State::default() };
        assert!(state.to_slot(0, 0).is_err());
    }
}

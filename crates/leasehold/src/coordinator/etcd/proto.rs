//! The messages of etcd's v3 API that we use, with the fields that we use, written by hand: building needs no protobuf
//! compiler, and what is on the wire can be read in one sitting. Fields that are not named here are skipped by the decoder
//! and left at their default by the encoder, as protobuf has it.

use prost::{Enumeration, Message, Oneof};

/// Stands at the head of every answer.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(super) raft_term: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(super) enum SortOrder {
    None = 0,
    Ascend = 1,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(super) enum SortTarget {
    Key = 0,
    Create = 2,
}

/// A read; linearizable, since `serializable` is never set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub(super) sort_order: i32,
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub(super) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
    #[prost(bool, tag = "6")]
    pub(super) ignore_lease: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

/// The answer to a put or a delete: nothing in it is needed.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Done {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3")]
    pub(super) op: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "Outcome", tags = "1, 2, 3")]
    pub(super) outcome: Option<Outcome>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Outcome {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(Done),
    #[prost(message, tag = "3")]
    Delete(Done),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub(super) enum CompareTarget {
    /// Never asked for, but the first is what an absent field means.
    Version = 0,
    Create = 1,
    Mod = 2,
    Value = 3,
}

/// "This of that key is exactly so"; a key that does not exist has revision 0 and no value at all. The kind of comparison (field 1) is
/// left at its default, which is equality.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Is", tags = "5, 6, 7")]
    pub(super) is: Option<Is>,
    /// With it, every key from `key` up to this one is compared; where there is none, one that does not exist.
    #[prost(bytes = "vec", tag = "64")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Is {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
    #[prost(string, tag = "4")]
    pub(super) error: String,
}

/// Names one lease: the request to revoke it, to keep it alive, or to say how long it still lives.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct KeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    /// 0 or less: there is no such lease. This is not an error on the wire.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct TimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    /// Whole seconds, rounded down; −1 when there is no such lease.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
    #[prost(int64, tag = "4")]
    pub(super) granted_ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchOrder", tags = "1, 2")]
    pub(super) order: Option<WatchOrder>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum WatchOrder {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    #[prost(int64, tag = "7")]
    pub(super) watch_id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct WatchCancel {
    #[prost(int64, tag = "1")]
    pub(super) watch_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(super) watch_id: i64,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// 0 a put, 1 a deletion.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

/// A request that says nothing.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(int64, tag = "3")]
    pub(super) db_size: i64,
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
    #[prost(int64, tag = "9")]
    pub(super) db_size_in_use: i64,
    #[prost(bool, tag = "10")]
    pub(super) is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) alarms: Vec<Alarm>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Alarm {
    #[prost(uint64, tag = "1")]
    pub(super) member_id: u64,
    /// 1: no space left. 2: a member's data is corrupt.
    #[prost(int32, tag = "2")]
    pub(super) alarm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Member {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    pub(super) is_learner: bool,
}

impl RangeRequest {
    /// One key.
    pub(super) fn one(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// Every key that starts with `prefix`.
    pub(super) fn below(prefix: impl Into<Vec<u8>>) -> Self {
        let key = prefix.into();
        Self { range_end: after_all(&key), key, ..Self::default() }
    }

    /// Without the values.
    pub(super) fn keys_only(self) -> Self {
        Self { keys_only: true, ..self }
    }

    /// The oldest first.
    pub(super) fn by_age(self) -> Self {
        Self { sort_order: SortOrder::Ascend.into(), sort_target: SortTarget::Create.into(), ..self }
    }
}

/// The first key behind all that start with `prefix`. Our prefixes end with `/`, so the last byte can always be raised.
pub(super) fn after_all(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

impl From<RangeRequest> for RequestOp {
    fn from(range: RangeRequest) -> Self {
        Self { op: Some(Op::Range(range)) }
    }
}

impl RequestOp {
    /// Writes a key that hangs on a lease; on none with 0.
    pub(super) fn put(key: impl Into<Vec<u8>>, value: &impl Message, lease: i64) -> Self {
        let put = PutRequest { key: key.into(), value: value.encode_to_vec(), lease, ignore_lease: false };
        Self { op: Some(Op::Put(put)) }
    }

    /// Writes a key that is there, and leaves it on the lease it hangs on.
    pub(super) fn rewrite(key: impl Into<Vec<u8>>, value: &impl Message) -> Self {
        let put = PutRequest { key: key.into(), value: value.encode_to_vec(), lease: 0, ignore_lease: true };
        Self { op: Some(Op::Put(put)) }
    }

    /// Removes a key.
    pub(super) fn delete(key: impl Into<Vec<u8>>) -> Self {
        Self { op: Some(Op::Delete(DeleteRangeRequest { key: key.into(), range_end: Vec::new() })) }
    }

    /// Removes all keys that start so.
    pub(super) fn delete_below(prefix: impl Into<Vec<u8>>) -> Self {
        let key = prefix.into();
        Self { op: Some(Op::Delete(DeleteRangeRequest { range_end: after_all(&key), key })) }
    }
}

impl Compare {
    /// The key was made at this revision; 0: it is not there.
    pub(super) fn created(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self {
            target: CompareTarget::Create.into(),
            key: key.into(),
            is: Some(Is::Create(revision)),
            range_end: Vec::new(),
        }
    }

    /// The key was last written at this revision; 0: it is not there.
    pub(super) fn written(key: impl Into<Vec<u8>>, revision: i64) -> Self {
        Self {
            target: CompareTarget::Mod.into(),
            key: key.into(),
            is: Some(Is::Mod(revision)),
            range_end: Vec::new(),
        }
    }

    /// The key is there and has this value.
    pub(super) fn says(key: impl Into<Vec<u8>>, value: Vec<u8>) -> Self {
        Self {
            target: CompareTarget::Value.into(),
            key: key.into(),
            is: Some(Is::Value(value)),
            range_end: Vec::new(),
        }
    }
}

impl ResponseOp {
    /// The keys that a read found; none for any other operation.
    pub(super) fn into_keys(self) -> Vec<KeyValue> {
        match self.outcome {
            Some(Outcome::Range(range)) => range.kvs,
            _ => Vec::new(),
        }
    }
}

impl Event {
    /// True when the key was removed.
    pub(super) fn is_removal(&self) -> bool {
        self.kind == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the numbers of etcd's own definition, so that a field or a default that is wrong here cannot hide.
    #[test]
    fn messages_are_on_the_wire_as_etcd_defines_them() {
        assert_eq!(Compare::created("k", 4).encode_to_vec(), [0x10, 1, 0x1a, 1, b'k', 0x28, 4]);
        assert_eq!(Compare::created("k", 0).encode_to_vec(), [0x10, 1, 0x1a, 1, b'k', 0x28, 0]);
        assert_eq!(Compare::written("k", 4).encode_to_vec(), [0x10, 2, 0x1a, 1, b'k', 0x30, 4]);
        assert_eq!(Compare::says("k", vec![9]).encode_to_vec(), [0x10, 3, 0x1a, 1, b'k', 0x3a, 1, 9]);
        let range = RangeRequest::below("a/").keys_only().by_age();
        assert_eq!(
            range.encode_to_vec(),
            [0x0a, 2, b'a', b'/', 0x12, 2, b'a', b'0', 0x28, 1, 0x30, 2, 0x40, 1]
        );
        let put = RequestOp::put("k", &Empty {}, 7);
        assert_eq!(put.encode_to_vec(), [0x12, 5, 0x0a, 1, b'k', 0x18, 7]);
        assert_eq!(RequestOp::rewrite("k", &Empty {}).encode_to_vec(), [0x12, 5, 0x0a, 1, b'k', 0x30, 1]);
        assert_eq!(RequestOp::delete("k").encode_to_vec(), [0x1a, 3, 0x0a, 1, b'k']);
        let create = WatchCreate { key: b"k".to_vec(), start_revision: 5, watch_id: 6 };
        let watch = WatchRequest { order: Some(WatchOrder::Create(create)) };
        assert_eq!(watch.encode_to_vec(), [0x0a, 7, 0x0a, 1, b'k', 0x18, 5, 0x38, 6]);
        assert_eq!(LeaseGrantRequest { ttl: 2, id: 0 }.encode_to_vec(), [8, 2]);
    }
}

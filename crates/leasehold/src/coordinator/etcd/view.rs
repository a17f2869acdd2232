//! One resource as etcd shows it at one revision, and changes that take effect only if nothing has changed since.
//!
//! etcd cannot run our rules inside a transaction. It can do what is as good: read everything that a decision depends on at
//! one revision, let [`leasehold_core::slot`] decide here, and write on the condition that every key that was looked at is
//! still what it was. A condition that failed has changed nothing.

use leasehold_core::{
    Error, LeaseId, Resource,
    slot::{Now, Slot},
};

use super::{
    failure::{Fail, corrupt},
    keys::{Keys, claimant_of},
    proto::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse},
    record::{FORMAT, Meta, State, decode},
    rpc::{Effect, Rpc},
};

/// A resource at one revision.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The revision of the whole store.
    pub(super) revision: u64,
    /// True when nobody has read it: it is what a release of ours left.
    pub(super) assumed: bool,
    /// The settings, and when they were written; `None` when the namespace is new or has lost its memory.
    pub(super) meta: Option<(Meta, i64)>,
    /// While nothing is granted.
    pub(super) quarantine: Option<Tie>,
    /// What is remembered of the resource.
    pub(super) state: State,
    /// When that was written; 0 when nothing is.
    pub(super) written: i64,
    /// There while the grant of `state` lives.
    pub(super) mark: Option<Tie>,
    /// Who waits, the first to come first.
    pub(super) line: Vec<Seat>,
}

/// A key that hangs on a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tie {
    pub(super) created: i64,
    pub(super) written: i64,
    pub(super) lease: i64,
}

/// A place in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seat {
    pub(super) lease_id: LeaseId,
    pub(super) created: i64,
}

impl From<&KeyValue> for Tie {
    fn from(key: &KeyValue) -> Self {
        Self { created: key.create_revision, written: key.mod_revision, lease: key.lease }
    }
}

/// The reads of a view, in the order in which [`View::of`] takes their answers.
fn reads(keys: &Keys, resource: &Resource) -> Vec<RequestOp> {
    vec![
        RangeRequest::one(keys.meta()).into(),
        RangeRequest::one(keys.quarantine()).keys_only().into(),
        RangeRequest::one(keys.state(resource)).into(),
        RangeRequest::one(keys.mark(resource)).keys_only().into(),
        RangeRequest::below(keys.line(resource)).keys_only().by_age().into(),
    ]
}

/// Reads a resource.
pub(super) async fn read(rpc: &Rpc, keys: &Keys, resource: &Resource) -> Result<View, Error> {
    let question = TxnRequest { success: reads(keys, resource), ..TxnRequest::default() };
    let answer = rpc.call("/etcdserverpb.KV/Txn", question, Effect::None).await.map_err(Fail::of_read)?;
    View::of(answer)
}

/// Makes changes if everything is still as compared: `None` when it is not, and nothing was changed. The new state is not asked
/// for in the same question: it would be written to the cluster's log each time, and is rarely wanted.
pub(super) async fn attempt(
    rpc: &Rpc,
    compare: Vec<Compare>,
    success: Vec<RequestOp>,
) -> Result<Option<TxnResponse>, Fail> {
    let question = TxnRequest { compare, success, failure: Vec::new() };
    let answer: TxnResponse = rpc.call("/etcdserverpb.KV/Txn", question, Effect::Some).await?;
    Ok(answer.succeeded.then_some(answer))
}

impl View {
    fn of(answer: TxnResponse) -> Result<Self, Error> {
        let header = answer.header.unwrap_or_default();
        let mut answers = answer.responses.into_iter().map(super::proto::ResponseOp::into_keys);
        let mut next = || answers.next().unwrap_or_default();
        let (meta, quarantine, state, mark, line) = (next(), next(), next(), next(), next());
        let view = Self {
            revision: header.revision.unsigned_abs(),
            assumed: false,
            meta: meta.first().map(read_meta).transpose()?,
            quarantine: quarantine.first().map(Tie::from),
            state: state
                .first()
                .map_or(Ok(State::default()), |key| decode("a resource's state", &key.value))?,
            written: state.first().map_or(0, |key| key.mod_revision),
            mark: mark.first().map(Tie::from),
            line: line.iter().filter_map(seat).collect(),
        };
        if view.mark.is_some() && view.state.held.is_none() {
            return Err(corrupt("etcd has the mark of a grant, and no record of it"));
        }
        Ok(view)
    }

    /// The place of a claim, and when it was taken.
    pub(super) fn seat(&self, lease_id: LeaseId) -> Option<Seat> {
        self.line.iter().find(|seat| seat.lease_id == lease_id).copied()
    }

    /// True when the grant of this lease id lives and was not revoked.
    pub(super) fn is_held_by(&self, lease_id: LeaseId) -> bool {
        let held = self.state.held.as_ref();
        self.mark.is_some()
            && held.is_some_and(|held| held.lease_id == lease_id.as_bytes() && held.revoked.is_none())
    }

    /// The slot as of `now`: a grant whose mark is there ends later, by at most `remaining_us`; one without it has ended. A free
    /// resource has been so since `free_since_us`.
    pub(super) fn slot(&self, now: Now, remaining_us: u64, free_since_us: u64) -> Result<Slot, Error> {
        let expires_us = if self.mark.is_some() {
            now.clock_us + remaining_us.max(1)
        } else {
            free_since_us.min(now.clock_us)
        };
        self.state.to_slot(expires_us, free_since_us)
    }

    /// The conditions under which nothing that a decision about the grant depends on has changed.
    pub(super) fn unchanged(&self, keys: &Keys, resource: &Resource) -> Vec<Compare> {
        vec![
            Compare::written(keys.state(resource), self.written),
            Compare::written(keys.mark(resource), self.mark.map_or(0, |mark| mark.written)),
        ]
    }

    /// The condition under which nobody waits.
    pub(super) fn nobody_waits(keys: &Keys, resource: &Resource) -> Compare {
        let line = keys.line(resource);
        let range_end = super::proto::after_all(line.as_bytes());
        Compare { range_end, ..Compare::created(line, 0) }
    }

    /// The condition under which the namespace is as much in quarantine as it was.
    pub(super) fn same_quarantine(&self, keys: &Keys) -> Compare {
        Compare::created(keys.quarantine(), self.quarantine.map_or(0, |tie| tie.created))
    }
}

pub(super) fn read_meta(key: &KeyValue) -> Result<(Meta, i64), Error> {
    let meta: Meta = decode("the namespace's record", &key.value)?;
    if meta.format > FORMAT {
        return Err(Error::new(
            leasehold_core::Kind::Unsupported,
            format!("the namespace is of format {}, which is newer than this program", meta.format),
        )
        .advise("upgrade leasehold here"));
    }
    Ok((meta, key.mod_revision))
}

fn seat(key: &KeyValue) -> Option<Seat> {
    Some(Seat { lease_id: claimant_of(&key.key)?, created: key.create_revision })
}

/// The revision of a change, and the places that its last operation has read.
pub(super) fn seats(answer: TxnResponse) -> (u64, Vec<Seat>) {
    let revision = answer.header.unwrap_or_default().revision.unsigned_abs();
    let keys =
        answer.responses.into_iter().next_back().map(super::proto::ResponseOp::into_keys).unwrap_or_default();
    (revision, keys.iter().filter_map(seat).collect())
}

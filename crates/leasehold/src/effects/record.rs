//! What is remembered of an operation, and of the events that it gave.

use leasehold_core::{Error, Kind, Label, LeaseId, Namespace, Resource, Token};
use serde_json::Value;

use super::key::{Fingerprint, Key};

/// Largest response and largest event in bytes of JSON (ours: both are read as a whole, many at once).
pub const MAX_JSON_BYTES: usize = 1024 * 1024;
/// Most events of one operation (ours: a transaction is no batch job).
pub const MAX_EVENTS: u32 = 1_000;

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum State {
    /// An external effect was begun: whether it has happened is for the far end to say.
    Started,
    /// It is done, and its response is stored.
    Done,
    /// An external effect was begun and nobody can find out whether it has happened: a person must decide.
    NeedsReconciliation,
}

impl State {
    /// One stable lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::NeedsReconciliation => "needs_reconciliation",
        }
    }

    pub(super) fn read(word: &str) -> Result<Self, Error> {
        [Self::Started, Self::Done, Self::NeedsReconciliation]
            .into_iter()
            .find(|state| state.word() == word)
            .ok_or_else(|| corrupt(format!("an operation has the state {word:?}")))
    }
}

/// What is remembered under a key.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// The key.
    pub key: Key,
    /// The request that was made under it.
    pub fingerprint: Fingerprint,
    /// How far it has come.
    pub state: State,
    /// The namespace of the lease.
    pub namespace: Namespace,
    /// The leased resource.
    pub resource: Resource,
    /// The fencing token of the grant that has carried it out, or has begun to.
    pub token: Token,
    /// That grant's lease id.
    pub lease_id: LeaseId,
    /// What people call its holder.
    pub holder: Label,
    /// What was answered; `None` until it is done.
    pub response: Option<Value>,
    /// What people have to know: why it needs reconciliation, or who has resolved it.
    pub note: Option<String>,
    /// When it was begun, µs since 1970 by the database's clock.
    pub created_us: u64,
    /// When it was done.
    pub done_us: Option<u64>,
    /// From when on the key may be forgotten; `None`: never.
    pub expires_us: Option<u64>,
}

/// The answer to a request: the same at every repetition.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// What the operation gave.
    pub response: Value,
    /// True when it had been carried out before, and this is what was stored.
    pub replayed: bool,
    /// The fencing token under which it was carried out.
    pub token: Token,
}

/// An event in the outbox.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Its number: the same at every delivery, so that consumers know it again.
    pub id: u64,
    /// What it is about, as the operation called it.
    pub topic: String,
    /// What it says.
    pub payload: Value,
    /// The operation that gave it.
    pub key: Key,
    /// The namespace of the lease.
    pub namespace: Namespace,
    /// The leased resource. Events of one resource are delivered in the order of their commits.
    pub resource: Resource,
    /// The fencing token under which it was written.
    pub token: Token,
    /// When it was written, µs since 1970 by the database's clock.
    pub created_us: u64,
    /// When it was published; `None` while it waits.
    pub published_us: Option<u64>,
    /// How often its publication has failed.
    pub attempts: u32,
    /// When it was set aside: it is not tried any more.
    pub set_aside_us: Option<u64>,
    /// Why its publication failed last.
    pub error: Option<String>,
}

/// Something that this library never writes.
pub(super) fn corrupt(what: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, what)
        .advise("somebody has changed the tables of the effects by hand; put the row right")
}

/// JSON as it is stored.
pub(super) fn json_text(what: &str, value: &Value) -> Result<String, Error> {
    let text = value.to_string();
    if text.len() > MAX_JSON_BYTES {
        return Err(Error::new(
            Kind::Invalid,
            format!("{what} has {} bytes of JSON, and at most {MAX_JSON_BYTES} are kept", text.len()),
        )
        .advise("store the bulk elsewhere, and its address here"));
    }
    Ok(text)
}

/// JSON as it was stored.
pub(super) fn json_value(text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|_| corrupt("a stored response or event is no JSON"))
}

/// A number as databases keep it.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A key is not ours any more when the answer is to be stored.
pub(super) fn resolved(key: &Key) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("the operation {key} was taken over or resolved by somebody else meanwhile"),
    )
    .advise("ask again with the same key, which knows")
}

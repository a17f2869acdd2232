//! The script's answers, read back into the words of the contract.
//!
//! Whatever does not have the form that our own script gives it is damage, and said so.

use std::time::Duration;

use leasehold_core::{
    Error, HolderId, Kind, Label, LeaseId, Resource, Token, Ttl,
    line::recheck,
    record::{
        Acquired, Busy, End, EndReason, Gone, Grant, Notice, Past, Queued, Record, Released, Renewed,
        Revoked, WaiterInfo,
    },
    token::NoToken,
};
use redis::Value;

use super::failure;
use crate::coordinator::rules;

/// The parts of one answer, taken one by one.
pub(crate) struct Parts(std::vec::IntoIter<Value>);

/// Reads an answer; the error says what is wrong with it.
pub(crate) type Read<T> = Result<T, Error>;

fn odd() -> Error {
    Error::new(Kind::Corrupt, "the server's answer does not have the form that the script gives it")
        .advise("see whether all programs that use this namespace are of one version")
}

impl Parts {
    pub(crate) fn of(value: Value) -> Read<Self> {
        match value {
            Value::Array(items) => Ok(Self(items.into_iter())),
            _ => Err(odd()),
        }
    }

    /// The answer's first word, and the rest. An operation that failed is its error.
    pub(crate) fn open(value: Value) -> Read<(String, Self)> {
        let mut parts = Self::of(value)?;
        let word = parts.text()?;
        if word == "failed" {
            let said = parts.text()?;
            let (code, detail) = said.split_once(' ').unwrap_or((&said, ""));
            return Err(failure::of_code(code, detail).error);
        }
        if word == "doubted" {
            return Err(Error::new(Kind::Unknown, "too few replicas have confirmed the change in time")
                .advise("see to the replicas (INFO replication), or lower wait_replicas in the URL"));
        }
        Ok((word, parts))
    }

    fn item(&mut self) -> Read<Value> {
        self.0.next().ok_or_else(odd)
    }

    fn bytes(&mut self) -> Read<Vec<u8>> {
        match self.item()? {
            Value::BulkString(bytes) => Ok(bytes),
            Value::SimpleString(text) => Ok(text.into_bytes()),
            _ => Err(odd()),
        }
    }

    pub(crate) fn text(&mut self) -> Read<String> {
        String::from_utf8(self.bytes()?).map_err(|_| odd())
    }

    /// A number, which comes as text or as an integer.
    pub(crate) fn number(&mut self) -> Read<u64> {
        number(&self.item()?)
    }

    fn small(&mut self) -> Read<u32> {
        Ok(u32::try_from(self.number()?).unwrap_or(u32::MAX))
    }

    pub(crate) fn flag(&mut self) -> Read<bool> {
        Ok(self.number()? == 1)
    }

    /// A number, or nothing.
    fn some_number(&mut self) -> Read<Option<u64>> {
        match self.item()? {
            Value::Nil | Value::Boolean(false) => Ok(None),
            value => number(&value).map(Some),
        }
    }

    /// An array, or nothing.
    fn some(&mut self) -> Read<Option<Self>> {
        match self.item()? {
            Value::Nil | Value::Boolean(false) => Ok(None),
            value => Self::of(value).map(Some),
        }
    }

    pub(crate) fn all(&mut self) -> Read<Self> {
        Self::of(self.item()?)
    }

    fn label(&mut self) -> Read<Label> {
        Ok(match self.item()? {
            Value::BulkString(bytes) => Label::from_lossy(&String::from_utf8_lossy(&bytes)),
            Value::Nil | Value::Boolean(false) => Label::default(),
            _ => return Err(odd()),
        })
    }

    fn token(&mut self) -> Read<Token> {
        Token::new(self.number()?).map_err(|_| odd())
    }

    fn ttl(&mut self) -> Read<Ttl> {
        Ttl::from_millis(self.number()?).map_err(|_| odd())
    }

    pub(crate) fn micros(&mut self) -> Read<Duration> {
        self.number().map(Duration::from_micros)
    }

    fn lease_id(&mut self) -> Read<LeaseId> {
        super::op::lease_id(&self.bytes()?).ok_or_else(odd)
    }

    fn holder_id(&mut self) -> Read<HolderId> {
        self.bytes()?.try_into().map(HolderId::from_bytes).map_err(|_| odd())
    }
}

fn number(value: &Value) -> Read<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| odd()),
        Value::BulkString(bytes) => {
            std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or_else(odd)
        }
        _ => Err(odd()),
    }
}

fn record(mut parts: Parts) -> Read<Record> {
    let lease_id = parts.lease_id()?;
    let (token, ttl, remaining) = (parts.token()?, parts.ttl()?, parts.micros()?);
    let (granted_us, holder_id, label) = (parts.number()?, parts.holder_id()?, parts.label()?);
    let by = parts.item()?;
    let revoked = match by {
        Value::BulkString(by) => {
            Some(Notice { by: Label::from_lossy(&String::from_utf8_lossy(&by)), reason: parts.label()? })
        }
        _ => None,
    };
    Ok(Record { lease_id, token, ttl, remaining, granted_us, holder_id, label, revoked })
}

fn end(mut parts: Parts) -> Read<End> {
    let (lease_id, token) = (parts.lease_id()?, parts.token()?);
    let reason = parts.number()?;
    let why = parts.label()?;
    let reason = match reason {
        0 => EndReason::Released,
        1 => EndReason::Expired,
        2 => EndReason::Revoked(why),
        _ => return Err(odd()),
    };
    Ok(End { lease_id, token, reason, by: parts.label()?, at_us: parts.number()? })
}

/// The answer to a look at the history.
pub(crate) fn history(value: Value) -> Read<Vec<Past>> {
    let (word, mut parts) = Parts::open(value)?;
    if word != "history" {
        return Err(odd());
    }
    let past = |value| {
        let mut parts = Parts::of(value)?;
        let (holder_id, label, granted_us) = (parts.holder_id()?, parts.label()?, parts.number()?);
        Ok(Past { holder_id, label, granted_us, end: end(parts)? })
    };
    parts.all()?.0.map(past).collect()
}

fn gone(mut parts: Parts) -> Read<Gone> {
    Ok(match parts.text()?.as_str() {
        "expired" => Gone::Expired,
        "superseded" => Gone::Superseded { token: parts.token()? },
        "revoked" => Gone::Revoked { by: parts.label()?, reason: parts.label()?, remaining: parts.micros()? },
        "released" => Gone::Released,
        "absent" => Gone::Absent,
        _ => return Err(odd()),
    })
}

/// The refusal of one request.
fn refusal(mut parts: Parts, asked: &Asked<'_>) -> Read<Error> {
    Ok(match parts.text()?.as_str() {
        "ttl" => rules::too_long(asked.ttl, parts.ttl()?),
        "agree" => disagrees(asked, parts.ttl()?),
        "floor" => rules::no_token(NoToken::WildFloor { floor: parts.number()?, limit: parts.number()? }),
        "exhausted" => rules::no_token(NoToken::Exhausted),
        "fresh" => rules::not_fresh(asked.namespace),
        _ => return Err(odd()),
    })
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) ttl: Ttl,
    pub(crate) told: Option<Ttl>,
    pub(crate) namespace: &'a str,
}

/// A client that would quarantine for another time than the namespace's grants may last is refused.
pub(crate) fn disagrees(asked: &Asked<'_>, stored: Ttl) -> Error {
    let told = asked.told.unwrap_or(super::space::DEFAULT_MAX_TTL);
    let namespace = asked.namespace;
    Error::new(
        Kind::Invalid,
        format!("this client was told a longest TTL of {told}, the namespace {namespace} has {stored}"),
    )
    .advise(format!(
        "put max_ttl={}ms into the URL, or change the namespace with `leasehold init --max-ttl`",
        stored.as_millis()
    ))
}

/// What a claim was answered.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) answer: Acquired,
    /// True when the claim made the resource known.
    pub(crate) new: bool,
    /// The token of the grant that ended last before this one; 0 where none is known.
    pub(crate) after: u64,
}

/// The answer to a claim.
pub(crate) fn acquired(value: Value, asked: &Asked<'_>) -> Read<Claimed> {
    let (word, mut parts) = Parts::open(value)?;
    let (mut new, mut after) = (false, 0);
    let answer = match word.as_str() {
        "granted" => {
            let (token, ttl, granted_us) = (parts.token()?, parts.ttl()?, parts.number()?);
            let (adopted, after_lapse) = (parts.flag()?, parts.flag()?);
            (new, after) = (parts.flag()?, parts.number()?);
            Acquired::Granted(Grant { token, ttl, granted_us, adopted, after_lapse })
        }
        "busy" => {
            let holder = record(parts.all()?)?;
            let position = parts.some_number()?.map(small);
            let recheck = recheck(position.unwrap_or(0), holder.remaining);
            Acquired::Busy(Busy { holder, position, recheck })
        }
        "queued" => {
            let ahead = parts.small()?;
            let position = parts.some_number()?.map(small);
            // A reservation that is over lets the next re-check through: do not make it wait for nothing.
            let left = parts.micros()?.max(Duration::from_millis(1));
            Acquired::Queued(Queued { ahead, position, recheck: recheck(ahead, left) })
        }
        "quarantined" => {
            let remaining = parts.micros()?;
            Acquired::Quarantined { remaining, position: parts.some_number()?.map(small) }
        }
        "done" => Acquired::AlreadyDone { started_us: parts.number()?, due_in: parts.micros()? },
        "spent" => Acquired::Spent(end(parts.all()?)?),
        "refused" => return Err(refusal(parts, asked)?),
        _ => return Err(odd()),
    };
    Ok(Claimed { answer, new, after })
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The answer to a renewal.
pub(crate) fn renewed(value: Value, asked: &Asked<'_>) -> Read<Renewed> {
    let (word, mut parts) = Parts::open(value)?;
    Ok(match word.as_str() {
        "extended" => Renewed::Extended { ttl: asked.ttl },
        "gone" => Renewed::Gone(gone(parts.all()?)?),
        "refused" => return Err(refusal(parts, asked)?),
        _ => return Err(odd()),
    })
}

/// The answer to a release.
pub(crate) fn released(value: Value) -> Read<Released> {
    let (word, mut parts) = Parts::open(value)?;
    Ok(match word.as_str() {
        "ended" => Released::Ended,
        "left" => Released::LeftQueue,
        "gone" => Released::NotHeld(gone(parts.all()?)?),
        _ => return Err(odd()),
    })
}

/// The answer to a revocation.
pub(crate) fn revoked(value: Value) -> Read<Revoked> {
    let (word, mut parts) = Parts::open(value)?;
    Ok(match word.as_str() {
        "ended" => Revoked::Ended { record: record(parts.all()?)?, busy_for: parts.micros()? },
        "other" => Revoked::OtherToken(record(parts.all()?)?),
        "free" => Revoked::NotHeld(parts.some()?.map(end).transpose()?),
        _ => return Err(odd()),
    })
}

/// One resource as it was seen; `known` is false when nothing is kept of it.
pub(crate) struct Seen {
    pub(crate) record: Option<Record>,
    pub(crate) last_token: Option<Token>,
    pub(crate) last_end: Option<End>,
    pub(crate) last_success_us: Option<u64>,
    pub(crate) waiters: Vec<WaiterInfo>,
    pub(crate) waiting: u32,
    pub(crate) known: bool,
}

/// The answer to an inspection.
pub(crate) fn seen(value: Value) -> Read<Seen> {
    let (word, mut parts) = Parts::open(value)?;
    if word != "seen" {
        return Err(odd());
    }
    let record = parts.some()?.map(record).transpose()?;
    let last_token = parts.some_number()?.map(|number| Token::new(number).map_err(|_| odd())).transpose()?;
    let last_end = parts.some()?.map(end).transpose()?;
    let last_success_us = parts.some_number()?;
    let waiters = parts.all()?.0.map(waiter).collect::<Read<_>>()?;
    Ok(Seen {
        record,
        last_token,
        last_end,
        last_success_us,
        waiters,
        waiting: parts.small()?,
        known: !parts.flag()?,
    })
}

fn waiter(value: Value) -> Read<WaiterInfo> {
    let mut parts = Parts::of(value)?;
    Ok(WaiterInfo { lease_id: parts.lease_id()?, label: parts.label()?, waited: parts.micros()? })
}

/// What a shard is, with some of its names.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) names: Vec<String>,
    pub(crate) max_ttl: Option<Ttl>,
    pub(crate) quarantine: Option<Duration>,
    /// False while nobody has been granted anything and nobody has prepared it.
    pub(crate) settled: bool,
}

/// The answer to a look.
pub(crate) fn shown(value: Value) -> Read<Shown> {
    let (word, mut parts) = Parts::open(value)?;
    if word != "names" {
        return Err(odd());
    }
    let mut names = Vec::new();
    let mut found = parts.all()?;
    while found.0.len() > 0 {
        names.push(found.text()?);
    }
    let (max_ms, quarantine, known) = (parts.number()?, parts.micros()?, parts.flag()?);
    let max_ttl = Ttl::from_millis(max_ms).ok().filter(|_| known);
    let quarantine = Some(quarantine).filter(|left| !left.is_zero());
    Ok(Shown { names, max_ttl, quarantine, settled: parts.flag()? })
}

/// The resource of a name in a list.
pub(crate) fn named(name: &str) -> Read<Resource> {
    Resource::decode(name)
        .map_err(|invalid| Error::new(Kind::Corrupt, format!("the list of names has an {invalid}")))
}

/// The last name up to which several lists of names, each cut off after so many, are complete together; `None` when none was
/// cut off.
pub(crate) fn edge(lists: &[Vec<String>], limit: u64) -> Option<String> {
    let full = lists.iter().filter(|names| names.len() as u64 >= limit);
    full.filter_map(|names| names.last()).min().cloned()
}

/// The answer about a name that was to be forgotten: whether its record is there, and whether the name was and is not any more.
pub(crate) fn forgotten(value: Value) -> Read<(bool, bool)> {
    let (word, mut parts) = Parts::open(value)?;
    if word != "forgotten" {
        return Err(odd());
    }
    Ok((parts.flag()?, parts.flag()?))
}

/// What a preparation found or made.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) created: bool,
    pub(crate) max_ttl: Ttl,
    pub(crate) quarantine: Option<Duration>,
}

/// The answer to a preparation.
pub(crate) fn prepared(value: Value, asked: &Asked<'_>) -> Read<Made> {
    let (word, mut parts) = Parts::open(value)?;
    match word.as_str() {
        "prepared" => {
            let (created, max_ttl, left) = (parts.flag()?, parts.ttl()?, parts.micros()?);
            Ok(Made { created, max_ttl, quarantine: Some(left).filter(|left| !left.is_zero()) })
        }
        "refused" => Err(refusal(parts, asked)?),
        _ => Err(odd()),
    }
}

/// The same answer when too few replicas have what it says. What only describes, refuses or extends stands: a quarantine
/// covers a renewal that is forgotten.
pub(crate) fn doubted(value: Value) -> Value {
    let changed = match &value {
        Value::Array(parts) => match parts.first() {
            Some(Value::BulkString(word)) => {
                ["granted", "ended", "prepared"].iter().any(|one| one.as_bytes() == word)
            }
            _ => false,
        },
        _ => false,
    };
    if changed { Value::Array(vec![Value::BulkString(b"doubted".to_vec())]) } else { value }
}

/// True when an operation failed because the server is a replica: the connection leads to the wrong one.
pub(crate) fn from_a_replica(value: &Value) -> bool {
    let Value::Array(parts) = value else { return false };
    let [Value::BulkString(word), Value::BulkString(said), ..] = parts.as_slice() else { return false };
    word == b"failed" && (said.starts_with(b"READONLY") || said.starts_with(b"MASTERDOWN"))
}

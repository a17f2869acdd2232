//! Operations and events as Redis keeps them.

use std::collections::HashMap;

use leasehold_core::{Error, Label, LeaseId, Namespace, Resource, Token};
use redis::Value;

use crate::effects::{
    key::{Fingerprint, Key},
    record::{Event, Record, State, corrupt, json_value},
};

/// Scope and key as one word: neither can have a NUL.
pub(super) fn operation(key: &Key) -> String {
    format!("{}\0{}", key.scope(), key.as_str())
}

fn key(operation: &str) -> Result<Key, Error> {
    let parts = operation.split_once('\0').ok_or_else(|| corrupt("the name of an operation is none"))?;
    Key::new(parts.0, parts.1).map_err(|_| corrupt("the name of an operation is none"))
}

/// The fields of a hash. A hash that is not there has none.
struct Fields(HashMap<String, String>);

impl Fields {
    fn of(value: &Value) -> Result<Self, Error> {
        redis::from_redis_value_ref(value)
            .map(Self)
            .map_err(|_| corrupt("a stored operation or event is no hash of texts"))
    }

    fn some(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn text(&self, name: &str) -> Result<&str, Error> {
        self.some(name).ok_or_else(|| corrupt(format!("a stored operation or event has no {name}")))
    }

    fn maybe(&self, name: &str) -> Result<Option<u64>, Error> {
        let number = |text: &str| {
            text.parse().map_err(|_| corrupt(format!("the {name} of an operation or event is no number")))
        };
        self.some(name).map(number).transpose()
    }

    fn number(&self, name: &str) -> Result<u64, Error> {
        self.maybe(name)?.ok_or_else(|| corrupt(format!("a stored operation or event has no {name}")))
    }
}

/// What is remembered under a key.
pub(super) fn record(name: &str, value: &Value) -> Result<Option<Record>, Error> {
    let fields = Fields::of(value)?;
    if fields.0.is_empty() {
        return Ok(None);
    }
    let invalid = |_| corrupt("a stored operation has a name, a token or a key that is none");
    Ok(Some(Record {
        key: key(name)?,
        fingerprint: hash(fields.text("hash")?).ok_or_else(|| corrupt("a stored request has no hash"))?,
        state: State::read(fields.text("state")?)?,
        namespace: Namespace::new(fields.text("namespace")?).map_err(invalid)?,
        resource: Resource::new(fields.text("resource")?).map_err(invalid)?,
        token: Token::new(fields.number("token")?).map_err(invalid)?,
        lease_id: fields.text("lease_id")?.parse::<LeaseId>().map_err(invalid)?,
        holder: Label::from_lossy(fields.some("holder").unwrap_or_default()),
        response: fields.some("response").map(json_value).transpose()?,
        note: fields.some("note").map(str::to_owned),
        created_us: fields.number("created")?,
        done_us: fields.maybe("done")?,
        expires_us: fields.maybe("expires")?,
    }))
}

fn hash(digits: &str) -> Option<Fingerprint> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    Fingerprint::from_bytes(&bytes?)
}

/// An event, by its number.
pub(super) fn event(id: &str, value: &Value) -> Result<Option<Event>, Error> {
    let fields = Fields::of(value)?;
    if fields.0.is_empty() {
        return Ok(None);
    }
    let invalid = |_| corrupt("a stored event has a name, a token or a key that is none");
    Ok(Some(Event {
        id: id.parse().map_err(|_| corrupt("the number of an event is none"))?,
        topic: fields.text("topic")?.to_owned(),
        payload: json_value(fields.text("payload")?)?,
        key: key(fields.text("operation")?)?,
        namespace: Namespace::new(fields.text("namespace")?).map_err(invalid)?,
        resource: Resource::new(fields.text("resource")?).map_err(invalid)?,
        token: Token::new(fields.number("token")?).map_err(invalid)?,
        created_us: fields.number("created")?,
        published_us: fields.maybe("published")?,
        attempts: u32::try_from(fields.number("attempts")?).unwrap_or(u32::MAX),
        set_aside_us: fields.maybe("aside")?,
        error: fields.some("error").map(str::to_owned),
    }))
}

/// A part of a list: where to go on, and what was found there.
pub(super) fn part<T>(
    answer: Value,
    read: impl Fn(&str, &Value) -> Result<Option<T>, Error>,
) -> Result<(Option<String>, Vec<T>), Error> {
    let no_list = || corrupt("the list of operations or events is none");
    let (last, rows): (String, Vec<(String, Value)>) =
        redis::from_redis_value(answer).map_err(|_| no_list())?;
    let found =
        rows.iter().filter_map(|(name, value)| read(name, value).transpose()).collect::<Result<_, _>>()?;
    Ok((Some(last).filter(|last| !last.is_empty()), found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(fields: &[(&str, &str)]) -> Value {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(fields.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect())
    }

    const GOOD: [(&str, &str); 8] = [
        ("hash", "0101010101010101010101010101010101010101010101010101010101010101"),
        ("state", "done"),
        ("namespace", "default"),
        ("resource", "r"),
        ("token", "7"),
        ("lease_id", "01010101010101010101010101010101"),
        ("created", "1"),
        ("response", "{}"),
    ];

    #[test]
    fn what_somebody_wrote_by_hand_is_told_and_nothing_panics() {
        let record = |fields: &[(&str, &str)]| record("s\0k", &flat(fields));
        assert_eq!(record(&GOOD).unwrap().unwrap().key, Key::new("s", "k").unwrap());
        assert_eq!(record(&[]).unwrap(), None);
        for (at, _) in GOOD.iter().enumerate() {
            for bad in ["", "x", "-1", "99999999999999999999999", "é", "{", "0é"] {
                let mut fields = GOOD;
                fields[at].1 = bad;
                // A name and a response may be almost anything; everything else is refused or read, and never panics.
                let read = record(&fields);
                assert!(
                    read.is_err() || matches!(GOOD[at].0, "namespace" | "resource" | "response"),
                    "{}: {bad}",
                    GOOD[at].0
                );
            }
        }
        assert!(super::record("no name", &flat(&GOOD)).is_err());
        assert!(super::record("s\0k", &Value::Int(1)).is_err());
        assert!(event("x", &flat(&GOOD)).is_err());
        assert!(part(Value::Nil, super::record).is_err());
    }
}

//! The scripts, what goes into them, and what comes out.

use std::sync::LazyLock;

use leasehold_core::{
    Error, Kind,
    fence::{Ask, Pass},
};
use redis::{RedisError, Script, Value, aio::ConnectionLike};

use crate::{
    coordinator::redis::of_request,
    fence::{
        NotAdmitted,
        redis::{RedisFence, script},
    },
};

macro_rules! text {
    ($($file:literal),*) => { concat!($(include_str!(concat!("lua/", $file, ".lua"))),*) };
}

pub(super) const RECORDS: &str = text!("names", "records");
pub(super) const EVENTS: &str = text!("names", "events");
pub(super) const RESOLVE: &str = text!("names", "resolve");
pub(super) const DECIDE: &str = text!("names", "decide");
pub(super) const FORGET: &str = text!("names", "purge", "forget");
pub(super) const DUE: &str = text!("names", "due");
const MARK: &str = text!("names", "mark");

/// What is done behind the fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    Apply,
    Take,
    Leave,
}

impl Behind {
    fn script(self) -> &'static Script {
        static SCRIPTS: LazyLock<[Script; 3]> = LazyLock::new(|| {
            [
                text!("names", "sound", "purge", "apply"),
                text!("names", "sound", "take"),
                text!("names", "leave"),
            ]
            .map(|text| Script::new(&format!("{}{text}", script::ASK)))
        });
        &SCRIPTS[self as usize]
    }
}

/// The one that notes what became of events.
pub(super) fn mark() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{}{MARK}", script::ASK));
    &TEXT
}

/// The key from which the names of all others follow.
pub(super) fn root(tag: &str) -> String {
    format!("lheffects:{{{tag}}}:keys")
}

/// The key of what is remembered of an operation.
pub(super) fn record_key(tag: &str, operation: &str) -> String {
    format!("lheffects:{{{tag}}}:key:{operation}")
}

/// The key of an event.
pub(super) fn event_key(tag: &str, id: u64) -> String {
    format!("lheffects:{{{tag}}}:event:{id}")
}

/// What a script behind the fence has answered: its first word, and what is behind it.
pub(super) type Said = (String, Vec<Value>);

/// Runs one of them. What the fence refuses is refused.
pub(super) async fn behind<C: ConnectionLike + Send>(
    connection: &mut C,
    what: Behind,
    (fence, tag): (&RedisFence, &str),
    pass: &Pass,
    (keys, arguments): (&[String], Vec<Vec<u8>>),
) -> Result<Said, NotAdmitted> {
    fence.judge(pass)?;
    let mut call = what.script().prepare_invoke();
    call.key(fence.key_of(&pass.namespace, &pass.resource)).key(root(tag)).key(keys);
    for argument in script::arguments(pass, Ask::Write) {
        call.arg(argument);
    }
    for argument in arguments {
        call.arg(argument);
    }
    let answer = call.invoke_async::<Value>(connection).await;
    said(fence, pass, answer.map_err(|error| failed(&error).on(&pass.resource))?)
}

/// Reads what a script behind the fence has answered.
pub(super) fn said(fence: &RedisFence, pass: &Pass, answer: Value) -> Result<Said, NotAdmitted> {
    const OURS: [&str; 11] = [
        "done", "twin", "resolved", "failed", "half", "fresh", "over", "theirs", "left", "noted", "admitted",
    ];
    let word = match &answer {
        Value::Array(parts) => {
            parts.first().and_then(|part| redis::from_redis_value_ref::<String>(part).ok())
        }
        _ => None,
    };
    if let (Some(word), Value::Array(parts)) = (word.filter(|word| OURS.contains(&word.as_str())), &answer) {
        return Ok((word, parts[1..].to_vec()));
    }
    let (verdict, _) = script::read(answer)?;
    fence.conclude(pass, verdict)?;
    Err(script::corrupt().into())
}

/// A script without an answer that counts.
pub(super) fn failed(error: &RedisError) -> Error {
    let failure = of_request(error).error;
    match failure.kind() {
        Kind::Unknown => {
            Error::new(Kind::Unknown, format!("the effect may have happened: {}", failure.what()))
                .advise("ask again with the same key, which knows")
        }
        Kind::Corrupt if error.code() == Some("CROSSSLOT") => Error::new(
            Kind::Invalid,
            "the server is a Cluster, and the keys of the operation are in several slots",
        )
        .advise("give operations and data one hash tag: RedisEffects::within(\"shop\"), {shop}:account:7"),
        Kind::Corrupt => Error::new(Kind::Corrupt, failure.what().to_owned())
            .advise("see what writes keys that begin with lheffects: and move or delete the key"),
        Kind::Denied => Error::new(Kind::Denied, failure.what().to_owned()).advise(
            "allow the user the keys lheffects:*, lhfence:* and those of the data, and the commands on them",
        ),
        _ => failure,
    }
}

//! The scripts, what goes into them and what comes out.

use std::sync::LazyLock;

use leasehold_core::{
    Error, Kind, Label, LeaseId, Token,
    fence::{Ask, Mark, OpSeq, Pass, Refusal, Verdict},
};
use redis::{Script, Value};

/// The script that only asks: for any client, as in `redis-cli --eval check.lua KEY , write TOKEN LEASE-ID '' HOLDER 600000000`.
pub const CHECK: &str = concat!(include_str!("ask.lua"), include_str!("check.lua"));
/// The script that wraps a command: the same arguments, then the command.
pub const WRITE: &str = concat!(include_str!("ask.lua"), include_str!("write.lua"));
/// The rule, for scripts that do more behind it.
#[cfg(feature = "effects")]
pub(crate) const ASK: &str = include_str!("ask.lua");
/// The script that raises a token by hand.
pub(super) const RAISE: &str = include_str!("raise.lua");

pub(super) fn check() -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(CHECK));
    &SCRIPT
}

pub(super) fn write() -> &'static Script {
    static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(WRITE));
    &SCRIPT
}

/// The first six arguments. The lead of the token has been judged on this side.
pub(crate) fn arguments(pass: &Pass, ask: Ask) -> [String; 6] {
    let ask = match ask {
        Ask::Seal => "seal",
        Ask::Write => "write",
        Ask::Enter => "enter",
    };
    [
        ask.to_owned(),
        pass.token.to_string(),
        pass.lease_id.to_string(),
        pass.op_seq.map(|op_seq| op_seq.to_string()).unwrap_or_default(),
        pass.holder.as_str().to_owned(),
        String::new(),
    ]
}

/// The answer, and what the wrapped command has answered.
pub(crate) fn read(answer: Value) -> Result<(Verdict, Value), Error> {
    let Value::Array(parts) = answer else { return Err(corrupt()) };
    let mut parts = parts.into_iter();
    let word = parts.next().as_ref().and_then(text).ok_or_else(corrupt)?;
    let refusal = match word.as_str() {
        "admitted" => return Ok((Verdict::Admitted, parts.next().unwrap_or_default())),
        "stale" => Refusal::Stale { stored: mark(&parts.collect::<Vec<_>>())?.ok_or_else(corrupt)? },
        "collision" => Refusal::Collision { stored: mark(&parts.collect::<Vec<_>>())?.ok_or_else(corrupt)? },
        "no_such_resource" => Refusal::NoSuchResource,
        "missing_token" => Refusal::MissingToken,
        "token_too_high" => {
            let limit = parts.next().as_ref().and_then(text).and_then(|limit| limit.parse().ok());
            Refusal::TokenTooHigh { limit: limit.ok_or_else(corrupt)? }
        }
        _ => return Err(corrupt()),
    };
    Ok((Verdict::Refused(refusal), Value::Nil))
}

/// Token, lease id, number and holder; `None` where there is no token.
pub(super) fn mark(parts: &[Value]) -> Result<Option<Mark>, Error> {
    let part = |at: usize| parts.get(at).and_then(text).unwrap_or_default();
    let (token, lease_id, op_seq) = (part(0), part(1), part(2));
    if token.is_empty() {
        return Ok(None);
    }
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let op_seq = some(op_seq).map(|op_seq| op_seq.parse::<OpSeq>()).transpose();
    let lease_id = some(lease_id).map(|lease_id| lease_id.parse::<LeaseId>()).transpose();
    Ok(Some(Mark {
        token: token.parse::<Token>().map_err(|_| corrupt())?,
        lease_id: lease_id.map_err(|_| corrupt())?,
        op_seq: op_seq.map_err(|_| corrupt())?,
        holder: Label::from_lossy(&part(3)),
    }))
}

fn text(value: &Value) -> Option<String> {
    redis::from_redis_value_ref::<Option<String>>(value).ok().flatten()
}

pub(crate) fn corrupt() -> Error {
    Error::new(Kind::Corrupt, "the fence's answer is none")
        .advise("see what writes keys that begin with lhfence: and move or delete the key")
}

//! What the work of an operation is given: the way to say what is to be done, and to read before.

use std::sync::{Mutex, PoisonError};

use leasehold_core::{Error, Invalid, Kind, Token, fence::Pass};
use redis::{Arg, Cmd};
use serde_json::Value;

use crate::effects::{
    key::{self, Key},
    record::{MAX_EVENTS, MAX_JSON_BYTES, json_text},
};

/// Most commands of one operation (ours: the server does nothing else meanwhile).
pub const MAX_COMMANDS: usize = 1_000;
/// Most words of one command (ours, far below what Lua can pass on at once).
pub const MAX_WORDS: usize = 1_000;

/// Keys that begin so are ours and the fence's.
const OURS: [&str; 3] = ["lheffects:", "lhfence:", "lh:"];

/// What would take the key out from under the effect, and what no script may run: refused before anything has happened, because a
/// command that fails behind others leaves them done.
const REFUSED: [&str; 42] = [
    "ACL",
    "ASKING",
    "AUTH",
    "BGREWRITEAOF",
    "BGSAVE",
    "CLIENT",
    "CLUSTER",
    "CONFIG",
    "DEBUG",
    "DISCARD",
    "EVAL",
    "EVALSHA",
    "EVALSHA_RO",
    "EVAL_RO",
    "EXEC",
    "FAILOVER",
    "FCALL",
    "FCALL_RO",
    "FLUSHALL",
    "FLUSHDB",
    "FUNCTION",
    "HELLO",
    "MIGRATE",
    "MODULE",
    "MONITOR",
    "MULTI",
    "PSUBSCRIBE",
    "PUNSUBSCRIBE",
    "QUIT",
    "REPLICAOF",
    "RESET",
    "SAVE",
    "SCRIPT",
    "SELECT",
    "SHUTDOWN",
    "SLAVEOF",
    "SUBSCRIBE",
    "SWAPDB",
    "UNSUBSCRIBE",
    "UNWATCH",
    "WAIT",
    "WATCH",
];

/// What an operation is to do. It collects: nothing happens before the work has returned.
pub struct RedisTx<'t, C> {
    connection: C,
    pass: &'t Pass,
    key: &'t Key,
    plan: Mutex<Plan>,
}

/// What was collected.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The words of each command.
    pub(super) commands: Vec<Vec<Vec<u8>>>,
    pub(super) keys: Vec<String>,
    /// Topic and payload of each event.
    pub(super) events: Vec<(String, String)>,
    bytes: usize,
}

impl<C> std::fmt::Debug for RedisTx<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisTx").field("pass", self.pass).field("key", self.key).finish_non_exhaustive()
    }
}

impl<'t, C: Clone> RedisTx<'t, C> {
    pub(super) fn new(connection: C, pass: &'t Pass, key: &'t Key) -> Self {
        Self { connection, pass, key, plan: Mutex::default() }
    }

    pub(super) fn into_plan(self) -> Plan {
        self.plan.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command to the effect; `keys` are the keys that it touches. Its words are passed on as they are, whatever bytes they have.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a command that no script may run or that would delete the key of the operation, for keys that are
    /// Leasehold's own, for more than [`MAX_COMMANDS`] commands, [`MAX_WORDS`] words in one, or a mebibyte in all.
    pub fn command(&self, command: &Cmd, keys: &[&str]) -> Result<(), Error> {
        let words = words(command)?;
        let name = words.first().map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
        if name.as_deref().is_none_or(|name| name.is_empty() || REFUSED.contains(&name)) {
            return Err(Invalid::with(
                "command of an operation",
                format!("must be one that a script may run on keys, not {:?}", name.unwrap_or_default()),
            )
            .into());
        }
        if keys.iter().any(|key| OURS.iter().any(|ours| key.starts_with(ours))) {
            return Err(
                Invalid::new("key of a command", "must not begin with lh:, lhfence: or lheffects:").into()
            );
        }
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.commands.len() == MAX_COMMANDS || words.len() > MAX_WORDS {
            return Err(Invalid::new(
                "commands of an operation",
                "are at most 1000, of at most 1000 words each",
            )
            .into());
        }
        let bytes =
            words.iter().map(Vec::len).sum::<usize>() + keys.iter().map(|key| key.len()).sum::<usize>();
        if plan.bytes + bytes > MAX_JSON_BYTES {
            return Err(Error::new(
                Kind::Invalid,
                format!("the commands of the operation have more than {MAX_JSON_BYTES} bytes"),
            )
            .advise("do less at once: the server does nothing else meanwhile"));
        }
        plan.bytes += bytes;
        for key in keys {
            if !plan.keys.iter().any(|known| known == key) {
                plan.keys.push((*key).to_owned());
            }
        }
        plan.commands.push(words);
        Ok(())
    }

    /// Adds an event to the outbox: it is published if, and only if, the operation happens.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a topic that is not 1–255 bytes, for more than [`MAX_EVENTS`] of them or one too large.
    pub fn emit(&self, topic: &str, payload: &Value) -> Result<(), Error> {
        key::text("topic of an event", topic)?;
        let payload = json_text("the event", payload)?;
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.events.len() >= MAX_EVENTS as usize {
            return Err(Error::from(Invalid::new("number of events", "of one operation is at most 1000")));
        }
        plan.events.push((topic.to_owned(), payload));
        Ok(())
    }

    /// A connection to read on, behind the seal: whoever held the resource before cannot change what is read any more. **What is written
    /// on it is no part of the operation.**
    pub fn connection(&self) -> C {
        self.connection.clone()
    }

    /// The key of the operation.
    pub fn key(&self) -> &Key {
        self.key
    }

    /// The fencing token under which it happens: for data that should tell which grant wrote them.
    pub fn token(&self) -> Token {
        self.pass.token
    }
}

fn words(command: &Cmd) -> Result<Vec<Vec<u8>>, Error> {
    let word = |word: Arg<&[u8]>| match word {
        Arg::Simple(word) => Ok(word.to_vec()),
        _ => Err(Error::from(Invalid::new("command of an operation", "has no cursor"))),
    };
    command.args_iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Label, LeaseId, Namespace, Resource};
    use serde_json::json;

    use super::*;

    fn pass() -> Pass {
        Pass {
            namespace: Namespace::default(),
            resource: Resource::new("r").unwrap(),
            token: Token::new(1).unwrap(),
            lease_id: LeaseId::from_bytes([1; 16]),
            op_seq: None,
            holder: Label::default(),
            ticket: None,
        }
    }

    #[test]
    fn what_would_take_the_key_from_under_the_effect_is_refused_and_sizes_are_bounded() {
        let (pass, key) = (pass(), Key::new("s", "k").unwrap());
        let tx = RedisTx::new((), &pass, &key);
        for bad in ["flushall", "SELECT", "Eval", "multi", "CONFIG", ""] {
            assert!(tx.command(&redis::cmd(bad), &[]).is_err(), "{bad}");
        }
        assert!(tx.command(&Cmd::new(), &[]).is_err());
        for ours in ["lheffects:{leasehold}:keys", "lhfence:{x}", "lh:{x}"] {
            assert!(tx.command(&redis::cmd("DEL").arg(ours).to_owned(), &[ours]).is_err(), "{ours}");
        }
        let many = redis::cmd("RPUSH").arg(vec!["x"; MAX_WORDS]).to_owned();
        assert!(tx.command(&many, &["x"]).is_err());
        let large = redis::cmd("SET").arg("k").arg(vec![0_u8; MAX_JSON_BYTES]).to_owned();
        assert!(tx.command(&large, &["k"]).is_err());
        assert!(tx.emit("", &json!(1)).is_err() && tx.emit(&"x".repeat(256), &json!(1)).is_err());
        assert!(tx.emit("large", &json!("x".repeat(MAX_JSON_BYTES))).is_err());
        let set = redis::cmd("SET").arg("k").arg(&[0_u8, 255, 10][..]).to_owned();
        for _ in 0..MAX_COMMANDS {
            tx.command(&set, &["k"]).unwrap();
        }
        assert!(tx.command(&set, &["k"]).is_err());
        for _ in 0..MAX_EVENTS {
            tx.emit("t", &json!(1)).unwrap();
        }
        assert!(tx.emit("t", &json!(1)).is_err());
        let plan = tx.into_plan();
        assert_eq!((plan.commands.len(), plan.keys.as_slice()), (MAX_COMMANDS, &["k".to_owned()][..]));
        assert_eq!(plan.commands[0], [&b"SET"[..], b"k", &[0, 255, 10]], "words pass as they are");
    }
}

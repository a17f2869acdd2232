//! The scripts: their texts, put together from parts, and their names on the server.
//!
//! One script for each kind of operation, for as many of that kind as are at hand: the price of a call, of the server's time,
//! of asking it for its incarnation and of reading the shard's record is shared by them. A script contains only what its kind
//! needs, because Redis makes every function of a script anew at every call: all in one took 15 µs before it had done
//! anything, and this takes a third of that.

use std::sync::LazyLock;

use redis::{Cmd, Script};

use super::{op::Op, space::Space};

/// What an operation does. Operations of one kind may share a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Asks for a grant.
    Acquire,
    /// Extends a grant.
    Renew,
    /// Ends a grant, or takes a claim back.
    Release,
    /// Ends another's grant.
    Revoke,
    /// Reads a resource.
    Inspect,
    /// Reads what the shard is, and some of its names.
    Names,
    /// Forgets a name whose record has vanished.
    Forget,
    /// Makes the shard, or changes its settings.
    Prepare,
    /// Stores the token on which several nodes have agreed.
    Confirm,
    /// Takes back a claim to several nodes that found no majority.
    Retract,
    /// Gives one of several nodes a grant that the others have.
    Replant,
    /// Reads the grants of a resource that have ended.
    History,
}

const KINDS: usize = 12;

macro_rules! lua {
    ($($part:literal)+) => { concat!($(include_str!(concat!("lua/", $part, ".lua"))),+) };
}

impl Kind {
    /// The text, with its names in.
    const fn source(self) -> &'static str {
        match self {
            Self::Acquire => lua!(
                "begin" "keep" "slot" "save" "ended" "sweep" "record" "last_end" "line" "join" "acquire" "finish"
            ),
            Self::Renew => lua!("begin" "keep" "slot" "save" "gone" "renew" "finish"),
            Self::Release => lua!("begin" "slot" "save" "ended" "gone" "line" "release" "finish"),
            Self::Revoke => {
                lua!("begin" "slot" "save" "ended" "sweep" "record" "last_end" "line" "revoke" "finish")
            }
            Self::Inspect => lua!("begin" "slot" "ended" "sweep" "record" "last_end" "inspect" "finish"),
            Self::Names => lua!("begin" "names" "finish"),
            Self::History => lua!("begin" "slot" "ended" "sweep" "history" "finish"),
            Self::Forget => lua!("begin" "forget" "finish"),
            Self::Prepare => lua!("begin" "keep" "prepare" "finish"),
            Self::Confirm => lua!("begin" "slot" "save" "gone" "agree" "confirm" "finish"),
            Self::Retract => lua!("begin" "slot" "save" "line" "retract" "finish"),
            Self::Replant => lua!("begin" "slot" "save" "ended" "sweep" "gone" "agree" "replant" "finish"),
        }
    }

    /// How many keys each operation brings.
    pub(crate) const fn keys(self) -> usize {
        match self {
            Self::Acquire | Self::Release | Self::Revoke => 4,
            Self::Inspect | Self::Retract => 3,
            Self::History => 2,
            Self::Renew | Self::Forget | Self::Confirm | Self::Replant => 1,
            Self::Names | Self::Prepare => 0,
        }
    }

    /// True when it changes nothing.
    const fn only_reads(self) -> bool {
        matches!(self, Self::Inspect | Self::Names | Self::History)
    }
}

/// The fields of a resource's record, in their order from 2 (the first is the form's version).
const SLOT: &[&str] = &[
    "lease",
    "token",
    "at",
    "ttl",
    "delay",
    "granted",
    "holder",
    "label",
    "wake",
    "by",
    "why",
    "end_lease",
    "end_token",
    "end_reason",
    "end_why",
    "end_by",
    "end_at",
    "success",
    "queued",
];
/// The fields of a shard's record. `max` and `wide` are longest TTLs in milliseconds, the second of which counts as well until
/// `wide_until`, because grants that long may still run; `lasts` is how long the quarantine was made.
const SPACE: &[&str] = &["max", "wide", "wide_until", "quarantine", "lasts", "settled"];
/// The fields of a claim.
const CLAIM: &[&str] =
    &["lease", "holder", "label", "ttl", "delay", "floor", "queue", "once", "wake", "name", "proposal"];
/// The figures of the contract, in microseconds but for the one that says otherwise. So many dead places are removed in one
/// operation (ours): a dead queue of thousands must not stop the server. A proposed token may be so far ahead of the clock.
const FIGURES: &[(&str, &str)] = &[
    ("ENTRY_LIFE", "45000000"),
    ("RESERVATION", "500000"),
    ("FORSAKEN", "3000000"),
    ("MAX_TOKEN", "9007199254740991"),
    ("MAX_FLOOR_LEAD", "600000000"),
    ("RETENTION_MS", "604800000"),
    ("MAX_BURIALS", "100"),
    ("MAX_PROPOSAL_LEAD", "1000000"),
    ("PAST_KEPT", "16"),
    ("PAST_LAST", "15"),
    ("PAST_TRIMMED_AT", "32"),
    ("HOUR_US", "3600000000"),
    ("DAY_US", "86400000000"),
    ("RETENTION_HOUR_MS", "608400000"),
    ("RETENTION_DAY_MS", "691200000"),
    ("SLOT_FIELDS", "20"),
];

/// A script as the server gets it.
struct Text {
    text: String,
    /// Under which servers remember it: the SHA-1 of the text.
    name: String,
}

static TEXTS: LazyLock<[Text; KINDS]> = LazyLock::new(|| {
    use Kind::{
        Acquire, Confirm, Forget, History, Inspect, Names, Prepare, Release, Renew, Replant, Retract, Revoke,
    };
    let kinds: [Kind; KINDS] = [
        Acquire, Renew, Release, Revoke, Inspect, Names, Forget, Prepare, Confirm, Retract, Replant, History,
    ];
    kinds.map(|kind| {
        let text = resolve(kind);
        let name = Script::new(&text).get_hash().to_owned();
        Text { text, name }
    })
});

/// Replaces names by numbers.
fn resolve(kind: Kind) -> String {
    let mut text = kind.source().replace("KEYS_EACH", &kind.keys().to_string());
    for (name, figure) in FIGURES {
        text = text.replace(name, figure);
    }
    for (table, first, fields) in [("slot", 2, SLOT), ("space", 1, SPACE), ("claim", 1, CLAIM)] {
        let mut fields: Vec<_> = fields.iter().zip(first..).collect();
        // A name that begins with another one comes first.
        fields.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, number) in fields {
            text = text.replace(&format!("{table}.{name}"), &format!("{table}[{number}]"));
        }
    }
    text
}

/// How a call names the script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// By its name: the server has it.
    Name,
    /// In full, which also makes the server remember it.
    Text,
}

/// The command that runs these operations of one kind on a shard, in this order.
pub(crate) fn call<'a>(
    by: By,
    kind: Kind,
    space: &Space,
    ops: impl ExactSizeIterator<Item = &'a Op> + Clone,
) -> Cmd {
    let Text { text, name } = &TEXTS[kind as usize];
    let mut command = match by {
        By::Name => redis::cmd("EVALSHA"),
        By::Text => redis::cmd("EVAL"),
    };
    command.arg(if by == By::Name { name } else { text });
    command.arg(ops.len() * kind.keys() + 2).arg(space.meta()).arg(space.index());
    for key in ops.clone().flat_map(Op::keys) {
        command.arg(key);
    }
    command.arg(space.header(kind.only_reads()));
    for op in ops {
        command.arg(op.body());
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{
        Token, Ttl,
        line::{ENTRY_LIFE, FORSAKEN, RESERVATION},
        record::Past,
        token::MAX_FLOOR_LEAD_US,
    };

    #[test]
    fn the_figures_are_those_of_the_contract() {
        let figures = [
            ENTRY_LIFE.as_micros(),
            RESERVATION.as_micros(),
            FORSAKEN.as_micros(),
            u128::from(Token::MAX),
            u128::from(MAX_FLOOR_LEAD_US),
            u128::from(Ttl::MAX.as_millis()),
        ];
        let told =
            |name: &str| FIGURES.iter().find(|(other, _)| *other == name).unwrap().1.parse::<u64>().unwrap();
        assert_eq!(told("PAST_KEPT"), Past::KEPT as u64);
        assert_eq!(told("PAST_LAST") + 1, told("PAST_KEPT"));
        assert!(told("PAST_TRIMMED_AT") > told("PAST_KEPT"));
        assert_eq!(told("RETENTION_HOUR_MS"), told("RETENTION_MS") + told("HOUR_US") / 1_000);
        assert_eq!(told("RETENTION_DAY_MS"), told("RETENTION_MS") + told("DAY_US") / 1_000);
        assert_eq!(told("SLOT_FIELDS"), SLOT.len() as u64 + 1);
        for (figure, (name, text)) in figures.iter().zip(FIGURES) {
            assert_eq!(figure.to_string(), *text, "{name}");
        }
    }

    #[test]
    fn no_name_of_a_field_is_left() {
        for Text { text, .. } in &*TEXTS {
            for table in ["slot.", "space.", "claim."] {
                let code = text.lines().filter(|line| !line.trim_start().starts_with("--"));
                let left: Vec<&str> = code.filter(|line| line.contains(table)).collect();
                assert!(left.is_empty(), "{left:?}");
            }
        }
    }
}

//! Answers that no script of ours gives: read as damage, or as an answer, by every reader of answers.

use leasehold_core::Ttl;
use leasehold_testkit::hostile;
use proptest::prelude::*;
use redis::Value;

use super::{
    answer::{self, Asked},
    facts::Facts,
};

const ASKED: Asked<'_> = Asked { ttl: Ttl::MIN, told: None, namespace: "ns" };

/// What answers, and parts of them, begin with.
const WORDS: [&str; 22] = [
    "granted",
    "busy",
    "queued",
    "quarantined",
    "done",
    "spent",
    "refused",
    "extended",
    "gone",
    "ended",
    "left",
    "other",
    "free",
    "seen",
    "names",
    "prepared",
    "history",
    "failed",
    "doubted",
    "expired",
    "superseded",
    "revoked",
];

fn word(word: &str) -> Value {
    Value::BulkString(word.as_bytes().to_vec())
}

fn every_reader(value: &Value) {
    let _ = answer::acquired(value.clone(), &ASKED).map(|claimed| format!("{claimed:?}"));
    let _ = (answer::renewed(value.clone(), &ASKED), answer::released(value.clone()));
    let _ = (answer::revoked(value.clone()), answer::history(value.clone()));
    let _ = answer::seen(value.clone()).map(|seen| seen.waiting);
    let _ = answer::shown(value.clone()).map(|shown| format!("{shown:?}"));
    let _ = answer::prepared(value.clone(), &ASKED).map(|made| format!("{made:?}"));
    let _ = (answer::doubted(value.clone()), answer::from_a_replica(value));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Boolean),
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(|number| word(&number.to_string())),
        prop::sample::select(&WORDS[..]).prop_map(word),
        prop::collection::vec(any::<u8>(), 16).prop_map(Value::BulkString),
        "\\PC{0,12}".prop_map(Value::SimpleString),
        any::<f64>().prop_map(Value::Double),
    ];
    let several = |inner| {
        (prop::sample::select(&WORDS[..]), prop::collection::vec(inner, 0..9))
            .prop_map(|(first, rest)| Value::Array(std::iter::once(word(first)).chain(rest).collect()))
    };
    leaf.prop_recursive(3, 24, 9, several)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_makes_a_reader_panic(value in value()) {
        every_reader(&value);
    }
}

#[test]
fn no_hostile_answer_makes_a_reader_panic() {
    for bytes in hostile::bytes().into_iter().filter(|bytes| bytes.len() < 1_000) {
        let text = Value::BulkString(bytes);
        every_reader(&text);
        for first in WORDS {
            every_reader(&Value::Array(vec![word(first), text.clone()]));
        }
    }
}

#[test]
fn no_hostile_description_of_a_server_makes_reading_panic() {
    for text in hostile::texts() {
        let lines = format!("redis_version:{text}\r\nmaxmemory:{text}\r\nrole:{text}\r\n{text}");
        let facts = Facts::from_text(&lines, Some(&[("maxmemory-policy", &text)]));
        let _ = (facts.version(), facts.may_evict(), facts.is_replica());
    }
}

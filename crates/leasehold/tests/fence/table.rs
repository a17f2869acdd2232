//! The table that every fence keeps: the same cases, judged by the answer and by what became of the data.
#![allow(unreachable_pub)]

use leasehold::{
    LeaseId, Namespace, Resource, Token, clock,
    fence::{NotAdmitted, OpSeq, Pass},
};

/// The answer's one word; the error's kind where there was none.
pub type Answer = String;

/// A fence with the data behind it: one value per resource.
pub trait Door {
    /// Shuts older grants out.
    fn seal(&mut self, pass: &Pass) -> Answer;
    /// Writes `value`, and is let in or not.
    fn write(&mut self, pass: &Pass, value: &str) -> Answer;
    /// Writes without a token; `None` where that cannot even be said.
    fn write_without_token(&mut self, resource: &Resource, value: &str) -> Option<Answer>;
    /// What is written now.
    fn read(&mut self, pass: &Pass) -> Option<String>;
    /// Raises the token by hand.
    fn raise(&mut self, pass: &Pass) -> Answer;
    /// True where a resource that was never sealed is let in by its first write.
    fn seals_by_writing(&self) -> bool {
        false
    }
}

pub fn word(answer: Result<(), NotAdmitted>) -> Answer {
    match answer {
        Ok(()) => "admitted".to_owned(),
        Err(NotAdmitted::Refused(refused)) => refused.refusal.word().to_owned(),
        Err(NotAdmitted::Failed(error)) => format!("failed: {error}"),
        Err(other) => format!("{other:?}"),
    }
}

/// A pass for `resource`, under the grant with this number and token.
pub fn pass(resource: &str, token: u64, grant: u8) -> Pass {
    let resource = Resource::new(resource).unwrap();
    Pass::new(Namespace::default(), resource, Token::new(token).unwrap(), LeaseId::from_bytes([grant; 16]))
}

pub fn numbered(resource: &str, token: u64, grant: u8, op_seq: u64) -> Pass {
    pass(resource, token, grant).numbered(OpSeq::new(op_seq).unwrap())
}

type Case = fn(&mut dyn Door);

const CASES: &[(&str, Case)] = &[
    ("admitted", admitted),
    ("stale", stale),
    ("collision", collision),
    ("no such resource", no_such_resource),
    ("missing token", missing_token),
    ("op_seq", op_seq),
    ("seal", seal),
    ("unsealed successor", unsealed_successor),
    ("raise", raise),
    ("hostile names", hostile_names),
    ("hostile tokens", hostile_tokens),
    ("namespaces", namespaces),
];

/// Runs every case against a door.
pub fn keeps(name: &str, door: &mut dyn Door) {
    for (case, run) in CASES {
        run(door);
        println!("{name:24} {case:20} kept");
    }
}

#[track_caller]
fn writes(door: &mut dyn Door, pass: &Pass, value: &str) {
    assert_eq!(door.write(pass, value), "admitted", "{pass:?}");
    assert_eq!(door.read(pass).as_deref(), Some(value));
}

#[track_caller]
fn bounces(door: &mut dyn Door, pass: &Pass, why: &str) {
    let before = door.read(pass);
    assert_eq!(door.write(pass, "damage"), why, "{pass:?}");
    assert_eq!(door.read(pass), before, "a refused write has no effect");
}

fn admitted(door: &mut dyn Door) {
    let first = pass("admitted", 10, 1);
    assert_eq!(door.seal(&first), "admitted");
    writes(door, &first, "a");
    writes(door, &first, "b");
}

fn stale(door: &mut dyn Door) {
    let (old, new) = (pass("stale", 10, 1), pass("stale", 20, 2));
    assert_eq!(door.seal(&old), "admitted");
    writes(door, &old, "a");
    assert_eq!(door.seal(&new), "admitted");
    bounces(door, &old, "stale");
    writes(door, &new, "b");
    bounces(door, &old, "stale");
    // One below is as stale as ten below.
    bounces(door, &pass("stale", 19, 3), "stale");
}

fn collision(door: &mut dyn Door) {
    let (first, second) = (pass("collision", 10, 1), pass("collision", 10, 2));
    assert_eq!(door.seal(&first), "admitted");
    writes(door, &first, "a");
    bounces(door, &second, "collision");
    assert_eq!(door.seal(&second), "collision");
    writes(door, &first, "b");
}

fn no_such_resource(door: &mut dyn Door) {
    let first = pass("never sealed", 10, 1);
    if door.seals_by_writing() {
        writes(door, &first, "a");
    } else {
        bounces(door, &first, "no_such_resource");
        assert_eq!(door.read(&first), None);
        assert_eq!(door.seal(&first), "admitted");
        writes(door, &first, "a");
    }
}

fn missing_token(door: &mut dyn Door) {
    let first = pass("missing", 10, 1);
    assert_eq!(door.seal(&first), "admitted");
    writes(door, &first, "a");
    if let Some(answer) = door.write_without_token(&first.resource, "damage") {
        assert_eq!(answer, "missing_token");
        assert_eq!(door.read(&first).as_deref(), Some("a"));
    }
}

fn op_seq(door: &mut dyn Door) {
    assert_eq!(door.seal(&pass("op_seq", 10, 1)), "admitted");
    writes(door, &numbered("op_seq", 10, 1, 2), "second");
    bounces(door, &numbered("op_seq", 10, 1, 1), "stale");
    bounces(door, &numbered("op_seq", 10, 1, 2), "stale");
    writes(door, &numbered("op_seq", 10, 1, 3), "third");
    // A later grant counts from the beginning.
    writes(door, &numbered("op_seq", 11, 2, 1), "first");
    bounces(door, &numbered("op_seq", 10, 1, 4), "stale");
}

fn seal(door: &mut dyn Door) {
    let (old, new) = (pass("seal", 10, 1), pass("seal", 20, 2));
    assert_eq!(door.seal(&old), "admitted");
    assert_eq!(door.seal(&old), "admitted", "twice is once");
    assert_eq!(door.seal(&new), "admitted");
    // Before the new holder has written anything.
    bounces(door, &old, "stale");
    assert_eq!(door.seal(&old), "stale");
    // A seal uses no number up.
    assert_eq!(door.seal(&numbered("seal", 20, 2, 9)), "admitted");
    writes(door, &numbered("seal", 20, 2, 1), "a");
}

fn unsealed_successor(door: &mut dyn Door) {
    let (old, new) = (pass("unsealed", 10, 1), pass("unsealed", 20, 2));
    assert_eq!(door.seal(&old), "admitted");
    writes(door, &new, "b");
    bounces(door, &old, "stale");
}

fn raise(door: &mut dyn Door) {
    let (old, new) = (pass("raise", 10, 1), pass("raise", 30, 2));
    assert_eq!(door.seal(&old), "admitted");
    assert_eq!(door.raise(&new), "30");
    assert_eq!(door.raise(&pass("raise", 20, 1)), "30", "never lowered");
    bounces(door, &old, "stale");
    bounces(door, &pass("raise", 29, 3), "stale");
    writes(door, &new, "c");
    bounces(door, &pass("raise", 30, 3), "collision");
}

fn hostile_names(door: &mut dyn Door) {
    let long = "x".repeat(255);
    let names = [
        "'; DROP TABLE leasehold_fence; --",
        "\"; DELETE FROM leasehold.fence; --",
        "a\\' OR 1=1",
        "../../etc/passwd",
        "%s%n%00",
        "{a}b{c}",
        "a:b;c,d=e&f?g#h",
        " leading and trailing ",
        "new\nline\r\n\ttab",
        "\u{1b}[2J\u{202e}\u{feff}",
        "🦀/é/日本",
        "e\u{301}",
        "\u{e9}",
        "Case",
        "case",
        "$1",
        "null",
        long.as_str(),
    ];
    for (n, name) in (1..).zip(names) {
        assert_eq!(door.seal(&pass(name, 100 * n, 1)), "admitted", "{name:?}");
        writes(door, &pass(name, 100 * n, 1), &format!("'{n}'"));
        bounces(door, &pass(name, 100 * n - 1, 2), "stale");
    }
    for (n, name) in (1..).zip(names) {
        assert_eq!(door.read(&pass(name, 1, 1)), Some(format!("'{n}'")), "{name:?} is its own resource");
    }
}

fn hostile_tokens(door: &mut dyn Door) {
    let now_us = clock::unix_us();
    let today = pass("tokens", now_us, 1);
    assert_eq!(door.seal(&today), "admitted");
    let hour_us = 3_600_000_000;
    for absurd in [Token::MAX, Token::MAX - 1, now_us + hour_us] {
        assert_eq!(door.seal(&pass("tokens", absurd, 9)), "token_too_high");
        bounces(door, &pass("tokens", absurd, 9), "token_too_high");
    }
    // The rightful holder is not shut out by it, and numbers beyond 2^31 and 2^32 are compared as numbers.
    writes(door, &today, "a");
    bounces(door, &pass("tokens", 1, 2), "stale");
    bounces(door, &pass("tokens", 4_294_967_297, 2), "stale");
    bounces(door, &pass("tokens", now_us - 1, 2), "stale");
    writes(door, &pass("tokens", now_us + 1, 3), "b");
    bounces(door, &today, "stale");
}

fn namespaces(door: &mut dyn Door) {
    let here = pass("spaces", 20, 1);
    let there = Pass { namespace: Namespace::new("other").unwrap(), ..pass("spaces", 10, 2) };
    assert_eq!(door.seal(&here), "admitted");
    assert_eq!(door.seal(&there), "admitted", "resources of different namespaces never meet");
    writes(door, &here, "a");
    writes(door, &there, "b");
    assert_eq!(door.read(&here).as_deref(), Some("a"));
}

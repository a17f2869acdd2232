//! The JSON of every verb, taken apart: it parses, its keys are the documented ones, and the standard output is empty
//! unless the exit code is 0. Also what is too large for a transcript.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use leasehold::blocking::Leases;
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/cli.md");

const ID: &str = "000102030405060708090a0b0c0d0e0f";

fn leasehold(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("LEASEHOLD_URL", url(folder))
        .output()
        .unwrap()
}

fn url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("leases.db").display())
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = leasehold(folder, &[&["--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{arguments:?}");
    one_line(&output.stdout)
}

fn one_line(bytes: &[u8]) -> Value {
    let text = std::str::from_utf8(bytes).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    serde_json::from_str(text).unwrap()
}

/// Every key, at any depth.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

fn top(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn every_key_is_documented_and_none_is_ever_missing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |arguments: &[&str]| json(folder.path(), arguments);
    let free = at(&["show", "nightly"]);
    let granted = at(&["acquire", "nightly", "--ttl", "1h"]);
    let token = granted["fencing_token"].as_u64().unwrap().to_string();
    let held = at(&["show", "nightly"]);
    let lease_id = granted["lease_id"].as_str().unwrap();
    assert_eq!(top(&free), top(&held), "a key is missing where there is nothing to say");
    assert_eq!((&free["held"], &free["lease_id"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(held["lease_id"], granted["lease_id"]);
    let checked = at(&["check", "nightly", "--token", &token]);
    let all = [
        at(&["init"]),
        at(&["ls"]),
        at(&["renew", "nightly", "--token", &token]),
        at(&["revoke", "nightly", "--token", &token, "--reason", "test"]),
        at(&["ls"]),
        at(&["fence", "seal", "nightly", "--token", &token, "--lease-id", lease_id]),
        at(&["fence", "check", "nightly", "--token", &token, "--lease-id", lease_id, "--op-seq", "1"]),
        at(&["fence", "show", "nightly"]),
        at(&["fence", "raise", "nightly", "--token", "1"]),
        at(&["release", "nightly", "--token", &token]),
        at(&["show", "nightly"]),
        at(&["purge"]),
        at(&["ttl", "--work-p99", "1s", "--rtt-p99", "1ms", "--margin", "1s"]),
    ];
    let gone = leasehold(folder.path(), &["--json", "check", "nightly", "--token", &token]);
    assert_eq!(gone.status.code(), Some(79));
    assert_eq!(top(&checked), top(&one_line(&gone.stdout)));
    let mut found = BTreeSet::new();
    all.iter().chain([&free, &granted, &held, &checked]).for_each(|value| keys(value, &mut found));
    for key in found.iter().filter(|key| *key != "released" && *key != "exit_code") {
        assert!(PAGE.contains(&format!("`{key}`")), "docs/cli.md does not mention {key}");
    }
}

#[test]
fn every_refusal_is_one_object_on_the_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    json(folder.path(), &["acquire", "nightly", "--ttl", "1h"]);
    json(folder.path(), &["fence", "raise", "nightly", "--token", "7"]);
    let below_a_file = format!("sqlite:{}", folder.path().join("leases.db/x.db").display());
    let cases: [(&[&str], i32, &str); 13] = [
        (&["acquire", "nightly", "--ttl", "1h"], 75, "held"),
        (&["acquire", "nightly"], 64, "usage"),
        (&["bogus"], 64, "usage"),
        (&["acquire", "nightly", "--ttl", "30"], 64, "usage"),
        (&["release", "nightly", "--token", "5"], 79, "not_held"),
        (&["revoke", "nightly"], 64, "usage"),
        (&["ls", "--url", &below_a_file], 64, "invalid"),
        (&["ls", "--url", "sqlite:/proc/no/leases.db"], 69, "unavailable"),
        (&["ls", "--url", "etcd://127.0.0.1:9"], 69, "unavailable"),
        (&["fence", "check", "x"], 64, "missing_token"),
        (&["fence", "check", "x", "--token", "5", "--lease-id", ID], 79, "no_such_resource"),
        (&["fence", "check", "x", "--token", "9007199254740991", "--lease-id", ID], 64, "token_too_high"),
        (&["fence", "check", "nightly", "--token", "5", "--lease-id", ID], 79, "stale"),
    ];
    for (arguments, code, kind) in cases {
        let output = leasehold(folder.path(), &[&["--json"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let line = one_line(&output.stderr);
        assert_eq!((&line["exit_code"], &line["error"]["kind"]), (&code.into(), &kind.into()));
        let expected = ["advice", "holder", "kind", "reason", "resource", "revoke", "what"];
        assert_eq!(top(&line["error"]), BTreeSet::from(expected));
        assert!(PAGE.contains(&format!("`{kind}`")), "docs/cli.md does not mention {kind}");
    }
}

#[test]
fn a_listing_goes_on_beyond_its_first_page() {
    const MANY: usize = 1_100;
    let folder = tempfile::tempdir().unwrap();
    let leases = Leases::connect(&url(folder.path())).unwrap();
    for n in 0..MANY {
        let lease = leases
            .lease(&format!("job/{n}"), |lease| lease.ttl(Duration::from_secs(3_600)))
            .acquire()
            .unwrap();
        lease.into_inner().hand_off().unwrap();
    }
    let count = |arguments: &[&str]| {
        let output = leasehold(folder.path(), arguments);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let names: BTreeSet<String> =
            text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        (text.lines().count(), names.len())
    };
    assert_eq!(count(&["ls"]), (MANY + 1, MANY + 1));
    assert_eq!(count(&["ls", "job/10", "--json"]).0, 1 + 10 + 100);
    assert_eq!(count(&["ls", "other", "--json"]).0, 0);
}

#[test]
fn a_lease_that_was_acquired_outlives_the_program_and_ends_with_its_ttl() {
    let folder = tempfile::tempdir().unwrap();
    let first = json(folder.path(), &["acquire", "nightly", "--ttl", "400ms"]);
    assert_eq!(leasehold(folder.path(), &["acquire", "nightly", "--ttl", "1s"]).status.code(), Some(75));
    let second = json(folder.path(), &["acquire", "nightly", "--ttl", "1s", "--wait", "30s"]);
    assert!(second["fencing_token"].as_u64() > first["fencing_token"].as_u64());
    let token = first["fencing_token"].to_string();
    let check = leasehold(folder.path(), &["--json", "check", "nightly", "--token", &token]);
    assert_eq!((check.status.code(), &one_line(&check.stdout)["reason"]), (Some(79), &"expired".into()));
}

#[test]
fn purge_forgets_what_nobody_has_used_for_a_week_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let leases = Leases::connect(&url(folder.path())).unwrap();
    let mut tokens = Vec::new();
    for name in ["old", "new"] {
        let lease = leases.lease(name, |lease| lease).acquire().unwrap();
        tokens.push(lease.token());
        let _ended = lease.release().unwrap();
    }
    drop(leases);
    let file = rusqlite::Connection::open(folder.path().join("leases.db")).unwrap();
    let week_ago = "UPDATE slot SET touched_unix = touched_unix - 8 * 86400000000 WHERE resource = 'old'";
    assert_eq!(file.execute(week_ago, []).unwrap(), 1);
    drop(file);
    let purge = |arguments: &[&str]| {
        let line = json(folder.path(), &[&["purge"], arguments].concat());
        (line["looked_at"].clone(), line["forgotten"].clone(), line["resources"].to_string())
    };
    let found = (Value::from(2), Value::from(1), r#"["old"]"#.to_owned());
    assert_eq!(purge(&["--dry-run"]), found);
    assert_eq!(purge(&["--dry-run"]), found, "a dry run changes nothing");
    let told = leasehold(folder.path(), &["purge", "-v", "--dry-run"]);
    let (out, err) = (String::from_utf8(told.stdout).unwrap(), String::from_utf8(told.stderr).unwrap());
    assert!(
        out.starts_with("1 of 2 resources would be forgotten: unused for 7d (namespace default on "),
        "{out}"
    );
    assert!(err.lines().any(|line| line == "leasehold: old"), "{err}");
    assert_eq!(purge(&[]), found);
    assert_eq!(purge(&[]), (Value::from(1), Value::from(0), "[]".to_owned()));
    assert_eq!(json(folder.path(), &["show", "old"])["last_token"], Value::Null);
    assert_eq!(json(folder.path(), &["show", "new"])["last_token"], tokens[1].get());
    let next = json(folder.path(), &["acquire", "old", "--ttl", "1s"]);
    assert!(next["fencing_token"].as_u64() > Some(tokens[0].get()), "{next} after {}", tokens[0]);
}

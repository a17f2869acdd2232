//! `doctor` against servers that are set up badly, as an operator meets it: the exit code, and every fault with what it touches and
//! what to do.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use leasehold_testkit::server::{Etcd, Postgres, Redis, RedisSetup};
use serde_json::Value;

/// The exit code and the standard output of `doctor`.
fn doctor(url: &str, words: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["doctor", "--url", url])
        .args(words)
        .current_dir(folder.path())
        .env_clear()
        .env("HOME", folder.path())
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// One thing that is wrong: subject, verdict, what it touches, a part of the fact, a part of the cure.
type Wrong<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

/// Everything that is wrong stands in both outputs, and the program says by its exit code whether that is a fault.
fn says(url: &str, wrong: &[Wrong<'_>], fit: bool) {
    let code = i32::from(!fit);
    let (exit, text) = doctor(url, &[]);
    assert_eq!(exit, code, "{text}");
    assert_eq!(text.contains("not fit to be trusted"), !fit, "{text}");
    let (exit, json) = doctor(url, &["--json"]);
    assert_eq!(exit, code, "{json}");
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["fit"], fit, "{json}");
    let findings = report["findings"].as_array().unwrap();
    for &(subject, verdict, touches, fact, cure) in wrong {
        let found = findings.iter().find(|finding| finding["subject"] == subject);
        let found = found.unwrap_or_else(|| panic!("nothing of {subject}: {json}"));
        let field = |name: &str| found[name].as_str().unwrap_or_default();
        assert_eq!((field("verdict"), field("touches")), (verdict, touches), "{found}");
        assert!(field("fact").contains(fact) && field("cure").contains(cure), "{found}");
        // For people: the fact on one line, what it touches and the cure on the next.
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(verdict) && line.contains(field("fact")));
        assert!(line.is_some_and(|line| line.contains(subject)), "{subject}: {text}");
        let next = lines.next().unwrap_or_default();
        assert!(next.contains(&format!("touches {touches}; ")) && next.contains(cure), "{subject}: {text}");
    }
    let faults = findings.iter().filter(|finding| finding["verdict"] == "fault").count();
    let expected = wrong.iter().filter(|(_, verdict, ..)| *verdict == "fault").count();
    assert_eq!(faults, expected, "other faults than these: {json}");
}

#[test]
fn a_redis_that_evicts_and_keeps_nothing_is_not_fit() {
    let server =
        RedisSetup::new().with("maxmemory", "50mb").with("maxmemory-policy", "allkeys-lru").start().unwrap();
    let wrong: [Wrong<'_>; 2] = [
        ("maxmemory-policy", "fault", "windows", "allkeys-lru", "noeviction"),
        ("persistence", "warning", "durability", "no persistence", "appendonly yes"),
    ];
    says(&server.url(), &wrong, false);
    // Looking has changed nothing, and the cures are cures.
    for words in [["maxmemory-policy", "noeviction"], ["appendfsync", "always"], ["appendonly", "yes"]] {
        server.ask(&["CONFIG", "SET", words[0], words[1]]).unwrap();
    }
    let (exit, text) = doctor(&server.url(), &[]);
    assert_eq!(exit, 0, "{text}");
    assert!(!text.contains("persistence  no"), "{text}");
}

#[test]
fn a_postgres_that_does_not_wait_for_its_disk_is_not_fit() {
    let settings = [("fsync", "off"), ("synchronous_commit", "off")];
    let server = Postgres::start_with(&settings).unwrap();
    let wrong: [Wrong<'_>; 2] = [
        ("fsync", "fault", "durability", "power failure", "fsync = on"),
        ("synchronous_commit", "warning", "durability", "is off", "synchronous_commit = on"),
    ];
    says(&server.url("postgres"), &wrong, false);
}

/// A role whose commits do not wait: those of leases do, for each switches it on for itself, so no promise is broken by it. It is worth
/// a warning, for other work that is done under a lease; with `--strict` that is enough.
#[test]
fn commits_that_do_not_wait_are_a_warning_and_no_fault() {
    let server = Postgres::start_with(&[("synchronous_commit", "off")]).unwrap();
    let url = server.url("postgres");
    let wrong: [Wrong<'_>; 1] =
        [("synchronous_commit", "warning", "durability", "leases switch it on", "synchronous_commit = on")];
    says(&url, &wrong, true);
    assert_eq!(doctor(&url, &["--strict"]).0, 1);
}

/// Scripts read it: no key is ever missing, none is added unseen, and words are of those that are documented. On every engine behind a
/// network, with what is looked at there.
#[test]
fn the_json_has_the_same_shape_on_every_engine() {
    let (postgres, etcd) = (Postgres::start().unwrap(), Etcd::start(1).unwrap());
    let redis: Vec<Redis> = (0..3).map(|_| RedisSetup::new().start().unwrap()).collect();
    let nodes: Vec<String> = redis.iter().map(|node| node.address().to_string()).collect();
    let engines: [(String, &[&str]); 4] = [
        (postgres.url("postgres"), &["version", "clock", "fsync", "synchronous_commit"]),
        (
            redis[0].url(),
            &["version", "role", "persistence", "maxmemory-policy", "memory", "replication", "clock"],
        ),
        (format!("redlock://{}", nodes.join(",")), &["version", "persistence", "maxmemory-policy", "clock"]),
        (
            format!("etcd://{}", etcd.hosts()),
            &["version", "members", "leader", "space", "alarms", "users", "tls"],
        ),
    ];
    for (url, subjects) in engines {
        let (_, json) = doctor(&url, &["--json"]);
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(keys(&report), ["findings", "fit", "namespace", "place"], "{json}");
        assert!(report["fit"].is_boolean() && report["place"].is_string(), "{json}");
        let findings = report["findings"].as_array().unwrap();
        for finding in findings {
            assert_eq!(keys(finding), ["cure", "fact", "subject", "touches", "verdict"], "{finding}");
            let word = finding["verdict"].as_str().unwrap();
            assert!(["fine", "note", "warning", "fault"].contains(&word), "{finding}");
            assert_eq!(finding["cure"].is_null(), word == "fine", "{finding}");
            assert!(["subject", "fact", "touches"].iter().all(|key| finding[key].is_string()), "{finding}");
        }
        for subject in subjects {
            assert!(findings.iter().any(|finding| finding["subject"] == *subject), "no {subject}: {json}");
        }
    }
}

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

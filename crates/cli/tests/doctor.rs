//! `doctor` against servers that are set up badly, as an operator meets it: the exit code, and every fault with what it touches and
//! what to do.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use leasehold_testkit::server::{Postgres, RedisSetup};
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

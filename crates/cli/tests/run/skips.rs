//! Runs that were not needed: what `history` tells of them.

use std::thread;

use serde_json::Value;

use crate::bench::{Bench, code, stderr};

/// The lines of `history --json`, or of `ls --json`.
fn lines(bench: &Bench, words: &[&str]) -> Vec<Value> {
    let output = bench.leasehold(words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn skips(bench: &Bench) -> Vec<Value> {
    let mut found = lines(bench, &["history", "r", "--json"]);
    found.retain(|line| !line["skipped"].is_null());
    found
}

fn run(bench: &Bench, more: &[&str]) {
    let words = [&["run", "r", "--once-per", "1h"], more, &["--", "true"]].concat();
    let output = bench.leasehold(&words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

pub fn a_run_that_was_not_needed_is_in_the_history_with_who_came_and_why() {
    let bench = Bench::new();
    run(&bench, &["--holder", "first"]);
    assert!(skips(&bench).is_empty());
    run(&bench, &["--holder", "second"]);
    run(&bench, &["--holder", "third", "-v"]);
    let all = lines(&bench, &["history", "r", "--json"]);
    let labels: Vec<&str> = all.iter().map(|line| line["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["third", "second", "first"], "the latest first");
    let [third, _, first] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&third["fencing_token"], &third["ended"]), (&Value::Null, &Value::Null));
    assert_eq!((&first["skipped"], &first["ended"]["reason"]), (&Value::Null, &Value::from("released")));
    assert_eq!(third["skipped"]["once_per_ms"], 3_600_000);
    assert_eq!(
        third["skipped"]["last_success_at"], first["granted_at"],
        "the success that was recent enough"
    );
    assert_eq!(lines(&bench, &["history", "r", "--json", "--limit", "1"]).len(), 1);
    let table = bench.leasehold(&["history", "r"]);
    let table = String::from_utf8(table.stdout).unwrap();
    let line = table.lines().find(|line| line.contains("second")).unwrap();
    assert!(line.contains("skipped") && line.contains("once per 1h"), "{table}");
}

pub fn many_that_come_at_once_all_find_room() {
    const MANY: usize = 6;
    let bench = Bench::new();
    run(&bench, &[]);
    thread::scope(|scope| {
        for n in 0..MANY {
            let bench = &bench;
            // The command line's own limit for a note is short; here it is about what many do to each other.
            scope.spawn(move || {
                while !skips(bench).iter().any(|line| line["label"] == format!("come{n}")) {
                    run(bench, &["--holder", &format!("come{n}")]);
                }
            });
        }
    });
    let found = skips(&bench);
    assert!(found.len() >= MANY, "{found:?}");
}

pub fn what_is_noted_is_bounded_and_no_resource_of_anybodys() {
    let bench = Bench::new();
    run(&bench, &[]);
    for _ in 0..18 {
        run(&bench, &[]);
    }
    assert_eq!(skips(&bench).len(), 16);
    let names: Vec<Value> =
        lines(&bench, &["ls", "--all", "--json"]).iter().map(|line| line["resource"].clone()).collect();
    assert_eq!(names, ["r"]);
    let found = lines(&bench, &["ls", "--all", "--json", "--", "~skip/"]);
    assert_eq!(found.len(), 1, "who looks for it finds it");
}

pub fn where_there_is_no_history_a_run_that_was_not_needed_says_so() {
    let bench = Bench::new();
    run(&bench, &[]);
    let words = ["run", "r", "--once-per", "1h", "-v", "--", "true"];
    let output = bench.leasehold(&words);
    assert_eq!((code(&output), output.stdout.len()), (0, 0));
    assert!(
        stderr(&output).contains("not noted: there is no place for it in the history of r"),
        "{output:?}"
    );
    let quiet = bench.leasehold(&["run", "r", "--once-per", "1h", "--", "true"]);
    assert_eq!((code(&quiet), quiet.stderr.len()), (0, 0));
    let history = bench.leasehold(&["history", "r"]);
    assert_eq!(code(&history), 64);
    assert!(stderr(&history).contains("history"), "{}", stderr(&history));
}

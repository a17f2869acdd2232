//! The judge alone: on a history that was good, on hand-made bad ones, on nothing, and on rubbish.

use std::fs;

use leasehold_testkit::check::{Event, What};
use serde_json::Value;
use tempfile::TempDir;

use crate::{leasehold, line, report};

/// Kept from a run of eight workers on a lease file.
const GOOD: &str = include_str!("good.jsonl");

/// Judges a history: the report, and the exit code.
fn check(history: &str) -> (Value, i32) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("h.jsonl"), history).unwrap();
    report(&leasehold(folder.path(), &["verify", "check", "h.jsonl", "--json"]))
}

/// The good history, with something done to it.
fn spoilt(spoil: impl FnOnce(&mut Vec<Event>)) -> String {
    let mut events: Vec<Event> = GOOD.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    spoil(&mut events);
    events.iter().map(|event| event.line().unwrap()).collect()
}

#[test]
fn a_good_history_passes() {
    let (report, code) = check(GOOD);
    assert_eq!((code, report["result"].as_str()), (0, Some("pass")), "{report:#}");
    assert!(report["control_landed"].as_u64() > Some(0), "{report:#}");
    assert_eq!(report["run"], Value::Null);
}

#[test]
fn two_windows_that_overlap_are_found() {
    let history = spoilt(|events| {
        // The second grant of a resource is dated to the moment at which the first began.
        let mut grants = events.iter().enumerate().filter_map(|(at, event)| match event.what {
            What::Granted { open_ns, .. } if event.resource == "r-0" => Some((at, open_ns)),
            _ => None,
        });
        let ((_, first_ns), (second, _)) = (grants.next().unwrap(), grants.next().unwrap());
        if let What::Granted { open_ns, sent_ns, .. } = &mut events[second].what {
            (*open_ns, *sent_ns) = (first_ns + 1, Some(first_ns + 1));
        }
    });
    let (report, code) = check(&history);
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(line(&report, "S1")["pass"], false);
    let overlap =
        report["violations"].as_array().unwrap().iter().find(|found| found["invariant"] == "S1-overlap");
    assert_eq!(overlap.unwrap()["evidence"].as_array().unwrap().len(), 2);
}

#[test]
fn tokens_out_of_order_are_found() {
    let history = spoilt(|events| {
        let last = events.iter().rposition(|event| matches!(event.what, What::Granted { .. })).unwrap();
        let lease_id = events[last].lease_id;
        // The last grant gets the lowest token there could be, wherever it is named.
        let lowest = leasehold::Token::new(1).unwrap();
        for event in events.iter_mut().filter(|event| event.lease_id == lease_id) {
            match &mut event.what {
                What::Granted { token, .. }
                | What::Extended { token, .. }
                | What::Held { token }
                | What::Released { token }
                | What::Lost { token } => *token = lowest,
                _ => {}
            }
        }
    });
    let (report, code) = check(&history);
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(line(&report, "S2")["pass"], false, "{report:#}");
}

#[test]
fn a_stale_write_that_was_let_in_is_found() {
    let history = spoilt(|events| {
        let refused =
            events.iter().position(|event| matches!(event.what, What::Write { admitted: false, .. }));
        let refused = refused.unwrap();
        let what = &mut events[refused].what;
        if let What::Write { admitted, version, .. } = what {
            (*admitted, *version) = (true, *version + 1);
        }
    });
    let (report, code) = check(&history);
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(line(&report, "S6")["pass"], false, "{report:#}");
}

#[test]
fn a_history_whose_control_did_not_fail_shows_nothing() {
    let history = spoilt(|events| events.retain(|event| !event.resource.starts_with("control:")));
    let (report, code) = check(&history);
    assert_eq!((code, report["result"].as_str()), (2, Some("inconclusive")), "{report:#}");
    assert!(report["why"][0].as_str().unwrap().contains("control"), "{report:#}");
}

#[test]
fn a_history_whose_fence_had_nothing_to_refuse_shows_nothing() {
    let history =
        spoilt(|events| events.retain(|event| !matches!(event.what, What::Write { admitted: false, .. })));
    let (report, code) = check(&history);
    assert_eq!((code, report["result"].as_str()), (2, Some("inconclusive")), "{report:#}");
    assert!(report["why"][0].as_str().unwrap().contains("fence"), "{report:#}");
}

#[test]
fn an_empty_history_shows_nothing() {
    let (report, code) = check("");
    assert_eq!((code, report["result"].as_str()), (2, Some("inconclusive")), "{report:#}");
}

#[test]
fn rubbish_is_no_history() {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in [("text", &b"rubbish\n"[..]), ("json", b"{\"at_ns\":1}\n"), ("bytes", b"\xff\xfe\n")]
    {
        fs::write(folder.path().join(name), bytes).unwrap();
        let output = leasehold(folder.path(), &["verify", "check", name]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(output.stdout.is_empty() && said.contains(name) && said.contains("--history"), "{said}");
    }
    let output = leasehold(folder.path(), &["verify", "check", "nothing"]);
    assert_eq!(output.status.code(), Some(3));
}

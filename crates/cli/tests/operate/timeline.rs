//! The timeline of a real run with kills says what really happened.

use std::{fs, process::Command};

use leasehold_testkit::process::wait_until;
use serde_json::Value;

use crate::bench::{Bench, LONG, code, stderr};

/// Writes token and holder into the journal, in the order in which they held; then lives until told to go.
const WORK: &str = "echo $LEASEHOLD_TOKEN $LEASEHOLD_HOLDER_ID $PPID >>$D/journal; until [ -e $D/go-$1 ]; do sleep 0.02; done";

fn lines(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

struct Scene {
    bench: Bench,
    logs: Vec<String>,
}

impl Scene {
    /// Starts a worker that waits for its turn and logs into a file of its own; back when it holds.
    fn worker(&mut self, name: &str) -> std::sync::Arc<leasehold_testkit::process::Child> {
        let log = self.bench.path(&format!("{name}.log")).display().to_string();
        let words = [
            "--log-file",
            &log,
            "--holder",
            name,
            "run",
            "r",
            "--ttl",
            "3s",
            "--wait",
            "1m",
            "--",
            "sh",
            "-c",
            WORK,
            "sh",
            name,
        ];
        let before = self.bench.text("journal").lines().count();
        let child = self.bench.start(name, &words);
        wait_until(name, LONG, || (self.bench.text("journal").lines().count() > before).then_some(()))
            .unwrap();
        self.logs.push(log);
        child
    }

    fn go(&self, name: &str) {
        fs::write(self.bench.path(&format!("go-{name}")), "").unwrap();
    }

    fn timeline(&self, more: &[&str]) -> std::process::Output {
        let files: Vec<&str> = self.logs.iter().map(String::as_str).collect();
        let output = self.bench.leasehold(&[&["timeline"], &files[..], more].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        output
    }
}

#[test]
fn a_timeline_of_real_processes_with_kills_says_what_happened() {
    let mut scene = Scene { bench: Bench::new(), logs: Vec::new() };
    // Ends well.
    let first = scene.worker("ends");
    scene.go("ends");
    assert!(first.wait(LONG).unwrap().success());
    // Its wrapper is killed: the guard ends the command and releases.
    let second = scene.worker("front-killed");
    second.kill().unwrap();
    // Wrapper and guard are killed: the TTL frees it.
    let third = scene.worker("both-killed");
    let journal = scene.bench.text("journal");
    let guard = journal.lines().last().unwrap().split(' ').nth(2).unwrap().to_owned();
    third.stop().unwrap();
    Command::new("sh").args(["-c", &format!("kill -9 {guard} {}", third.pid())]).status().unwrap();
    // Is revoked.
    let fourth = scene.worker("revoked");
    let token = scene.bench.text("journal").lines().last().unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!(code(&scene.bench.leasehold(&["revoke", "r", "--token", &token])), 0);
    assert_eq!(fourth.wait(LONG).unwrap().code(), Some(79));
    let last = scene.worker("last");
    scene.go("last");
    assert!(last.wait(LONG).unwrap().success());

    let told = lines(&scene.timeline(&["--json"]));
    let (grants, findings): (Vec<&Value>, Vec<&Value>) =
        told.iter().partition(|line| line["finding"].is_null());
    let found: Vec<(u64, &str)> = grants
        .iter()
        .map(|grant| (grant["fencing_token"].as_u64().unwrap(), grant["holder_id"].as_str().unwrap()))
        .collect();
    let journal = scene.bench.text("journal");
    let held: Vec<(u64, &str)> = journal
        .lines()
        .map(|line| line.split(' '))
        .map(|mut words| (words.next().unwrap().parse().unwrap(), words.next().unwrap()))
        .collect();
    assert_eq!(found, held, "the commands' own journal");
    let ends: Vec<(&str, &str)> = grants
        .iter()
        .map(|grant| (grant["label"].as_str().unwrap(), grant["end"].as_str().unwrap()))
        .collect();
    let expected = [
        ("ends", "released"),
        ("front-killed", "released"),
        ("both-killed", "silent"),
        ("revoked", "revoked"),
        ("last", "released"),
    ];
    assert_eq!(ends, expected);
    assert!(findings.iter().all(|finding| finding["finding"] != "overlap"), "{findings:#?}");
    let blocked: Vec<&&Value> = findings.iter().filter(|finding| finding["finding"] == "blocked").collect();
    assert_eq!(blocked.len(), 1, "{findings:#?}");
    assert_eq!(blocked[0]["fencing_token"].as_u64(), Some(held[3].0));
}

#[test]
fn bars_and_pictures_are_drawn_and_strange_lines_left_out() {
    let mut scene = Scene { bench: Bench::new(), logs: Vec::new() };
    let worker = scene.worker("<b>&worker");
    fs::write(scene.bench.path("go-<b>&worker"), "").unwrap();
    assert!(worker.wait(LONG).unwrap().success());
    let other = scene.bench.path("other.log");
    fs::write(&other, "starting\n{\"level\":\"info\"}\n").unwrap();
    scene.logs.push(other.display().to_string());
    let (svg, html) = (scene.bench.path("out.svg"), scene.bench.path("out.html"));
    let output = scene.timeline(&["-v", "--svg", svg.to_str().unwrap(), "--html", html.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(said.contains("█") && said.contains("<b>&worker") && said.contains("released"), "{said}");
    assert!(stderr(&output).contains("2 lines are no events"), "{}", stderr(&output));
    let picture = fs::read_to_string(svg).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(picture.contains("&lt;b&gt;&amp;worker") && !picture.contains("<b>"), "names are escaped");
    assert_eq!(picture.matches("class=\"held\"").count(), 1);
    assert!(fs::read_to_string(html).unwrap().contains("</svg>"));
    let none = scene.timeline(&["--resource", "nothing", "--json"]);
    assert!(none.stdout.is_empty());
    assert_eq!(code(&scene.bench.leasehold(&["timeline", "/nonexistent"])), 64);
}

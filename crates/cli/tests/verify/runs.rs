//! Real runs. How long one lasts follows from what it has seen: a busy machine makes it longer, and no verdict different.

use std::{
    fs,
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use leasehold_testkit::process::wait_until;

use serde_json::Value;
use tempfile::TempDir;

use crate::{engines, leasehold, line, report};

/// Above the longest that a lease of etcd lives which nobody keeps alive.
const PATIENCE: Duration = Duration::from_secs(120);

fn on(engine: &str, folder: &Path) -> (Box<dyn engines::Engine>, String) {
    let found = engines::all().into_iter().find(|found| found.name() == engine).unwrap();
    let url = found.url(folder);
    (found, url)
}

/// A run that must pass, on anything; its report.
fn passes(engine: &str, time: &str, more: &[&str]) -> (TempDir, Value) {
    let folder = TempDir::new().unwrap();
    // The server ends when it is dropped.
    let (server, url) = on(engine, folder.path());
    let words = [&["verify", "--json", "--url", &url, "--for", time], more].concat();
    // A run that saw too little to judge has judged nothing: which worker is killed at which moment is chance. It is begun anew.
    let (mut report, mut code) = self::report(&leasehold(folder.path(), &words));
    for _ in 0..2 {
        if code == 2 {
            (report, code) = self::report(&leasehold(folder.path(), &words));
        }
    }
    assert_eq!((code, report["result"].as_str()), (0, Some("pass")), "{report:#}");
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("handovers") >= 20 && count("grants") > count("handovers") - 1, "{report:#}");
    assert!(count("takeovers") > 0, "somebody took over from a dead holder: {report:#}");
    // The control: the same writes, unfenced, have landed. And the fence has refused some of them.
    assert!(count("control_landed") > 0 && line(&report, "S6")["tried"].as_u64() > Some(0), "{report:#}");
    let run = &report["run"];
    assert!(run["kills"].as_u64() > Some(0) && run["pauses"].as_u64() > Some(0), "{report:#}");
    assert!(run["namespace"].as_str().unwrap().starts_with("__verify_"), "{report:#}");
    leaves_nothing(&*server, folder.path(), &report);
    (folder, report)
}

/// Nothing of a run is left at the coordinator. What no key hangs on any more runs out: a lease of etcd that a killed worker had.
fn leaves_nothing(server: &dyn engines::Engine, folder: &Path, report: &Value) {
    let run = &report["run"];
    assert_eq!(run["left"], Value::Null, "{report:#}");
    let namespace = run["namespace"].as_str().unwrap();
    let gone = || server.traces(folder, namespace).is_empty().then_some(());
    let waited = wait_until("the end of what is left", PATIENCE, gone);
    assert!(waited.is_ok(), "{:?}", server.traces(folder, namespace));
}

#[test]
fn a_lease_file_passes_and_its_history_and_page_say_the_same() {
    let (folder, first) = passes("sqlite", "8s", &["--history", "h.jsonl", "--html", "p.html"]);
    assert_eq!(first["history"], "h.jsonl");
    let again = leasehold(folder.path(), &["verify", "check", "h.jsonl", "--json"]);
    let (second, code) = report(&again);
    assert_eq!(code, 0, "{second:#}");
    for count in ["grants", "renewals", "handovers", "control_landed"] {
        assert_eq!(first[count], second[count], "{count}");
    }
    let page = fs::read_to_string(folder.path().join("p.html")).unwrap();
    assert!(page.contains("</svg>") && page.contains("class=\"held\"") && page.contains("PASS"), "{page}");
    assert!(
        !page.contains("http://")
            || page.matches("http://").count() == page.matches("http://www.w3.org").count()
    );
    // Nothing of it is left but what was asked for, and the lease file.
    let mut left: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.retain(|name| !name.contains("leases.db"));
    left.sort();
    assert_eq!(left, ["h.jsonl", "p.html"]);
}

#[test]
fn a_redis_passes_while_workers_are_cut_off() {
    let (_, report) = passes("redis", "5s", &[]);
    assert_eq!(report["run"]["has_links"], true);
}

#[test]
fn a_postgres_passes_while_workers_are_cut_off() {
    let (_, report) = passes("postgres", "5s", &[]);
    assert_eq!(report["run"]["has_links"], true);
}

#[test]
fn a_redlock_passes_while_workers_are_cut_off() {
    let (_, report) = passes("redlock", "5s", &[]);
    assert_eq!(report["run"]["has_links"], true);
}

#[test]
fn an_etcd_passes_while_workers_are_cut_off() {
    let (_, report) = passes("etcd", "8s", &[]);
    assert_eq!(report["run"]["has_links"], true);
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing_either() {
    let folder = TempDir::new().unwrap();
    let (server, url) = on("redis", folder.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["verify", "--url", &url, "--for", "10m"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let works = || (!server.traces(folder.path(), "").is_empty()).then_some(());
    let began = wait_until("the run's first keys", PATIENCE, works);
    let id = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    began.unwrap();
    assert!(said.contains("ended by SIGTERM") && !status.success(), "{status}: {said}");
    assert_eq!(server.traces(folder.path(), ""), Vec::<String>::new());
}

/// The proof of the proof: what people write on a free afternoon is caught, with the two that overlapped.
fn the_textbook_is_caught(engine: &str) {
    let folder = TempDir::new().unwrap();
    let (server, url) = on(engine, folder.path());
    let words = ["verify", "--json", "--url", &url, "--for", "30s", "--baseline", "naive"];
    let (report, code) = report(&leasehold(folder.path(), &words));
    assert_eq!((code, report["result"].as_str()), (1, Some("violation")), "{report:#}");
    assert!(line(&report, "S1")["violations"].as_u64() > Some(0), "{report:#}");
    let violations = report["violations"].as_array().unwrap();
    let overlap = violations.iter().find(|violation| violation["invariant"] == "S1-overlap").unwrap();
    let both = overlap["evidence"].as_array().unwrap();
    assert_eq!(both.len(), 2, "{overlap:#}");
    assert!(both.iter().all(|event| event["event"] == "granted"), "{overlap:#}");
    assert_ne!(both[0]["lease_id"], both[1]["lease_id"]);
    // Nobody asked for a history, but evidence is kept, and shows the same.
    let history = report["history"].as_str().unwrap();
    let again = leasehold(folder.path(), &["verify", "check", history]);
    let said = String::from_utf8(again.stdout).unwrap();
    leaves_nothing(&*server, folder.path(), &report);
    assert_eq!(again.status.code(), Some(1), "{said}");
    assert!(said.contains("violation S1-overlap") && said.contains("VIOLATION (exit 1)"), "{said}");
}

#[test]
fn the_textbook_on_a_lease_file_is_caught() {
    the_textbook_is_caught("sqlite");
}

#[test]
fn the_textbook_on_redis_is_caught() {
    the_textbook_is_caught("redis");
}

#[test]
fn the_textbook_on_postgres_is_caught() {
    the_textbook_is_caught("postgres");
}

#[test]
fn the_textbook_on_etcd_is_caught() {
    the_textbook_is_caught("etcd");
}

#[test]
fn what_cannot_run_says_why() {
    let folder = TempDir::new().unwrap();
    let said = |words: &[&str]| {
        let output = leasehold(folder.path(), words);
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    // Nobody listens there.
    let (code, why) = said(&["verify", "--url", "redis://127.0.0.1:1", "--for", "1s"]);
    assert!(code == 3 && why.contains("redis"), "{code} {why}");
    for (words, word) in [
        (["verify", "--for", "10"], "unit"),
        (["verify", "--for", "30d"], "7d"),
        (["verify", "--workers", "1"], "3 to 64"),
        (["verify", "--baseline", "clever"], "naive"),
    ] {
        let (code, why) = said(&words);
        assert!(code == 64 && why.contains(word), "{words:?}: {code} {why}");
    }
    let (code, why) = said(&["verify", "worker"]);
    assert!(code == 64 && why.contains("leasehold verify"), "{code} {why}");
}

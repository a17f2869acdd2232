//! The rules, the dashboard and the pages say the same as the program.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use leasehold::metric::{ALL, Sort};
use leasehold_testkit::server::find_program;

const TESTS: [&str; 3] = ["tests.yml", "tests_churn.yml", "tests_outbox.yml"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn promtool(words: &[&str]) -> String {
    let output =
        Command::new(find_program("promtool").unwrap()).args(words).current_dir(root()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {words:?}: {said}");
    said
}

/// The metrics that a text names: words that look like ours.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let prefixes = ["lease_", "leases_", "stale_", "fencing_", "outbox_"];
    let words =
        text.split(|c| !is_part(c)).filter(|word| prefixes.iter().any(|start| word.starts_with(start)));
    words.map(str::to_owned).filter(|word| word != "fencing_token").collect()
}

/// The series of the program, and those that the rules record.
fn known() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for metric in ALL {
        let parts: &[&str] =
            if metric.sort == Sort::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        known.extend(parts.iter().map(|part| format!("{}{part}", metric.name)));
    }
    let rules = text("ops/prometheus/rules.yml");
    let recorded = rules.lines().filter_map(|line| line.trim().strip_prefix("- record: "));
    known.extend(recorded.map(str::to_owned));
    known
}

#[test]
fn alerts_fire_strictly_above_their_thresholds() {
    promtool(&["check", "rules", "ops/prometheus/rules.yml", "ops/prometheus/alerts.yml"]);
    let tests = TESTS.map(|name| format!("ops/prometheus/{name}"));
    let words: Vec<&str> = ["test", "rules"].into_iter().chain(tests.iter().map(String::as_str)).collect();
    promtool(&words);
}

/// An alert that no test has seen fire may never, and one that none has seen silent may always.
#[test]
fn every_alert_is_seen_to_fire_and_to_be_silent() {
    let tests = TESTS.map(|name| text(&format!("ops/prometheus/{name}"))).concat();
    let alerts = text("ops/prometheus/alerts.yml");
    for name in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let is_silent = format!("{{ alertname: {name}, eval_time: ");
        let fires = format!("- alertname: {name}\n");
        assert!(tests.contains(&fires), "no test sees {name} fire");
        let silent_long = tests.split(&fires).skip(1).any(|rest| {
            let case = rest.split("- alertname: ").next().unwrap_or_default();
            case.lines().take(2).any(|line| line.trim() == "exp_alerts: []")
        });
        assert!(silent_long || tests.contains(&is_silent), "no test sees {name} silent");
    }
}

#[test]
fn rules_and_dashboard_use_metrics_that_exist() {
    let known = known();
    let dashboard: serde_json::Value = serde_json::from_str(&text("ops/grafana/leasehold.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    let shown = shown.join(" ");
    let expressions = |path| {
        let text = text(path);
        let lines = text.lines().filter(|line| !line.contains("summary:") && !line.trim().starts_with('#'));
        lines.collect::<Vec<&str>>().join("\n")
    };
    let rules = expressions("ops/prometheus/rules.yml") + &expressions("ops/prometheus/alerts.yml");
    for (place, text) in [("the dashboard", &shown), ("the rules", &rules)] {
        let used = metrics_in(text);
        assert!(!used.is_empty());
        let unknown: Vec<&String> = used.difference(&known).collect();
        assert!(unknown.is_empty(), "{place} use {unknown:?}, which nobody counts");
    }
    // What is measured and shown nowhere is measured for nobody.
    for metric in ALL {
        let seen = metrics_in(&(shown.clone() + &rules)).iter().any(|used| used.starts_with(metric.name));
        assert!(seen, "{} is in no rule and on no panel", metric.name);
    }
}

#[test]
fn every_metric_is_documented() {
    let page = text("docs/metrics.md");
    for metric in ALL {
        let sort = format!("{:?}", metric.sort).to_lowercase();
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let row = format!("| `{}` | {sort} | {} |", metric.name, labels.join(", ")).replace("|  |", "| |");
        assert!(page.contains(&row), "docs/metrics.md has no row {row}");
    }
    let is_row = |line: &&str| {
        ["counter", "gauge", "histogram"].iter().any(|sort| line.contains(&format!("` | {sort} |")))
    };
    let rows = page.lines().filter(is_row).count();
    assert_eq!(rows, ALL.len(), "docs/metrics.md describes a metric that is not there");
}

#[test]
fn every_alert_has_its_section_in_the_runbook() {
    let (alerts, page) = (text("ops/prometheus/alerts.yml"), text("docs/runbook.md"));
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 5);
    for name in names {
        let section =
            page.split(&format!("\n### {name}\n")).nth(1).unwrap_or_else(|| panic!("no section {name}"));
        let section = section.split("\n### ").next().unwrap();
        for part in ["**Meaning.**", "**Look at.**", "**Do.**"] {
            assert!(section.contains(part), "the section {name} has no {part}");
        }
        assert!(alerts.contains(&format!("runbook: docs/runbook.md#{}", name.to_lowercase())), "{name}");
    }
}

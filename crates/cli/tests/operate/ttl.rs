//! Deriving a TTL from what was measured, and asking whether one is enough.

use crate::bench::{Bench, code, stderr};

fn json(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).unwrap()
}

#[test]
fn a_measurement_is_shown_and_derived_from() {
    let bench = Bench::new();
    let output = bench.leasehold(&["ttl", "--measure", "300ms", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let line = json(&output.stdout);
    let trips = &line["measured"]["round_trip"];
    assert!(trips["count"].as_u64().unwrap() >= 2 && trips["p99_us"].as_u64().unwrap() > 0, "{line}");
    let part = line["renewed"]["parts"][0].clone();
    assert_eq!(part["part"], "rtt_p99");
    assert_eq!(part["adds_us"].as_u64(), trips["p99_us"].as_u64().map(|us| 4 * us), "{line}");
    assert!(line["covering"].is_null(), "nothing is known of the work: {line}");

    let output = bench.leasehold(&["ttl", "--measure", "100ms", "--work-p99", "800ms", "--margin", "200ms"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("measured on sqlite:") && said.contains("work p99"), "{said}");
}

#[test]
fn a_given_figure_wins_over_a_measured_one() {
    let bench = Bench::new();
    let words = ["ttl", "--measure", "100ms", "--rtt-p99", "7s", "--pause-p99", "0s", "--json"];
    let line = json(&bench.leasehold(&words).stdout);
    assert_eq!(line["renewed"]["ttl_ms"], 28_000);
}

#[test]
fn a_check_answers_by_its_exit_code() {
    let bench = Bench::new();
    let check = |ttl| {
        let words = ["ttl", "--rtt-p99", "40ms", "--pause-p99", "60ms", "--check", ttl, "--json"];
        let output = bench.leasehold(&words);
        (code(&output), json(&output.stdout)["check"]["enough"].as_bool().unwrap())
    };
    // 4 × (40 ms + 60 ms), without rounding.
    assert_eq!((check("400ms"), check("399ms")), ((0, true), (1, false)));
    assert_eq!(code(&bench.leasehold(&["ttl", "--check", "5s"])), 64, "the round trip is not known");
    assert_eq!(code(&bench.leasehold(&["ttl", "--measure", "0s"])), 64);
}

#[test]
fn a_ttl_in_the_configuration_is_that_of_run() {
    let bench = Bench::new();
    let file = bench.path("leasehold.toml");
    let run = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let words = [
            &["run", "r", "--config", file.to_str().unwrap()],
            more,
            &["--", "sh", "-c", "echo $LEASEHOLD_TTL_MS"],
        ];
        bench.leasehold(&words.concat())
    };
    assert_eq!(run("ttl = \"7s\"", &[]).stdout, b"7000\n");
    assert_eq!(run("ttl = \"7s\"", &["--ttl", "8s"]).stdout, b"8000\n");
    let refused = run("ttl = \"7\"", &[]);
    assert_eq!(code(&refused), 64);
    assert!(stderr(&refused).contains("leasehold.toml: ttl: 7 has no unit"), "{}", stderr(&refused));
}

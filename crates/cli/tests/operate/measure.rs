//! `bench`: every part measures something, nothing is left held, and two measurements do not measure each other.

use crate::bench::{Bench, code, stderr};

const QUICK: [&str; 7] = ["bench", "--for", "200ms", "--tasks", "4", "--leases", "50"];

#[test]
fn a_measurement_has_every_part_and_leaves_nothing_held() {
    let bench = Bench::new();
    let output = bench.leasehold(&[&QUICK[..], &["--json"]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for counted in [
        &line["pairs"]["acquire"]["count"],
        &line["pairs_together"]["release"]["p50_us"],
        &line["hand_over"]["latency"]["count"],
        &line["renewals"]["late"]["count"],
    ] {
        assert!(counted.as_u64().unwrap() > 0, "{line}");
    }
    assert!(line["renewals"]["renewed"].as_u64().unwrap() >= 50, "each is renewed: {line}");
    assert_eq!(line["renewals"]["lost"], 0);
    let held = bench.leasehold(&["ls", "--namespace", "leasehold-bench", "--json"]);
    assert_eq!((code(&held), held.stdout.as_slice()), (0, &b""[..]), "{}", stderr(&held));
}

#[test]
fn a_second_measurement_is_told_who_measures() {
    let bench = Bench::new();
    let turn = ["acquire", "turn", "--namespace", "leasehold-bench", "--ttl", "60s"];
    assert_eq!(code(&bench.leasehold(&turn)), 0);
    let output = bench.leasehold(&QUICK);
    assert_eq!(code(&output), 75, "{}", stderr(&output));
    assert!(stderr(&output).contains("turn"), "{}", stderr(&output));
}

#[test]
fn counts_out_of_bounds_are_refused() {
    let bench = Bench::new();
    for words in [["--tasks", "0"], ["--waiters", "65"], ["--leases", "100001"], ["--for", "1ms"]] {
        assert_eq!(code(&bench.leasehold(&[&["bench"][..], &words].concat())), 64, "{words:?}");
    }
}

//! Many runs at once.

use leasehold_testkit::process::Signal;

use crate::bench::{Bench, LONG, code};

/// A critical section that shows any overlap: it fails if another is inside.
const SECTION: &str = r#"trap '' INT; mkdir "$D/inside" || { echo overlap >>"$D/overlaps"; exit 1; }
    echo $LEASEHOLD_TOKEN >>"$D/tokens"; sleep 0.02; rmdir "$D/inside""#;

pub fn two_runs_at_once_run_one_after_the_other() {
    let mut bench = Bench::new();
    let first = r#"echo mine >"$D/data"; echo up >"$D/up"; until [ -e "$D/go" ]; do sleep 0.02; done
        tar -czf "$D/one.tar.gz" -C "$D" data && rm "$D/up""#;
    let second = r#"[ ! -e "$D/up" ] && exec tar -czf "$D/two.tar.gz" -C "$D" data"#;
    let one = bench.start("one", &["run", "backup", "--wait", "1m", "--", "sh", "-c", first]);
    bench.line("up");
    let two = bench.start("two", &["run", "backup", "--wait", "1m", "--", "sh", "-c", second]);
    bench.shows("backup", "\"waiting\":1");
    std::fs::write(bench.path("go"), "").unwrap();
    for child in [one, two] {
        assert!(child.wait(LONG).unwrap().success(), "{}", child.outcome());
    }
    assert!(bench.path("one.tar.gz").exists() && bench.path("two.tar.gz").exists());
}

pub fn thirty_runs_at_once_never_overlap_and_each_gets_its_turn_although_some_give_up() {
    let mut bench = Bench::new();
    let children: Vec<_> = (0..30)
        .map(|n| {
            bench.start(
                &format!("run{n}"),
                &["run", "r", "--ttl", "2s", "--wait", "1m", "--", "sh", "-c", SECTION],
            )
        })
        .collect();
    // A third is interrupted, wherever it stands: those that wait give up, those inside finish.
    for child in children.iter().step_by(3) {
        let _ = child.signal(Signal::SIGINT);
    }
    let mut finished = 0;
    for child in &children {
        let status = child.wait(LONG).unwrap();
        finished += u32::from(status.success());
    }
    assert!(finished >= 20, "{finished} finished");
    assert_eq!(bench.text("overlaps"), "");
    let tokens: Vec<u64> = bench.text("tokens").lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "tokens rise in the order of work: {tokens:?}");
    assert_eq!(code(&bench.leasehold(&["run", "r", "--", "true"])), 0);
}

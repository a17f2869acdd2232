//! Changes as they happen.

use std::fs;

use leasehold_testkit::process::{Signal, wait_until};

use crate::bench::{Bench, LONG, code};

#[test]
fn grants_waits_and_ends_are_told_as_they_happen() {
    let mut bench = Bench::new();
    let script = "echo $LEASEHOLD_TOKEN >$D/$1; until [ -e $D/go-$1 ]; do sleep 0.02; done";
    let hold = |bench: &mut Bench, name: &str| {
        bench.start(
            name,
            &["run", "app/r", "--wait", "1m", "--holder", name, "--", "sh", "-c", script, "sh", name],
        )
    };
    let _other = bench.start("other", &["run", "other", "--", "sh", "-c", script, "sh", "other"]);
    bench.line("other");
    let first = hold(&mut bench, "one");
    let one = bench.line("one");
    let watch = bench.start("watch", &["watch", "app/", "--every", "100ms", "--json"]);
    let sees = |change: &str, token: &str, more: &str| {
        wait_until(format!("{change} {token}"), LONG, || {
            let said = watch.stdout().unwrap();
            let lines = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            lines
                .filter(|line| line["change"] == change && line["resource"] == "app/r")
                .any(|line| {
                    line["fencing_token"].as_u64() == token.parse().ok() && line.to_string().contains(more)
                })
                .then_some(())
        })
        .unwrap_or_else(|late| panic!("{late}: {}", watch.stdout().unwrap()));
    };
    sees("held", &one, "\"label\":\"one\"");
    let second = hold(&mut bench, "two");
    sees("waiting", &one, "\"waiting\":1");
    fs::write(bench.path("go-one"), "").unwrap();
    assert!(first.wait(LONG).unwrap().success());
    let two = bench.line("two");
    sees("ended", &one, "\"reason\":\"released\"");
    sees("granted", &two, "\"label\":\"two\"");
    assert_eq!(code(&bench.leasehold(&["revoke", "app/r", "--token", &two])), 0);
    assert_eq!(second.wait(LONG).unwrap().code(), Some(79));
    sees("ended", &two, "\"reason\":\"revoked\"");
    assert!(!watch.stdout().unwrap().contains("other"), "only the prefix");
    watch.signal(Signal::SIGTERM).unwrap();
    watch.wait(LONG).unwrap();
    assert_eq!(code(&bench.leasehold(&["watch", "--every", "1ms"])), 64);
}

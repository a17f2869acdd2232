//! The examples run, and say what they promise to.
#![allow(missing_docs, clippy::unwrap_used)]

use std::process::Command;

fn run(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("leases.db").display());
    // Built here if it has not been yet: a single test must not depend on what ran before it.
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "leasehold", "--example", name, "--", &url])
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_singleton_works_and_releases() {
    let said = run("singleton");
    assert!(said.contains("done after 3 steps") && said.ends_with("the lease ended: Released\n"), "{said}");
}

#[test]
fn the_drained_worker_finishes_before_the_release() {
    let said = run("drain");
    assert!(said.contains("all of them under the lease") && said.ends_with("Released\n"), "{said}");
}

#[test]
fn the_blocking_program_is_refused_a_second_lease() {
    let said = run("blocking");
    assert!(said.contains("refused, as it should be") && said.ends_with("Released\n"), "{said}");
}

#[test]
fn the_payment_that_is_asked_for_three_times_happens_once() {
    let said = run("pay_once");
    assert!(said.contains("attempt 3: {\"balance\":70} (replayed: true)"), "{said}");
    assert!(said.ends_with("refused\nevents to publish: 1\n"), "{said}");
}

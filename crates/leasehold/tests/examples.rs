//! The examples run, and say what they promise to.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{path::PathBuf, process::Command};

fn run(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("leases.db").display());
    // `cargo test` builds the examples beside the tests.
    let mut program: PathBuf = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    program.extend(["examples", name]);
    let output = Command::new(&program).arg(url).output().unwrap();
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

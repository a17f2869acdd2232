//! `leasehold verify` on every coordinator, with faults and a judge; its control; its judge alone on kept histories.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    unreachable_pub,
    dead_code
)]

#[path = "../engines/mod.rs"]
mod engines;
mod histories;
mod runs;

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

/// Runs `leasehold` in a folder, to its end.
pub fn leasehold(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(words)
        .current_dir(folder)
        .env_remove("LEASEHOLD_URL")
        .env("HOME", folder)
        .output()
        .unwrap()
}

/// The report, and the exit code.
pub fn report(output: &Output) -> (Value, i32) {
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    let wrong = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}\n{wrong}"));
    (report, output.status.code().unwrap())
}

/// The line of one invariant.
pub fn line<'a>(report: &'a Value, invariant: &str) -> &'a Value {
    let mut lines = report["invariants"].as_array().unwrap().iter();
    lines.find(|line| line["invariant"] == invariant).unwrap()
}

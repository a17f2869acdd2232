//! The README's first command does a real job under a lease, and prints nothing.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

const PAGE: &str = include_str!("../../../README.md");

/// What stands before the words of the program.
const BUILD: &str = "cargo run --release --quiet -- ";

#[test]
fn command_one_does_a_real_job_under_a_lease_and_prints_nothing() {
    let block = PAGE.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    let command = block.trim_end();
    let words = command.strip_prefix(BUILD).expect("the first command builds and runs");
    // What it needs of a fresh clone.
    let clone = tempfile::tempdir().unwrap();
    fs::create_dir_all(clone.path().join("target")).unwrap();
    fs::create_dir_all(clone.path().join("docs")).unwrap();
    fs::write(clone.path().join("README.md"), PAGE).unwrap();
    fs::write(clone.path().join("docs/page.md"), "a page").unwrap();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let output = in_a_users_place(&format!("{program} {words} && {program} show backup"), clone.path());
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(output.status.success());
    // Nothing before what `show` says of it.
    assert!(said.starts_with("resource      backup\n") && said.contains("released"), "{said}");
    let listed =
        Command::new("tar").arg("-tzf").arg(clone.path().join("target/backup.tar.gz")).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "README.md\ndocs/\ndocs/page.md\n");
}

/// Runs a shell line as a user who has configured nothing. The superuser's own place is the system's: it gets another one.
fn in_a_users_place(line: &str, folder: &Path) -> std::process::Output {
    let mut command = if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("mount -t tmpfs none /var/lib && {line}")]);
        command
    } else {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("HOME", folder.join("home"));
    command.current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

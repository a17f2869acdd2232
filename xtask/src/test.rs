//! `cargo xtask test`: every test there is, on a machine that may have nothing but Rust.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

use crate::{
    Command, Failure,
    args::Args,
    failures::Failures,
    run::{self, cargo},
    tools,
};

pub(crate) const COMMAND: Command = Command {
    name: "test",
    arguments: "[--install] [filter]",
    about: "Run every test (or those whose name contains the filter).",
    help: "Fails, naming them, when programs that the tests need are missing. A test program that fails does not stop the\n\
           others. What stands after -- goes to the test programs.\n\n  \
           --install  install missing programs with apt-get",
    run: test,
};

fn test(mut args: Args) -> Result<(), Failure> {
    let install = args.flag("--install");
    let filter = args.word();
    let passed_on = args.passed_on();
    args.finish()?;
    tools::ensure(install)?;
    run_tests(filter.as_deref(), &passed_on)
}

/// Every test, unfiltered.
pub(crate) fn test_all(install: bool) -> Result<(), Failure> {
    tools::ensure(install)?;
    run_tests(None, &[])
}

fn run_tests(filter: Option<&str>, passed_on: &[String]) -> Result<(), Failure> {
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
    command.args(filter);
    if !passed_on.is_empty() {
        command.arg("--").args(passed_on);
    }
    let mut totals = Totals::default();
    let mut outcome = run_counted(command, &mut totals);
    let is_filtered = filter.is_some() || !passed_on.is_empty();
    if !is_filtered {
        for package in OUTSIDE {
            outcome = outcome.and(run_counted(third_party(package)?, &mut totals));
        }
    }
    print!("{}", totals.failures.told());
    println!("\n{}", totals.line());
    outcome.and_then(|()| totals.judge(is_filtered))
}

/// Packages that stand outside the workspace, as a third party's would: a coordinator, and a program with traces.
const OUTSIDE: [&str; 2] = ["coordinator", "opentelemetry"];

/// The tests of one of them.
fn third_party(package: &str) -> Result<std::process::Command, Failure> {
    let root = run::root();
    let example = root.join("docs/examples").join(package);
    // The same versions as everywhere else; cargo takes what it needs of them.
    std::fs::copy(root.join("Cargo.lock"), example.join("Cargo.lock"))
        .map_err(|error| Failure::new(format!("cannot write the example's Cargo.lock: {error}")))?;
    let mut command = cargo(&["test", "--no-fail-fast", "--target-dir", "target/examples"]);
    command.args(["--manifest-path", &format!("docs/examples/{package}/Cargo.toml")]);
    Ok(command)
}

/// Runs tests with their output as it comes, and counts them.
fn run_counted(mut command: std::process::Command, totals: &mut Totals) -> Result<(), Failure> {
    let line = run::shown(&command);
    println!("\n$ {line}");
    let cannot = |error| Failure::new(format!("cannot run '{line}': {error}"));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    if let Some(output) = child.stdout.take() {
        let mut out = std::io::stdout();
        for bytes in BufReader::new(output).split(b'\n') {
            let mut bytes = bytes.map_err(cannot)?;
            let text = String::from_utf8_lossy(&bytes);
            totals.add(&text);
            totals.failures.add(&text);
            bytes.push(b'\n');
            out.write_all(&bytes).and_then(|()| out.flush()).map_err(cannot)?;
        }
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("'{line}' failed ({status})"))) }
}

/// The sum of the closing lines of all test programs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    programs: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Failures,
}

impl Totals {
    /// Counts a line like `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`.
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        self.programs += 1;
        for count in counts.1.split(';') {
            match count.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                Some((number, "ignored")) => self.ignored += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }

    fn line(&self) -> String {
        let Self { programs, passed, failed, ignored, .. } = self;
        format!("in all {programs} test programs: {passed} passed, {failed} failed, {ignored} ignored")
    }

    /// A test that did not run must not look green.
    fn judge(&self, filtered: bool) -> Result<(), Failure> {
        match self {
            Self { passed: 0, .. } => Err(Failure::new("no test ran")),
            Self { ignored, .. } if *ignored > 0 && !filtered => Err(Failure::new(format!(
                "{ignored} tests were ignored; a test that did not run is not green"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed() {
        let mut totals = Totals::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s",
            "test a ... ok",
            "test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.05s",
        ] {
            totals.add(line);
        }
        assert_eq!(totals, Totals { programs: 2, passed: 5, failed: 1, ignored: 4, ..Totals::default() });
    }

    #[test]
    fn a_run_without_a_test_is_a_failure_and_so_are_ignored_ones() {
        let ran = Totals { passed: 1, ..Totals::default() };
        assert!(ran.judge(false).is_ok());
        assert!(Totals::default().judge(true).is_err());
        assert!(Totals { ignored: 1, ..ran }.judge(false).is_err());
    }
}

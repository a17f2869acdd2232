//! `cargo xtask check`: everything that must hold before a commit, without writing to the source tree.

use crate::{
    Command, Failure,
    args::Args,
    run::{self, Gate, cargo},
    structure,
    tree::Tree,
};

pub(crate) const COMMAND: Command = Command {
    name: "check",
    arguments: "[--no-tests]",
    about: "Format, lints, structure and the fast tests. Changes no file.",
    help: "Runs every gate even when one fails, then says which failed and what to do. The fast tests are the unit and\n\
           property tests and the conformance suites; `cargo xtask test` runs all of them.\n\n  \
           --no-tests  leave the tests out",
    run: check,
};

fn check(mut args: Args) -> Result<(), Failure> {
    let tests = !args.flag("--no-tests");
    args.finish()?;
    let mut gates = static_gates();
    if tests {
        gates.push(Gate { name: "fast tests", advice: "see above", run: fast_tests });
    }
    run::gates(gates)
}

/// The gates that run no test.
pub(crate) fn static_gates() -> Vec<Gate> {
    vec![
        Gate { name: "structure", advice: "see above", run: structure::check },
        Gate { name: "format", advice: "cargo xtask fix", run: format },
        Gate { name: "lints", advice: "cargo xtask fix mends some", run: lints },
    ]
}

fn format() -> Result<(), Failure> {
    run::run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn lints() -> Result<(), Failure> {
    run::run(&mut cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn fast_tests() -> Result<(), Failure> {
    let mut command = cargo(&["test", "--locked", "--workspace", "--lib", "--bins"]);
    let tree = Tree::read(&run::root())?;
    // A pattern that matches nothing is an error of cargo's, so only those that match are passed.
    for word in SUITES.iter().filter(|word| has_suite(&tree, word)) {
        command.args(["--test", &format!("*{word}*")]);
    }
    run::run(&mut command)
}

/// Test programs with one of these words in their file's name are conformance suites.
const SUITES: &[&str] = &["suite", "conformance"];

fn has_suite(tree: &Tree, word: &str) -> bool {
    tree.paths().any(|path| {
        let mut parts = path.split('/').skip_while(|part| *part != "tests").skip(1);
        let first = parts.next().unwrap_or_default();
        // tests/suite.rs or tests/suite/main.rs, but not a module of another test program.
        let program = first.strip_suffix(".rs").filter(|_| parts.clone().next().is_none());
        let folder = (parts.next() == Some("main.rs") && parts.next().is_none()).then_some(first);
        path.starts_with("crates/") && program.or(folder).is_some_and(|name| name.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_found_by_the_name_of_their_program() {
        let has = |path| has_suite(&Tree::of(&[(path, "")]), "suite");
        assert!(has("crates/leasehold/tests/sqlite_suite.rs"));
        assert!(has("crates/leasehold/tests/suite/main.rs"));
        assert!(!has("crates/leasehold/tests/common/suite.rs"));
        assert!(!has("crates/testkit/src/suite.rs"));
        assert!(!has("xtask/tests/suite.rs"));
    }
}

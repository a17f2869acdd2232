//! `cargo xtask ci`: what continuous integration runs, in one place, so that it can be run anywhere.

use crate::{Command, Failure, args::Args, builds, check, docs, run, test};

pub(crate) const COMMAND: Command = Command {
    name: "ci",
    arguments: "",
    about: "What continuous integration runs: check, builds, docs, test --install.",
    help: "The tests run once, all of them, after the gates that run none. Every part runs even when an earlier one failed.",
    run: ci,
};

fn ci(args: Args) -> Result<(), Failure> {
    args.finish()?;
    let mut gates = check::static_gates();
    gates.push(builds::GATE);
    gates.push(docs::GATE);
    let checked = run::gates(gates);
    let tested = test::test_all(true);
    match (checked, tested) {
        (Err(gates), Err(tests)) => Err(Failure::new(format!("{}\n{}", gates.message, tests.message))),
        (gates, tests) => gates.and(tests),
    }
}

//! `cargo xtask bench`: builds the benchmark with optimisation and runs it.
//!
//! What is measured, beside what, and how it is told is the business of `crates/bench`; this file only builds what it measures
//! and starts it. Nothing else builds that package with optimisation, or its rivals at all.

use crate::{
    Command, Failure,
    args::Args,
    run::{self, cargo},
};

pub(crate) const COMMAND: Command = Command {
    name: "bench",
    arguments: "[name] [--quick] …",
    about: "Measure us, the floors and the rivals, in turns; `inner`: the inner pieces.",
    help: "Starts private engines and installs the rivals below target/bench. Run it on a quiet machine: only ratios taken in\n\
           one run mean anything. Without a name, or with all, it measures everything: 25 minutes at most, 5 with --quick.\n\n  \
           name           local, sqlite, redis, redlock, etcd or postgres: one engine alone; inner: Criterion's view\n  \
           --quick        one short round, and no growth curves\n  \
           --rounds N     3 unless given\n  \
           --group TITLE  only what is called so: pairs, hand-over, leases, a command, at rest\n  \
           --no-rivals    without the programs of others\n  \
           --again        measures nothing: shows (or writes) the figures of the last run\n  \
           --write        writes docs/performance.md and its plots\n\n\
           What stands after -- of inner goes to Criterion.",
    run: bench,
};

const INNER: &str = "crates/bench/inner/Cargo.toml";

fn bench(mut args: Args) -> Result<(), Failure> {
    let given = args.everything();
    args.finish()?;
    if given.first().is_some_and(|name| name == "inner") {
        return inner(&given[1..]);
    }
    // The command line is measured too. One build for both: apart they would want their dependencies in two variants.
    run::run(&mut cargo(&["build", "--release", "-p", "leasehold-cli", "-p", "leasehold-bench"]))?;
    let built = run::root().join("target/release");
    let mut command = std::process::Command::new(built.join("leasehold-bench"));
    command.env("LEASEHOLD_PROGRAM", built.join("leasehold"));
    // As `cargo run` would have said; what is inherited is our own.
    command.env("CARGO_MANIFEST_DIR", run::root().join("crates/bench"));
    run::run(command.args(given))
}

fn inner(given: &[String]) -> Result<(), Failure> {
    let mut command = cargo(&["bench", "--manifest-path", INNER, "--target-dir", "target/bench/inner", "--"]);
    run::run(command.args(given.iter().filter(|word| *word != "--")))
}

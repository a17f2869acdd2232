//! `cargo xtask bench`: builds a benchmark with optimisation and runs it.
//!
//! A benchmark is an example program of the `leasehold` crate whose name begins with `bench_`; it prints its own report.
//! Rivals and engines are its business; this file only finds and starts it.

use crate::{
    Command, Failure,
    args::Args,
    run::{self, cargo},
    tree::Tree,
};

pub(crate) const COMMAND: Command = Command {
    name: "bench",
    arguments: "[name] [-- ARGS…]",
    about: "Run a benchmark (default: sqlite) with optimisation.",
    help: "Benchmarks are the programs crates/leasehold/examples/bench_<name>.rs. Run them on a quiet machine: only ratios\n\
           taken in one run mean anything. What stands after -- goes to the benchmark.",
    run: bench,
};

const FOLDER: &str = "crates/leasehold/examples/";

fn bench(mut args: Args) -> Result<(), Failure> {
    let name = args.word().unwrap_or_else(|| "sqlite".into());
    let passed_on = args.passed_on();
    args.finish()?;
    let known = names(&Tree::read(&run::root())?);
    if !known.contains(&name) {
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        return Err(Failure::usage(format!("there is no benchmark '{name}'; there are: {known}")));
    }
    // The command line is measured too.
    run::run(&mut cargo(&["build", "--release", "-p", "leasehold-cli"]))?;
    let program = run::root().join("target/release/leasehold");
    let example = format!("bench_{name}");
    let mut command = cargo(&["run", "--release", "-p", "leasehold", "--example", &example, "--"]);
    run::run(command.env("LEASEHOLD_PROGRAM", program).args(passed_on))
}

fn names(tree: &Tree) -> Vec<String> {
    let name_of = |path: &str| {
        let name = path.strip_prefix(FOLDER)?.strip_prefix("bench_")?;
        name.strip_suffix("/main.rs").or_else(|| name.strip_suffix(".rs")).map(String::from)
    };
    tree.paths().filter_map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_are_found_by_their_file_names() {
        let tree = Tree::of(&[
            ("crates/leasehold/examples/bench_sqlite.rs", ""),
            ("crates/leasehold/examples/bench_redis/main.rs", ""),
            ("crates/leasehold/examples/hello.rs", ""),
        ]);
        assert_eq!(names(&tree), ["redis", "sqlite"]);
    }
}

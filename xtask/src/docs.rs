//! `cargo xtask docs`: the reference documentation builds without a warning, and links between pages lead somewhere.

use crate::{
    Command, Failure,
    args::Args,
    run::{self, Gate, cargo},
    structure,
    tree::Tree,
};

pub(crate) const COMMAND: Command = Command {
    name: "docs",
    arguments: "",
    about: "Build the reference documentation; warnings and dead links are errors.",
    help: "The result is in target/doc. Links between Markdown pages are checked, those to other sites are not.",
    run: docs,
};

/// The reference documentation as a part of a larger check.
pub(crate) const GATE: Gate =
    Gate { name: "reference documentation", advice: "cargo xtask docs", run: reference };

fn docs(args: Args) -> Result<(), Failure> {
    args.finish()?;
    run::gates(vec![GATE, Gate { name: "links between pages", advice: "see above", run: links }])
}

fn reference() -> Result<(), Failure> {
    // Libraries only: the program and the library share the name `leasehold`, and would overwrite each other.
    let mut command = cargo(&["doc", "--locked", "--workspace", "--lib", "--no-deps"]);
    run::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn links() -> Result<(), Failure> {
    structure::report(&structure::links::check(&Tree::read(&run::root())?))
}

//! `cargo xtask fix`: mends what a machine can mend.

use crate::{
    Command, Failure,
    args::Args,
    run::{cargo, run},
};

pub(crate) const COMMAND: Command = Command {
    name: "fix",
    arguments: "",
    about: "Apply clippy's suggestions and format.",
    help: "Works on a tree with uncommitted changes; look at the result before you commit it.",
    run: fix,
};

fn fix(args: Args) -> Result<(), Failure> {
    args.finish()?;
    let fixed = run(&mut cargo(&[
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
        "--all-targets",
    ]));
    // Also after a clippy that could not mend everything.
    run(&mut cargo(&["fmt", "--all"]))?;
    fixed
}

//! `completions`: a script that a shell reads.

use clap::CommandFactory as _;

use crate::{
    args::{Cli, Completions},
    exit::Exit,
    failure::Failure,
    output,
};

pub(crate) fn run(args: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leasehold", &mut script);
    output::raw(&script)?;
    Ok(Exit::Done)
}

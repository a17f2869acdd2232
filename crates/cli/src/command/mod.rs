//! One file per verb. Each takes its low arguments and the checked settings, and answers with an exit code or a failure.

mod acquire;
mod check;
mod completions;
mod init;
mod ls;
mod man;
mod release;
mod renew;
mod revoke;
mod run;
mod show;
mod ttl;

use crate::{
    args::{Cli, Verb},
    exit::Exit,
    failure::Failure,
    output::Output,
    settings::{Settings, variable},
};

/// Does what was asked, and tells if that failed.
pub(crate) fn dispatch(cli: Cli) -> Exit {
    let global = &cli.global;
    let output = Output::new(global.json, global.quiet, global.verbose);
    output.conclude(perform(cli, output))
}

fn perform(cli: Cli, output: Output) -> Result<Exit, Failure> {
    let settings = || Settings::check(&cli.global, output, &variable);
    match cli.verb {
        Verb::Run(args) => run::run(&args, &settings()?),
        Verb::Acquire(args) => acquire::run(&args, &settings()?),
        Verb::Check(args) => check::run(&args, &settings()?),
        Verb::Renew(args) => renew::run(&args, &settings()?),
        Verb::Release(args) => release::run(&args, &settings()?),
        Verb::Ls(args) => ls::run(&args, &settings()?),
        Verb::Show(args) => show::run(&args, &settings()?),
        Verb::Revoke(args) => revoke::run(&args, &settings()?),
        Verb::Init(args) => init::run(&args, &settings()?),
        // These ask no coordinator, and work where the configuration does not.
        Verb::Ttl(args) => ttl::run(&args, output),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man(args) => man::run(&args),
    }
}

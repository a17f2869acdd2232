//! One file per verb. Each takes its low arguments and the checked settings, and answers with an exit code or a failure.

mod acquire;
mod bench;
mod check;
mod completions;
mod doctor;
mod effects;
mod fence;
mod history;
mod init;
mod ls;
mod man;
mod outbox;
mod preempt;
mod purge;
mod release;
mod renew;
mod revoke;
mod run;
mod settings;
mod show;
mod timeline;
mod ttl;
mod verify;
mod watch;

use crate::{
    args::{Cli, Verb},
    exit::Exit,
    failure::Failure,
    log,
    output::Output,
    settings::{Settings, variable},
};

/// Does what was asked, and tells if that failed.
pub(crate) fn dispatch(cli: Cli) -> Exit {
    let global = &cli.global;
    let output = Output::new(global.json, global.quiet, global.verbose);
    output.conclude(log::start(global).and_then(|()| perform(cli, output)))
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
        Verb::Watch(args) => watch::run(&args, &settings()?),
        Verb::Show(args) => show::run(&args, &settings()?),
        Verb::History(args) => history::run(&args, &settings()?),
        Verb::Preempt(args) => preempt::run(&args, &settings()?),
        Verb::Revoke(args) => revoke::run(&args, &settings()?),
        Verb::Fence(args) => fence::run(&args, &settings()?),
        Verb::Effects(args) => effects::run(&args, &settings()?),
        Verb::Outbox(args) => outbox::run(&args, &settings()?),
        Verb::Settings(args) => settings::run(&args, &settings()?),
        Verb::Init(args) => init::run(&args, &settings()?),
        Verb::Purge(args) => purge::run(&args, &settings()?),
        Verb::Bench(args) => bench::run(&args, &settings()?),
        Verb::Doctor(args) => doctor::run(&args, &settings()?),
        // Its workers and its judge need no configuration.
        Verb::Verify(args) => verify::run(&args, output, settings),
        // These work where the configuration does not; `ttl` asks a coordinator only to measure it.
        Verb::Ttl(args) => ttl::run(&args, output, settings),
        Verb::Timeline(args) => timeline::run(&args, output),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man(args) => man::run(&args),
    }
}

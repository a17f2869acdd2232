//! `man`: the manual page of the program, or of one verb.

use clap::CommandFactory as _;

use crate::{
    args::{Cli, Man},
    exit::Exit,
    failure::Failure,
    output,
};

pub(crate) fn run(args: &Man) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    command.build();
    if let Some(verb) = &args.verb {
        let names = command.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help");
        let known = names.collect::<Vec<_>>().join(", ");
        let found = command.find_subcommand(verb).cloned();
        command = found.ok_or_else(|| {
            Failure::usage(format!("there is no verb {verb}")).advise(format!("verbs: {known}"))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(|error| Failure::unwritten(&error))?;
    output::raw(&page)?;
    Ok(Exit::Done)
}

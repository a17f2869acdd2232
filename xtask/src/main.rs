//! What a contributor runs: `cargo xtask <command>`.
//!
//! One file per command; [`structure`] holds what the compiler cannot check. No dependencies, so that it builds in
//! seconds before anything else does.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal; printing is its work"
)]

mod args;
mod bench;
mod builds;
mod check;
mod ci;
mod docs;
mod failures;
mod fix;
mod run;
mod sim;
mod structure;
mod test;
mod tools;
mod tree;

use std::process::ExitCode;

use args::Args;

/// How a command ends early: an exit code and what to say.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Something is wrong with the tree or the machine: exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// The command line was not understood: exit code 64, as in the `leasehold` program.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: 64, message: message.into() }
    }
}

/// One command.
struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    help: &'static str,
    run: fn(Args) -> Result<(), Failure>,
}

const COMMANDS: &[Command] =
    &[check::COMMAND, fix::COMMAND, test::COMMAND, sim::COMMAND, bench::COMMAND, docs::COMMAND, ci::COMMAND];

fn main() -> ExitCode {
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    let name = if given.is_empty() { "help".into() } else { given.remove(0) };
    match dispatch(&name, given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(name: &str, given: Vec<String>) -> Result<(), Failure> {
    if matches!(name, "help" | "--help" | "-h") {
        match given.first() {
            Some(about) => help_of(find(about)?),
            None => help(),
        }
        return Ok(());
    }
    let command = find(name)?;
    if given.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--help" || arg == "-h") {
        help_of(command);
        return Ok(());
    }
    (command.run)(Args::new(command.name, given))
}

fn find(name: &str) -> Result<&'static Command, Failure> {
    COMMANDS.iter().find(|command| command.name == name).ok_or_else(|| {
        let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
        Failure::usage(format!("there is no command '{name}'; there are: {}", names.join(", ")))
    })
}

fn help() {
    println!("Usage: cargo xtask <command>\n\nCommands:");
    for Command { name, arguments, about, .. } in COMMANDS {
        println!("  {:<28}{about}", format!("{name} {arguments}"));
    }
    println!("\n`cargo xtask help <command>` says more. Exit codes: 0 fine, 1 something failed, 64 usage.");
}

fn help_of(command: &Command) {
    let usage = format!("Usage: cargo xtask {} {}", command.name, command.arguments);
    println!("{}\n\n{}\n\n{}", usage.trim_end(), command.about, command.help);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_is_a_usage_error_that_names_the_known_ones() {
        let failure = dispatch("chekc", Vec::new()).unwrap_err();
        assert_eq!(failure.code, 64);
        assert!(failure.message.contains("check, fix, test"), "{}", failure.message);
    }

    #[test]
    fn command_names_are_unique_and_explained() {
        for (at, command) in COMMANDS.iter().enumerate() {
            assert!(COMMANDS[..at].iter().all(|earlier| earlier.name != command.name));
            assert!(!command.help.is_empty() && !command.about.is_empty());
        }
    }
}

//! The command line `leasehold`, as a library with one entrance.
//!
//! ```text
//!   words ──▶ args (low: as typed) ──▶ settings (checked) ──▶ command/<verb> ──▶ output
//!                         config, environment ──▲                   └─▶ failure ──▶ output, exit code
//! ```
//!
//! | to change … | go to |
//! | --- | --- |
//! | a verb or an option | `args`, then `command/<verb>`, then `docs/cli.md` (a test compares the two) |
//! | what is looked up where | `config`, `settings` |
//! | an exit code | `exit` |
//! | a field of the JSON | `view` |
//! | what is said when a resource is held by another | `message` |
//!
//! Nothing prints but `output`; nothing exits but [`main`].

mod args;
mod client;
mod command;
mod config;
mod duration;
mod exit;
mod failure;
mod grant;
mod interrupt;
mod log;
mod message;
mod output;
mod patience;
mod people;
mod place;
mod run;
mod settings;
pub mod supervise;
mod table;
mod telemetry;
mod timeline;
mod verify;
mod view;

use std::{ffi::OsString, process::ExitCode};

use crate::{exit::Exit, failure::Failure, output::Output};

/// Runs the command line of this process. The only place from which the program ends.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let exit = match args::parse(&words) {
        Ok(cli) => command::dispatch(cli),
        Err(error) => not_parsed(&words, &error),
    };
    match exit {
        Exit::Interrupted(signal) => interrupt::die_by(signal),
        Exit::Command(status) => supervise::die_like(status),
        _ => {}
    }
    ExitCode::from(exit.code())
}

/// Help and version are asked for; everything else that clap answers with is a mistake in the words.
fn not_parsed(words: &[OsString], error: &clap::Error) -> Exit {
    // The option could not be parsed, so it is looked for by hand.
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let output = Output::new(json, false, false);
    let text = error.render().to_string();
    if error.use_stderr() {
        let failure = Failure::usage_text(&text);
        return output.fail(&failure);
    }
    output.conclude(output::raw(text.as_bytes()).map(|()| Exit::Done))
}

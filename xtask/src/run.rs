//! Running other programs, always from the root of the workspace, and saying so.

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::Failure;

/// The root of the workspace: the folder above this package.
pub(crate) fn root() -> PathBuf {
    // Set by cargo at run time; the value of compile time serves when the built program is called by hand.
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(package).parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// A cargo command at the root of the workspace, by the cargo that runs us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    if words[0].ends_with("/cargo") {
        words[0] = "cargo".into();
    }
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs to the end with output as it comes.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let line = shown(command);
    println!("\n$ {line}");
    let status = command.status().map_err(|error| Failure::new(format!("cannot start '{line}': {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("'{line}' failed ({status})"))) }
}

/// Runs named gates one after the other, all of them, and then says which failed and what to do about it.
pub(crate) fn gates(gates: Vec<Gate>) -> Result<(), Failure> {
    let mut failed = Vec::new();
    let count = gates.len();
    for gate in gates {
        println!("\n=== {}", gate.name);
        if let Err(failure) = (gate.run)() {
            println!("{}", failure.message);
            failed.push(format!("{} ({})", gate.name, gate.advice));
        }
    }
    if failed.is_empty() {
        println!("\nall {count} gates passed");
        return Ok(());
    }
    Err(Failure::new(format!("{} of {count} gates failed:\n  {}", failed.len(), failed.join("\n  "))))
}

/// A part of a check.
pub(crate) struct Gate {
    /// What it looks at.
    pub(crate) name: &'static str,
    /// What to do when it fails.
    pub(crate) advice: &'static str,
    /// Looks.
    pub(crate) run: fn() -> Result<(), Failure>,
}

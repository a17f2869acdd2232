//! Supervision on real processes, signals and terminals.
//!
//! This binary has no harness of its own, because it is also the front under test: called as
//! `supervise front …` it runs a command under a guard, with a caretaker that writes what it is asked to a file.
#![allow(unsafe_code)]
// All of this is a test, though without a harness no attribute says so.
#![allow(clippy::unwrap_used, clippy::panic)]

mod deadline;
mod front;
mod interactive;
mod promises;
mod receiver;
mod signals;
mod starting;
mod terminal;
mod tty;
mod unkillable;
mod world;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|first| first.to_str()) {
        Some("front") => front::main(arguments.collect()),
        Some("receiver") => receiver::main(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let trials = [
        promises::ALL,
        deadline::ALL,
        signals::ALL,
        starting::ALL,
        terminal::ALL,
        interactive::ALL,
        unkillable::ALL,
    ];
    let trials = trials.into_iter().flatten().map(|(name, test)| {
        let short = name.strip_prefix("supervise::").unwrap_or(name);
        let trial = Trial::test(short, move || {
            test();
            Ok(())
        });
        // A test that cannot run must not look as if it had.
        let needs_root = short.contains("needs_root")
            || short.ends_with("what_cannot_be_killed_is_named_and_not_released");
        trial.with_ignored_flag(needs_root && !nix::unistd::geteuid().is_root())
    });
    libtest_mimic::run(&arguments, trials.collect()).exit()
}

/// A list of the test functions of a module, under their own names.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const ALL: &[(&str, fn())] = &[$((concat!(module_path!(), "::", stringify!($name)), $name)),*];
    };
}

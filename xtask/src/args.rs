//! A command's arguments: flags are taken out one by one, and what nobody took is an error.

use crate::Failure;

/// What stands after the command's name.
#[derive(Debug)]
pub(crate) struct Args {
    command: &'static str,
    own: Vec<String>,
    passed_on: Vec<String>,
}

impl Args {
    /// Splits at the first `--`.
    pub(crate) fn new(command: &'static str, mut given: Vec<String>) -> Self {
        let passed_on = match given.iter().position(|arg| arg == "--") {
            Some(at) => {
                let rest = given.split_off(at + 1);
                given.truncate(at);
                rest
            }
            None => Vec::new(),
        };
        Self { command, own: given, passed_on }
    }

    /// Takes a flag out. True when it was there.
    pub(crate) fn flag(&mut self, flag: &str) -> bool {
        let before = self.own.len();
        self.own.retain(|arg| arg != flag);
        self.own.len() < before
    }

    /// Takes the first argument that is no flag.
    pub(crate) fn word(&mut self) -> Option<String> {
        let at = self.own.iter().position(|arg| !arg.starts_with('-'))?;
        Some(self.own.remove(at))
    }

    /// Takes everything, for a program that judges its own arguments.
    pub(crate) fn everything(&mut self) -> Vec<String> {
        self.own.append(&mut self.passed_on);
        std::mem::take(&mut self.own)
    }

    /// Takes what stands after `--`.
    pub(crate) fn passed_on(&mut self) -> Vec<String> {
        std::mem::take(&mut self.passed_on)
    }

    /// Everything must have been taken.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.own.first().or(self.passed_on.first()) {
            None => Ok(()),
            Some(arg) => Err(Failure::usage(format!(
                "'{arg}' is not an argument of {0}; see cargo xtask help {0}",
                self.command
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(given: &[&str]) -> Args {
        Args::new("test", given.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn flags_words_and_the_rest_are_told_apart() {
        let mut args = args(&["fence", "--install", "--", "--nocapture"]);
        assert!(args.flag("--install") && !args.flag("--install"));
        assert_eq!(args.word().as_deref(), Some("fence"));
        assert_eq!(args.passed_on(), ["--nocapture"]);
        assert!(args.finish().is_ok());
    }

    #[test]
    fn what_nobody_took_is_a_usage_error() {
        assert_eq!(args(&["--instal"]).finish().unwrap_err().code, 64);
        assert_eq!(args(&["--", "x"]).finish().unwrap_err().code, 64);
    }
}

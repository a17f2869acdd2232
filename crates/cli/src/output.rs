//! The only file that prints.
//!
//! The standard output carries the result and nothing else: it is empty unless the exit code is 0 (`check` apart, whose
//! answer is its result). Everything else goes to the standard error. A line never contains a character that a terminal
//! would obey. A reader that has gone away is no reason to panic.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use leasehold::core::name::is_deceptive;
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::stat::{fstat, makedev},
};
use serde::Serialize;

use crate::{exit::Exit, failure::Failure, people, view::ErrorLine};

/// How this run was asked to speak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    verbose: bool,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool, verbose: bool) -> Self {
        Self { json, quiet, verbose }
    }

    /// True when nothing but errors is wished for.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// True when JSON is wished for.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Writes the result: as JSON, or as lines for people.
    pub(crate) fn result(
        self,
        value: &impl Serialize,
        lines: impl FnOnce() -> Vec<String>,
    ) -> Result<(), Failure> {
        if self.json {
            return raw(json_line(value)?.as_bytes());
        }
        let mut text = String::new();
        for line in lines() {
            text.push_str(&people::visible(&line));
            text.push('\n');
        }
        raw(text.as_bytes())
    }

    /// As [`Output::result`], for a confirmation that `-q` leaves out.
    pub(crate) fn confirm(
        self,
        value: &impl Serialize,
        line: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if self.quiet && !self.json {
            return Ok(());
        }
        self.result(value, || vec![line()])
    }

    /// Says something worth knowing beside the result.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet && !self.json {
            say(&format!("leasehold: {text}"));
        }
    }

    /// Says something that is worth knowing only with `-v`.
    pub(crate) fn detail(self, text: impl FnOnce() -> String) {
        if self.verbose && !self.json {
            say(&format!("leasehold: {}", text()));
        }
    }

    /// Says what happened as JSON on the standard error, when JSON is wished for: the standard output is the command's.
    pub(crate) fn event(self, value: &impl Serialize) {
        if self.json {
            // As in `fail`: there is nowhere left to tell it.
            let _ = json_line(value).map(|line| write_error(&line));
        }
    }

    /// Tells of a failure. How the program ends.
    pub(crate) fn fail(self, failure: &Failure) -> Exit {
        if failure.is_told(self.quiet) {
            if self.json {
                // A value that cannot be turned into JSON would be a bug of ours, and there is nowhere left to tell it.
                let _ = json_line(&ErrorLine::from(failure)).map(|line| write_error(&line));
            } else {
                failure.lines().iter().for_each(|line| say(line));
            }
        }
        failure.exit()
    }

    /// How the program ends after `result`.
    pub(crate) fn conclude(self, result: Result<Exit, Failure>) -> Exit {
        result.unwrap_or_else(|failure| self.fail(&failure))
    }
}

/// Writes what is ours (help, a manual page, lines already made harmless) as it is, at once and completely.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    if was_closed() {
        return Err(Failure::unwritten(&io::Error::from_raw_os_error(libc::EBADF)));
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| Failure::unwritten(&error))
}

/// True when this program was started with its standard output closed. Rust's start-up then opens `/dev/null` in its place, for
/// reading and writing, which no shell does: what is written there reaches nobody.
fn was_closed() -> bool {
    let stdout = io::stdout();
    let is_null = fstat(&stdout).is_ok_and(|found| found.st_rdev == makedev(1, 3));
    let flags = fcntl(&stdout, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    is_null && flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR)
}

fn say(line: &str) {
    write_error(&format!("{}\n", people::visible(line)));
}

fn write_error(text: &str) {
    // When the standard error is closed, the exit code says it all.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// One object on one line. Characters that a terminal would obey stand as `\uXXXX`, which JSON knows inside strings, and
/// outside of strings there are none.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::unwritten(&io::Error::other(error)))?;
    let mut line = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if is_deceptive(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing into a String cannot fail.
                let _ = write!(line, "\\u{unit:04x}");
            }
        } else {
            line.push(character);
        }
    }
    line.push('\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_one_harmless_line_that_means_the_same() {
        let text = "a\n\u{1b}[2J\u{9b}\u{202e}\u{e0041}\u{7f}\"🦀";
        let line = json_line(&text).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.trim_end().chars().any(is_deceptive), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}

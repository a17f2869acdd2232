//! Giving the terminal back to a command that has a process group of its own.
//!
//! A shell run under us moves into its own group and makes that the terminal's foreground. When it suspends itself, our
//! shell takes the terminal, and on `fg` gives it to *our* group: the inner shell would find itself in the
//! background and end. As its leader it would have got the terminal itself, so we pass it on.

use std::fs::{File, OpenOptions};

use nix::unistd::{Pid, getpgid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal of a command that had it in a group of its own.
#[derive(Debug)]
pub(super) struct Foreground {
    terminal: File,
    group: Pid,
}

impl Foreground {
    /// `None` in the usual case: the command is in our group, or did not have the terminal.
    pub(super) fn note(command: i32) -> Option<Self> {
        let group = getpgid(Some(Pid::from_raw(command))).ok().filter(|group| *group != getpgrp())?;
        // Standard input may be a pipe; this is the terminal of the session whatever is redirected.
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        (tcgetpgrp(&terminal) == Ok(group)).then_some(Self { terminal, group })
    }

    /// Only from the foreground: after `bg` the terminal stays with the shell.
    pub(super) fn restore(&self) {
        if tcgetpgrp(&self.terminal) == Ok(getpgrp()) {
            // The group may be gone; then there is nobody to give it to.
            let _gone = tcsetpgrp(&self.terminal, self.group);
        }
    }
}

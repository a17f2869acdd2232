//! Giving the terminal back to a command that has a process group of its own.
//!
//! A shell run under us moves into its own group and makes that the terminal's foreground. When it suspends itself, our
//! shell takes the terminal, and on `fg` gives it to *our* group: the inner shell would find itself in the
//! background and end. As its leader it would have got the terminal itself, so we pass it on.

use std::fs::{File, OpenOptions};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The foreground as the command left it, if it was neither ours nor nobody's.
#[derive(Debug)]
pub(super) struct Foreground {
    terminal: File,
    group: Pid,
}

impl Foreground {
    pub(super) fn note() -> Option<Self> {
        // Standard input may be a pipe; this is the terminal of the session whatever is redirected.
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let group = tcgetpgrp(&terminal).ok()?;
        (group != getpgrp() && group.as_raw() > 0).then_some(Self { terminal, group })
    }

    /// Only from the foreground: after `bg` the terminal stays with the shell.
    pub(super) fn restore(&self) {
        if tcgetpgrp(&self.terminal) == Ok(getpgrp()) {
            // The group may be gone; then there is nobody to give it to.
            let _gone = tcsetpgrp(&self.terminal, self.group);
        }
    }
}

//! Standing by again: this program starts itself anew, in the same process.
//!
//! A guard must be forked from a process without threads, and this one has some by now. So it executes itself: the process
//! stays the same for whoever watches it (a service manager, a shell, a terminal), and everything else begins afresh. A term
//! that was over at once is counted, so that a command which cannot run does not run all the time.

use std::{
    ffi::{CString, OsString},
    io,
    os::unix::ffi::OsStringExt as _,
    time::Duration,
};

use nix::{sys::signal::SigSet, unistd::execve};

use super::{Note, Outcome, Restart, Verdict};

/// How many terms in a row were short.
pub(super) const VARIABLE: &str = "LEASEHOLD_SHORT_TERMS";
/// A term that took less is short (ours: whatever starts in earnest takes longer to fail).
const SHORT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What must be put back before this program starts itself anew. To be taken before anything else.
#[derive(Debug)]
pub(crate) struct Origin {
    mask: SigSet,
    /// How many terms in a row were short, this one not counted.
    short: u32,
}

impl Origin {
    /// Of this process.
    pub(crate) fn note() -> Self {
        let short =
            crate::settings::variable(VARIABLE).and_then(|text| text.into_string().ok()?.parse().ok());
        Self {
            mask: SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty()),
            short: short.unwrap_or(0),
        }
    }

    /// How long to wait before claiming: the holder before may have been this very program, ending at once each time.
    pub(crate) fn pause(&self) -> Duration {
        match self.short.checked_sub(1) {
            None => Duration::ZERO,
            Some(more) => FIRST_PAUSE.saturating_mul(1 << more.min(16)).min(LONGEST_PAUSE),
        }
    }

    /// Starts this program anew, after a term of this length. Returns only if that fails.
    pub(crate) fn execute(&self, term: Duration) -> io::Error {
        let short = if term < SHORT { self.short.saturating_add(1) } else { 0 };
        match self.try_execute(short) {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    fn try_execute(&self, short: u32) -> io::Result<std::convert::Infallible> {
        let text = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::other);
        let arguments: Vec<CString> = std::env::args_os().map(text).collect::<io::Result<_>>()?;
        let kept = std::env::vars_os().filter(|(name, _)| name != VARIABLE);
        let own = (OsString::from(VARIABLE), OsString::from(short.to_string()));
        let assignment = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            text(name)
        };
        let environment: Vec<CString> = kept.chain([own]).map(assignment).collect::<io::Result<_>>()?;
        // Signals that wait are kept for the new program; one that comes in between ends this one, which holds nothing.
        self.mask.thread_set_mask()?;
        Ok(execve(c"/proc/self/exe", &arguments, &environment)?)
    }
}

impl Restart {
    /// True when another term follows this one.
    pub(crate) fn follows(self, outcome: &Outcome) -> bool {
        let stuck = outcome.notes.iter().any(|note| matches!(note, Note::Unkillable(_)));
        let wanted = match &outcome.verdict {
            Verdict::Lost(_) => self != Self::Never,
            Verdict::Command(_) => self == Self::Always,
            _ => false,
        };
        wanted && !stuck && !outcome.asked_to_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_terms_in_a_row_are_followed_by_longer_pauses() {
        let pause = |short| Origin { mask: SigSet::empty(), short }.pause().as_millis();
        assert_eq!([0, 1, 2, 3, 8, 9, 1_000].map(pause), [0, 250, 500, 1_000, 30_000, 30_000, 30_000]);
    }
}

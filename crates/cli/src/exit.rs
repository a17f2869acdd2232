//! The exit codes: a contract that scripts rely on. The table in `docs/cli.md` is compared with this file by a test.

use leasehold::Kind;
use nix::sys::signal::Signal;

use crate::supervise::Status;

/// How this program ends. `run` passes its child's own code on instead, unchanged.
///
/// The numbers follow `sysexits.h` where it has a fitting one, and stay clear of 126, 127 and 128+n, which belong to
/// programs that could not be started or were ended by a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// 0: done; for `check`: still yours.
    Done,
    /// 1: the coordinator is not fit to be trusted (`doctor`), it broke a promise (`verify`), or the TTL is not long enough
    /// (`ttl --check`).
    Unfit,
    /// 2: `verify` found nothing wrong, and too little to say that nothing is.
    Inconclusive,
    /// 3: `verify` could not run, or could not read the history.
    NotRun,
    /// 64: the words, the configuration or a value are wrong, or this engine cannot do it. Nothing was done.
    Usage,
    /// 69: the coordinator cannot be reached. Certainly no effect.
    Unavailable,
    /// 70: the coordinator broke an invariant (a damaged store, a token that went back). Stop and look.
    Corrupt,
    /// 74: it was done, but the result could not be written to the standard output. `acquire` gives the lease back.
    Unwritten,
    /// 75: not granted within the wait: held by another, others wait in front, quarantine, or too late.
    NotGranted,
    /// 77: the coordinator refuses this user.
    Denied,
    /// 79: the lease is not yours (any more).
    NotHeld,
    /// 80: nobody knows whether it took effect.
    Unknown,
    /// 128+n: ended by signal n while it waited; the claim was taken back.
    Interrupted(Signal),
    /// 126 or 127: the command of `run` could not be started.
    NotStarted(u8),
    /// The command of `run` ended, and this program ends as it did.
    Command(Status),
    /// What `-E` says instead of a number of our own.
    Moved(u8),
}

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Unfit => 1,
            Self::Inconclusive => 2,
            Self::NotRun => 3,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Corrupt => 70,
            Self::Unwritten => 74,
            Self::NotGranted => 75,
            Self::Denied => 77,
            Self::NotHeld => 79,
            Self::Unknown => 80,
            // Signals are 1 … 64.
            Self::Interrupted(signal) => 128 + u8::try_from(signal as i32).unwrap_or(0),
            Self::NotStarted(code) | Self::Moved(code) => code,
            Self::Command(Status::Code(code)) => u8::try_from(code).unwrap_or(u8::MAX),
            Self::Command(Status::Signal(signal)) => 128 + u8::try_from(signal).unwrap_or(0),
        }
    }
}

impl Exit {
    /// True for the numbers that `-E` moves: those that say something about the lease, and not about the command.
    pub(crate) fn is_ours(self) -> bool {
        !matches!(
            self,
            Self::Done
                | Self::Unfit
                | Self::Inconclusive
                | Self::NotRun
                | Self::Interrupted(_)
                | Self::NotStarted(_)
                | Self::Command(_)
        )
    }
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Unavailable => Self::Unavailable,
            Kind::Denied => Self::Denied,
            Kind::Unsupported | Kind::Invalid => Self::Usage,
            Kind::Corrupt => Self::Corrupt,
            // A kind that this file does not know promises nothing either.
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Exit; 12] = [
        Exit::Done,
        Exit::Unfit,
        Exit::Inconclusive,
        Exit::NotRun,
        Exit::Usage,
        Exit::Unavailable,
        Exit::Corrupt,
        Exit::Unwritten,
        Exit::NotGranted,
        Exit::Denied,
        Exit::NotHeld,
        Exit::Unknown,
    ];

    #[test]
    fn every_exit_code_is_documented() {
        let page = include_str!("../../../docs/cli.md");
        for exit in ALL {
            assert!(page.contains(&format!("\n| {} |", exit.code())), "docs/cli.md has no row for {exit:?}");
        }
        assert!(page.contains("\n| 128+n |"));
    }

    #[test]
    fn a_signal_has_the_code_that_shells_give_it() {
        assert_eq!(Exit::Interrupted(Signal::SIGINT).code(), 130);
        assert_eq!(Exit::Interrupted(Signal::SIGTERM).code(), 143);
    }

    #[test]
    fn unknown_is_its_own_code() {
        assert_eq!(Exit::from(Kind::Unknown).code(), 80);
        assert_eq!(Exit::from(Kind::Unavailable).code(), 69);
    }
}

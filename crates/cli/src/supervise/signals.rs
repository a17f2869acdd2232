//! Which signals are passed on, and how to tell where one came from.
//!
//! A signal must reach the command exactly once. The terminal gives its signals to the whole process group, so
//! the command has them already; a `kill` aimed at the front reaches only the front, so it is passed on.

use super::event::Origin;
use super::sys::signal::{Received, SignalSet, is_ignored};

/// Everything a process can be sent on purpose. Not here: KILL and STOP, which cannot be caught; CHLD, which is
/// about our own children; ILL, TRAP, BUS, FPE, SEGV and SYS, which report a fault of the receiver itself.
const CLASSIC: [i32; 22] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGURG,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGWINCH,
    libc::SIGIO,
    libc::SIGPWR,
];

/// The signals that a terminal makes, each for a whole process group.
const FROM_TERMINAL: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
    libc::SIGCONT,
];

/// The forwardable signals that are not ignored. What our parent ignored (`nohup`, a shell's `&`) stays ignored
/// by us and by the command: then there is nothing to pass on.
pub(super) fn forwardable() -> SignalSet {
    let mut set = SignalSet::empty();
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    for signo in CLASSIC.into_iter().chain(real_time) {
        // The Rust runtime ignores SIGPIPE in every program, so what our parent wanted is not known.
        if signo == libc::SIGPIPE || !is_ignored(signo) {
            set.add(signo);
        }
    }
    set
}

/// Where a signal came from. `guard` is the guard's pid, `leads_session` whether the front leads its session.
pub(super) fn origin(signal: &Received, guard: i32, leads_session: bool) -> Origin {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    if signal.code == libc::SI_KERNEL {
        return match signal.signo {
            // A hang-up of the terminal goes to the leader of the session alone (the kernel tells the group
            // only after the leader's death), so the command does not have it.
            libc::SIGHUP | libc::SIGCONT if leads_session => Origin::Outside,
            libc::SIGXCPU | libc::SIGXFSZ => Origin::Own,
            signo if FROM_TERMINAL.contains(&signo) => Origin::Terminal,
            // An alarm that was set before we were executed was meant for the command.
            _ => Origin::Outside,
        };
    }
    match signal.sender {
        sender if sender == own => Origin::Own,
        sender if sender == guard => Origin::Guard,
        sender if descends(sender, guard) => Origin::Tree,
        _ => Origin::Outside,
    }
}

/// Is `pid` a descendant of `ancestor`? A process that has ended already is nobody's.
fn descends(pid: i32, ancestor: i32) -> bool {
    let mut pid = pid;
    // Deeper than any real tree; a bound, because the tree changes while we climb it.
    for _ in 0..256 {
        match parent(pid) {
            Some(parent) if parent == ancestor => return true,
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

fn parent(pid: i32) -> Option<i32> {
    super::tree::Stat::read(pid).map(|stat| stat.parent)
}

/// The bit of a signal in the mask that the guard sends with its first news.
pub(super) fn bit(signo: i32) -> u64 {
    u32::try_from(signo - 1).ok().and_then(|shift| 1_u64.checked_shl(shift)).unwrap_or(0)
}

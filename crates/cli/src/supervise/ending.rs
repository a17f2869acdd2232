//! How the front itself stops and ends: as the command did, so that a shell sees no difference.

use std::io;

use nix::sys::prctl::set_dumpable;

use super::event::Status;
use super::sys::signal::take_default_effect;

/// Ends this process as the command ended: with its code, or by the same signal.
///
/// A shell stops its loop on Ctrl-C only if the command *died* of SIGINT, so `exit(130)` would not do. No second
/// core is dumped. The init of a container cannot die of a signal; it exits with 128+n, as a shell would say it.
pub fn die_like(status: Status) -> ! {
    match status {
        Status::Code(code) => std::process::exit(code),
        Status::Signal(signal) => {
            // Better two cores than none, should this fail.
            let _stays_dumpable = set_dumpable(false);
            let _survived = take_default_effect(signal);
            std::process::exit(128 + signal)
        }
    }
}

/// Stops this process by a stop signal, as its default effect does, and returns once it is continued.
///
/// Returns at once where a process cannot stop: in an orphaned group, or as the init of a container.
pub fn stop_self(signal: i32) -> io::Result<()> {
    take_default_effect(signal)
}

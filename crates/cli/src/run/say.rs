//! What the guard itself must say, when no front is left to say it.

use std::io::Write as _;

use crate::supervise::Process;

/// Names processes as `sleep (123), cat (124)`.
pub(crate) fn names(processes: &[Process]) -> String {
    let name = |process: &Process| {
        if process.pid == 0 {
            return "a process that cannot be seen".to_owned();
        }
        let name: String = process.name.chars().flat_map(char::escape_debug).collect();
        format!("{name} ({})", process.pid)
    };
    processes.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Says which processes survived everything.
pub(super) fn unkillable(left: &[Process]) {
    // Nobody is left to hear that this could not be written.
    let _ = writeln!(
        std::io::stderr(),
        "leasehold: could not end {}; the lease is not released and runs out by itself",
        names(left)
    );
}

//! Letting go of the command's standard input and output.
//!
//! In `producer | leasehold run a -- b | consumer` the pipes belong to `b`. As long as the front or the guard hold
//! them too, a producer does not learn that `b` stopped reading, and a consumer does not see the end when `b`
//! closes its output and works on. Standard error is kept: there may be something to say.

use std::fs::OpenOptions;
use std::io;

use nix::unistd::{dup2_stdin, dup2_stdout};

/// Points standard input and output of this process at `/dev/null`.
pub fn leave_stdio() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(())
}

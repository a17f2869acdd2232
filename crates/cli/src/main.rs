//! The program `leasehold`. Everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold_cli::main()
}

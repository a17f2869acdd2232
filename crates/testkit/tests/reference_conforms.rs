//! The suite passes on the reference, in full: every hook is there, so no case may be `partly`.

use std::process::ExitCode;

use leasehold_testkit::{reference::Reference, suite};

fn main() -> ExitCode {
    suite::run(vec![Box::new(Reference::new())])
}

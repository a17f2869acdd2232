//! `verify check`: judges a history again, offline.

use std::{fs::File, io::Read as _, path::Path};

use leasehold_testkit::check::{Event, History};

use super::conclude;
use crate::{
    args::VerifyCheck,
    exit::Exit,
    failure::Failure,
    output::Output,
    verify::{Ledger, Recipe, Report, Verdict},
};

/// A larger history does not fit into the memory of a small machine (ours: some days of a run).
const MOST_BYTES: u64 = 4 << 30;

pub(crate) fn run(args: &VerifyCheck, output: Output) -> Result<Exit, Failure> {
    let events = read(&args.file).map_err(|what| {
        Failure::error(Exit::NotRun, "history", what)
            .advise("give the file that `leasehold verify --history FILE` has written")
    })?;
    let mut ledger = Ledger::default();
    let events = ledger.judge(events);
    let verdict = Verdict::of(&ledger, Recipe::Leases);
    conclude(&Report::of_history(ledger, verdict), &events, args.html.as_deref(), output)
}

fn read(path: &Path) -> Result<Vec<Event>, String> {
    let unreadable = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("{} is larger than 4 GiB", path.display()));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("{} is no text", path.display()))?;
    History::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

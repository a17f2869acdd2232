//! The library's events as lines: JSON for machines, text for people.
//!
//! `--log json` or `text`, else `$LEASEHOLD_LOG`; to the standard error, or appended to `--log-file`, else
//! `$LEASEHOLD_LOG_FILE`. What the events are is in `docs/logs.md`. A line is written at once and whole, so that several
//! processes may share a file.

mod line;
mod subscriber;

use std::{fs::File, io, path::PathBuf};

use crate::{
    args::Global,
    failure::Failure,
    settings::{text, variable},
};
use subscriber::Lines;

/// How lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Json,
    Text,
}

/// Where lines go.
#[derive(Debug)]
enum Sink {
    StandardError,
    File(File),
}

/// Starts to log, when that was asked for. Before anything that could have something to tell.
pub(crate) fn start(global: &Global) -> Result<(), Failure> {
    let named = match &global.log {
        Some(word) => Some(("--log", word.clone())),
        None => text("LEASEHOLD_LOG", &variable)?.map(|word| ("LEASEHOLD_LOG", word)),
    };
    let file = global.log_file.clone().or_else(|| variable("LEASEHOLD_LOG_FILE").map(PathBuf::from));
    let format = match &named {
        None if file.is_none() => return Ok(()),
        // Whoever names a file wants lines in it.
        None => Format::Json,
        Some((_, word)) if word == "json" => Format::Json,
        Some((_, word)) if word == "text" => Format::Text,
        Some((origin, word)) => {
            return Err(Failure::usage(format!("{origin}: {word} is no format; write json or text")));
        }
    };
    let sink = match file {
        None => Sink::StandardError,
        Some(path) => {
            let opened = File::options().create(true).append(true).open(&path);
            Sink::File(opened.map_err(|error| {
                Failure::usage(format!("the log {} cannot be opened: {error}", path.display()))
            })?)
        }
    };
    // Only the second in one process could fail, and there is none.
    let _ = tracing::subscriber::set_global_default(Lines::new(format, sink, trace_id()));
    Ok(())
}

/// The trace that this process is part of, as the W3C's header says it: `00-<trace id>-<span id>-<flags>`.
fn trace_id() -> Option<String> {
    let parent = variable("TRACEPARENT")?.into_string().ok()?;
    let id = parent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}

impl Sink {
    fn write(&self, line: &str) {
        use io::Write as _;
        // A log that cannot be written must not end what it tells of.
        let _ = match self {
            Self::StandardError => io::stderr().lock().write_all(line.as_bytes()),
            Self::File(file) => (&*file).write_all(line.as_bytes()),
        };
    }
}

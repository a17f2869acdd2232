//! What the workers have written so far, read as it grows; and what each of them is doing just now.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use leasehold_testkit::check::{Event, History, What};

use super::plan::journal;

/// Where a worker is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Doing {
    /// Between two turns, or waiting for one.
    #[default]
    Else,
    /// Holding this resource under this token.
    Holding(String, u64),
}

#[derive(Debug, Default)]
struct Tail {
    read: u64,
    doing: Doing,
}

/// The histories of a round.
#[derive(Debug)]
pub(super) struct Tails {
    folder: PathBuf,
    of_worker: HashMap<String, Tail>,
    /// The highest token that the fenced register of each resource has let in.
    written: HashMap<String, u64>,
    events: Vec<Event>,
}

impl Tails {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, of_worker: HashMap::new(), written: HashMap::new(), events: Vec::new() }
    }

    /// Reads what is new.
    pub(super) fn read<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> io::Result<()> {
        for name in names {
            let tail = self.of_worker.entry(name.to_owned()).or_default();
            let text = match grown(&journal(&self.folder, name), tail.read) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // A line that is not whole yet is read the next time.
            let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
            tail.read += whole.len() as u64;
            for event in History::parse(whole).map_err(io::Error::other)? {
                tail.doing = next(std::mem::take(&mut tail.doing), &event);
                if let What::Write { token, .. } = event.what {
                    let highest = self.written.entry(event.resource.clone()).or_default();
                    *highest = (*highest).max(token.get());
                }
                self.events.push(event);
            }
        }
        Ok(())
    }

    /// What a worker is doing, as far as it has said.
    pub(super) fn doing(&self, name: &str) -> &Doing {
        self.of_worker.get(name).map_or(&Doing::Else, |tail| &tail.doing)
    }

    /// True once a later holder than `token` has written to this resource, with or without a fence.
    pub(super) fn is_superseded(&self, resource: &str, token: u64) -> bool {
        self.written.get(resource).is_some_and(|written| *written > token)
    }

    /// Everything that was read, once; the files are about to be emptied.
    pub(super) fn take(&mut self) -> Vec<Event> {
        self.of_worker.clear();
        std::mem::take(&mut self.events)
    }
}

fn grown(path: &std::path::Path, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn next(doing: Doing, event: &Event) -> Doing {
    match event.what {
        What::Granted { token, .. } => Doing::Holding(event.resource.clone(), token.get()),
        What::Attempt | What::GaveUp | What::Released { .. } | What::Lost { .. } => Doing::Else,
        _ => doing,
    }
}

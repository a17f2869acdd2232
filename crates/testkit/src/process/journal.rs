//! Where a child writes what it sees.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use leasehold_core::LeaseId;

use crate::check::{Event, What};

/// A history file of one process. Every event is one write at the end of the file: a process killed right after it leaves
/// it whole.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    process: String,
}

impl Journal {
    /// The environment variable in which a fleet tells a child where to write.
    pub const VARIABLE: &'static str = "LEASEHOLD_TESTKIT_JOURNAL";

    /// Opens a history file; `process` names the writer in it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: impl AsRef<Path>, process: &str) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(Self { file, path, process: process.to_owned() })
    }

    /// Opens the file that the fleet chose, under the child's name and process id.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] outside a fleet; and when the file cannot be opened.
    pub fn of_this_process() -> io::Result<Self> {
        let path = std::env::var_os(Self::VARIABLE).ok_or(io::ErrorKind::NotFound)?;
        let name =
            Path::new(&path).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Self::open(&path, &format!("{name}:{}", std::process::id()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an event of this moment.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&mut self, resource: &str, lease_id: LeaseId, what: What) -> io::Result<()> {
        self.write(&Event::now(&self.process, resource, lease_id, what))
    }

    /// Writes an event of an earlier moment: when a question was about to be asked whose answer is known by now. A
    /// process that was paused in between was right at that moment, and at no later one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_at(&mut self, at_ns: u64, resource: &str, lease_id: LeaseId, what: What) -> io::Result<()> {
        self.write(&Event {
            at_ns,
            process: self.process.clone(),
            resource: resource.to_owned(),
            lease_id,
            what,
        })
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        self.file.write_all(event.line()?.as_bytes())
    }
}

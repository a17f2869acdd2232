//! Children that work in one folder, and what they wrote together.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{Child, Journal, Spawn, TimedOut};
use crate::check::{History, Unreadable};

/// A folder and its children. Dropping it kills those that still run; the folder is the caller's.
#[derive(Debug)]
pub struct Fleet {
    folder: PathBuf,
    children: Vec<Arc<Child>>,
}

impl Fleet {
    /// The environment variable that tells a child who started it, for [`end_with_parent`](super::end_with_parent).
    pub const STARTER: &'static str = "LEASEHOLD_TESTKIT_STARTER";

    /// A fleet in `folder`, which exists.
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().to_owned(), children: Vec::new() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The children started so far.
    pub fn children(&self) -> &[Arc<Child>] {
        &self.children
    }

    /// Starts a child. It is told where to write its history, and who its starter is. Names are unique in a fleet: files
    /// are called by them.
    ///
    /// # Errors
    /// When the name was used before, or the program cannot be started.
    pub fn start(&mut self, name: &str, spawn: Spawn) -> io::Result<Arc<Child>> {
        if self.children.iter().any(|child| child.name() == name) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("there is a child called {name}"),
            ));
        }
        let child = spawn
            .env(Journal::VARIABLE, self.folder.join(format!("{name}.jsonl")))
            .env(Self::STARTER, std::process::id().to_string())
            .start(name, &self.folder)?;
        let child = Arc::new(child);
        self.children.push(Arc::clone(&child));
        Ok(child)
    }

    /// Waits until all children have ended.
    ///
    /// # Errors
    /// [`TimedOut`], naming one that has not.
    pub fn wait_all(&self, limit: Duration) -> Result<(), TimedOut> {
        let since = crate::clock::Stopwatch::start();
        for child in &self.children {
            child.wait(limit.saturating_sub(since.elapsed()))?;
        }
        Ok(())
    }

    /// What all children have written so far, joined. Each `.jsonl` file of the folder is a history.
    ///
    /// # Errors
    /// [`Unreadable`] when one is no history.
    pub fn history(&self) -> Result<History, Unreadable> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(path);
            }
        }
        History::read(files)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Others may still hold a child; the fleet's end is the children's all the same. Nobody to tell when it fails.
        for child in &self.children {
            let _ = child.signal(super::Signal::SIGKILL);
        }
    }
}

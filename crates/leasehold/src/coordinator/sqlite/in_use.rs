//! Which databases this process has open, so that nobody opens one of them by hand.
//!
//! SQLite locks with POSIX record locks. They belong to a process and its file, not to a descriptor: whenever the process
//! closes *any* descriptor of a file, the kernel drops all its locks on it. SQLite minds that among its own connections. A
//! look at the header by other means would take the lock from under a connection, and the next program that closes the file
//! believes that it is the last: it deletes the log that we write to.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::{LazyLock, Mutex},
};

use super::place::{FileId, file_id, id_at};
use crate::sync::lock;

/// How many connections there are to each file.
static IN_USE: LazyLock<Mutex<HashMap<FileId, usize>>> = LazyLock::new(Mutex::default);

/// The mark on a file that has a connection: made before the connection, dropped after it.
#[derive(Debug)]
pub(super) struct InUse(FileId);

impl InUse {
    /// Marks the file at `path`.
    pub(super) fn mark(path: &Path) -> io::Result<Self> {
        let mut in_use = lock(&IN_USE);
        let id = id_at(path)?;
        *in_use.entry(id).or_default() += 1;
        Ok(Self(id))
    }

    /// True while the path points at the marked file.
    pub(super) fn is_at(&self, path: &Path) -> io::Result<bool> {
        match id_at(path) {
            Ok(found) => Ok(found == self.0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut in_use = lock(&IN_USE);
        if let Some(count) = in_use.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&self.0);
            }
        }
    }
}

/// Reads the first bytes of a file, and how many there are. `None`: it is in use here, and has not been touched.
pub(super) fn read_head(path: &Path, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // Kept until the file is closed: nobody marks it meanwhile.
    let in_use = lock(&IN_USE);
    if in_use.contains_key(&id_at(path)?) {
        return Ok(None);
    }
    let file = File::open(path)?;
    if in_use.contains_key(&file_id(&file.metadata()?)) {
        // A file in use was moved here since we looked. Better a descriptor lost than its locks.
        std::mem::forget(file);
        return Ok(None);
    }
    let mut length = 0;
    while length < buffer.len() {
        match (&file).read(&mut buffer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(Some(length))
}

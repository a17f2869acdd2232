//! The lock file beside the database: the gate, the sign of life, and the place of the horizon.
//!
//! **The gate.** SQLite's own waiting is a lottery: with eight busy processes one may get through once in seconds. So
//! every writer first passes a gate of two locks: whoever waits for the second holds the first, and nobody overtakes
//! there, however quickly the last one comes back. These are POSIX record locks: a child that was forked in the middle of
//! a commit does not inherit them, and the kernel drops them with their process, however it dies. As they belong to a
//! process and vanish with the first descriptor closed, a process opens each lock file once, in a registry.
//!
//! **The sign of life.** Every process that has the database open keeps a shared `flock` on the file. A creator of a new
//! database that can have it alone knows that no live process works with an older one.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, MutexGuard, TryLockError, Weak},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};

use super::place::{FileId, file_id, id_at};
use crate::{clock, sync::lock};

/// The lock bytes. They lie far behind the horizon, which is read and written at the start of the file.
const NEXT: libc::off_t = 4_096;
const GATE: libc::off_t = 4_097;
/// How many bytes the two are: they lie side by side.
const BOTH: libc::off_t = 2;

/// How long the next in line looks before it sleeps: a commit takes 80-300 µs on what people put such files on.
const LOOK_US: u64 = 300;

type Registry = HashMap<FileId, Weak<Gate>>;

static OPEN: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

/// An open lock file.
#[derive(Debug)]
pub(super) struct Gate {
    file: File,
    path: PathBuf,
    /// Process locks do not exclude the coordinators of one process from one another; this does.
    turn: Mutex<()>,
    /// True while this process shows that it lives.
    alive: Mutex<bool>,
    /// The last field, so that it is dropped last.
    listed: Listed,
}

/// The entry of a gate in the registry. It goes when the file has been closed: until then nobody may open the same file
/// again, because closing it late would drop the locks of the next gate.
#[derive(Debug)]
struct Listed(FileId);

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&OPEN).remove(&self.0);
    }
}

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(super) struct Passage<'a> {
    gate: &'a Gate,
    _turn: MutexGuard<'a, ()>,
}

/// The lock file of a database: hidden, so that `rm leases.db*` does not take the memory of what was granted with it.
pub(super) fn path_for(database: &Path) -> PathBuf {
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    database.with_file_name(format!(".{name}-lock"))
}

impl Gate {
    /// Opens or makes the lock file of `database`, as private as the database is, or for the owner alone.
    pub(super) fn open(database: &Path) -> io::Result<Arc<Self>> {
        let path = path_for(database);
        // Looked up before opening: closing a second descriptor would drop the locks of the first.
        let at_path = || id_at(&path).ok();
        let (known, open) = look_up(lock(&OPEN), at_path);
        if let Some(gate) = known {
            return Ok(gate);
        }
        let file = open_like(&path, fs::metadata(database).ok().as_ref())?;
        let id = file_id(&file.metadata()?);
        // Once more, for what was opened: its number may be that of a removed file which is just being closed.
        let (known, mut open) = look_up(open, || Some(id));
        if let Some(gate) = known {
            // It was moved here since we looked. Better a descriptor lost than its locks.
            std::mem::forget(file);
            return Ok(gate);
        }
        let gate =
            Arc::new(Self { file, path, turn: Mutex::new(()), alive: Mutex::new(false), listed: Listed(id) });
        open.insert(id, Arc::downgrade(&gate));
        Ok(gate)
    }

    /// True while the lock file at the path is this one.
    pub(super) fn is_in_place(&self) -> bool {
        id_at(&self.path).is_ok_and(|found| found == self.listed.0)
    }

    /// Waits for the right to write. Certainly nothing has been changed when this fails.
    pub(super) fn pass(&self) -> io::Result<Passage<'_>> {
        let turn = lock(&self.turn);
        self.wait(NEXT)?;
        let passed = if self.comes_free()? { Ok(()) } else { self.wait(GATE) };
        self.unlock(NEXT);
        passed?;
        Ok(Passage { gate: self, _turn: turn })
    }

    /// Waits for the right to write, for as long as opening a file may take.
    pub(super) fn pass_soon(&self) -> io::Result<Passage<'_>> {
        patiently(|| self.try_pass())
    }

    /// The right to write, if it is to be had within about a commit.
    pub(super) fn try_pass(&self) -> io::Result<Option<Passage<'_>>> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        // Both locks, as those who wait take them: nobody who waits is overtaken. Mostly both are free, and are had at once.
        let mut passed = Ok(self.try_take(NEXT, BOTH)?);
        if !matches!(passed, Ok(true)) {
            if !self.try_take(NEXT, 1)? {
                return Ok(None);
            }
            passed = self.comes_free();
        }
        self.unlock(NEXT);
        Ok(passed?.then_some(Passage { gate: self, _turn: turn }))
    }

    fn try_take(&self, first: libc::off_t, count: libc::off_t) -> io::Result<bool> {
        match fcntl(&self.file, FcntlArg::F_SETLK(&record(libc::F_WRLCK, first, count))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES | Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Shows the sign of life, for as long as the gate is open. Whoever calls this has the database open: one that is about
    /// to make it must not, or those who start together would take one another for users of an older one.
    pub(super) fn show_life(&self) -> io::Result<()> {
        let mut alive = lock(&self.alive);
        if !*alive {
            patiently(|| taken(self.file.try_lock_shared()))?;
            *alive = true;
        }
        Ok(())
    }

    /// True when no other process has the database of this lock file open. Only asked by a creator, who has passed.
    pub(super) fn is_alone(&self, _passage: &Passage<'_>) -> io::Result<bool> {
        let alive = lock(&self.alive);
        let alone = patiently(|| match taken(self.file.try_lock())? {
            Some(()) => Ok(Some(true)),
            // Shared, there are others who live; not even shared, a stranger locks our file, which says nothing.
            None => Ok(taken(self.file.try_lock_shared())?.map(|()| false)),
        });
        // Converting a flock drops it for a moment; a creator that slips in between waits at the gate.
        if *alive {
            patiently(|| taken(self.file.try_lock_shared()))?;
        } else {
            self.file.unlock()?;
        }
        alone
    }

    /// Looks whether the gate comes free within about a commit. Only the one who is next looks, giving way to others: being
    /// woken by the kernel instead would leave the disk idle for a good part of a commit each time.
    fn comes_free(&self) -> io::Result<bool> {
        let until_us = clock::boot_us().saturating_add(LOOK_US);
        while !self.try_take(GATE, 1)? {
            if clock::boot_us() >= until_us {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(true)
    }

    fn wait(&self, byte: libc::off_t) -> io::Result<()> {
        loop {
            match fcntl(&self.file, FcntlArg::F_SETLKW(&record(libc::F_WRLCK, byte, 1))) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                // The kernel looks for cycles among processes, and sees one where two threads of each wait for
                // different files. There is none: try again shortly.
                Err(Errno::EDEADLK) => std::thread::park_timeout(Duration::from_millis(1)),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn unlock(&self, byte: libc::off_t) {
        if let Err(errno) = fcntl(&self.file, FcntlArg::F_SETLK(&record(libc::F_UNLCK, byte, 1))) {
            tracing::error!(path = %self.path.display(), %errno, "cannot unlock");
        }
    }

    /// Reads from the start of the file. Fewer bytes than asked where it is short.
    pub(super) fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, 0)
    }

    /// Writes to the start of the file.
    pub(super) fn write_start(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, 0)
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.gate.unlock(GATE);
    }
}

/// The open gate of a file. One that another thread is closing is waited for, until there is none.
fn look_up(
    mut open: MutexGuard<'static, Registry>,
    file: impl Fn() -> Option<FileId>,
) -> (Option<Arc<Gate>>, MutexGuard<'static, Registry>) {
    loop {
        let Some(known) = file().and_then(|id| open.get(&id)) else { return (None, open) };
        if let Some(gate) = known.upgrade() {
            return (Some(gate), open);
        }
        drop(open);
        std::thread::yield_now();
        open = lock(&OPEN);
    }
}

/// Nothing when another has the lock.
fn taken(tried: Result<(), fs::TryLockError>) -> io::Result<Option<()>> {
    match tried {
        Ok(()) => Ok(Some(())),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the constants of libc fit the fields of libc")]
fn record(kind: libc::c_int, first: libc::off_t, count: libc::off_t) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: first,
        l_len: count,
        l_pid: 0,
    }
}

/// Opening a file may take this long; then whoever keeps the lock file is stopped, not slow.
const OPEN_LIMIT_US: u64 = 5_000_000;

/// Tries until there is something. Only opening waits so, because nobody may wait for ever to be told that a file cannot be
/// opened, and the kernel's own waiting has no limit.
fn patiently<T>(mut attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let until_us = clock::boot_us().saturating_add(OPEN_LIMIT_US);
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if clock::boot_us() >= until_us {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Opens `path` for reading and writing; when it has to be made, with the mode and owner of `model`.
fn open_like(path: &Path, model: Option<&Metadata>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let mode = model.map_or(0o600, |model| model.mode() & 0o666);
    let file = match options.create_new(true).mode(mode).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return OpenOptions::new().read(true).write(true).open(path);
        }
        made => made?,
    };
    if let Some(model) = model.filter(|_| nix::unistd::geteuid().is_root()) {
        fchown(&file, Some(model.uid()), Some(model.gid()))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_is_private_hidden_and_opened_once() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("leases.db");
        let gate = Gate::open(&database).unwrap();
        assert_eq!(std::fs::metadata(path_for(&database)).unwrap().mode() & 0o777, 0o600);
        assert!(path_for(&database).file_name().unwrap().to_str().unwrap().starts_with('.'));
        assert!(Arc::ptr_eq(&gate, &Gate::open(&database).unwrap()));
        assert!(gate.is_in_place());
        let passage = gate.pass().unwrap();
        assert!(gate.is_alone(&passage).unwrap());
        let other = File::open(path_for(&database)).unwrap();
        other.lock_shared().unwrap();
        assert!(!gate.is_alone(&passage).unwrap());
        other.try_lock().expect("looking around is no sign of life");
        other.unlock().unwrap();
        gate.show_life().unwrap();
        assert!(gate.is_alone(&passage).unwrap());
        assert!(other.try_lock().is_err(), "life goes on after looking around");
        assert!(gate.try_pass().unwrap().is_none(), "one turn at a time within a process too");
        drop(passage);
        drop(gate.try_pass().unwrap().expect("the gate is free"));
        std::fs::remove_file(path_for(&database)).unwrap();
        assert!(!gate.is_in_place());
    }
    /// Coordinators of one process come and go, each in its own thread.
    #[test]
    fn a_gate_is_opened_again_only_once_its_file_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("leases.db");
        let gate = Gate::open(&database).unwrap();
        gate.show_life().unwrap();
        let id = gate.listed.0;
        let stranger = File::open(path_for(&database)).unwrap();
        assert!(stranger.try_lock().is_err(), "locked through the gate");

        let open = lock(&OPEN);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(gate));
            while stranger.try_lock().is_err() {
                std::thread::yield_now();
            }
            assert!(open.get(&id).is_some_and(|gate| gate.strong_count() == 0), "closed, and still listed");
            drop(open);
        });
        assert!(!lock(&OPEN).contains_key(&id));
        stranger.unlock().unwrap();

        lock(&OPEN).insert(id, Weak::new());
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| Gate::open(&database).unwrap());
            std::thread::park_timeout(Duration::from_millis(50));
            assert!(!opening.is_finished(), "it waits for the close");
            lock(&OPEN).remove(&id);
            assert!(opening.join().unwrap().is_in_place());
        });
    }
}

//! A file for the textfile collector of the node exporter: what short runs count adds up there.
//!
//! Many runs, one after the other or at the same time, share one file. Each adds what it has counted since it last wrote,
//! under a lock beside the file, and puts the new file in the place of the old one in one step: a reader never sees half a
//! file, and a counter never goes back. Gauges are left out: they would outlive the process that they are about.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use super::{registry::Registry, snapshot::Snapshot, text};

/// Between two writes (ours: as often as a collector is usually scraped).
const EVERY: Duration = Duration::from_secs(15);

/// How often a lock that another has is tried for: a second in all. A writer that was stopped must not keep others from
/// ending.
const ATTEMPTS: u32 = 50;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Writes now and then, and for the last time when it is dropped.
#[derive(Debug)]
pub(super) struct Writer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Writes once, so that a file that cannot be written is told at once, and then in the background.
    pub(super) fn start(path: &Path, registry: Arc<Registry>) -> io::Result<Self> {
        let mut book = Book { path: path.to_owned(), registry, written: Snapshot::default() };
        book.write()?;
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("leasehold-textfile".to_owned()).spawn(move || {
            loop {
                let over = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                // A disk that is full now may not be the next time; what was not written then is written with it.
                let _ = book.write();
                if over {
                    return;
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Book {
    path: PathBuf,
    registry: Arc<Registry>,
    /// What the file has of this process already.
    written: Snapshot,
}

impl Book {
    fn write(&mut self) -> io::Result<()> {
        let now = self.registry.snapshot().counting();
        let _lock = self.lock()?;
        let mut total = match fs::read_to_string(&self.path) {
            Ok(text) => text::read(&text).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Snapshot::default(),
            Err(error) => return Err(error),
        };
        total.add_since(&self.written, &now);
        let fresh = beside(&self.path, "new");
        fs::write(&fresh, text::write(&total))?;
        fs::rename(&fresh, &self.path)?;
        self.written = now;
        Ok(())
    }

    /// The lock of everybody who writes this file. The collector reads `*.prom` and nothing else.
    fn lock(&self) -> io::Result<Flock<File>> {
        let mut file = File::options().create(true).append(true).open(beside(&self.path, "lock"))?;
        for _ in 0..ATTEMPTS {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((unlocked, Errno::EWOULDBLOCK)) => file = unlocked,
                Err((_, errno)) => return Err(errno.into()),
            }
            thread::park_timeout(BETWEEN_ATTEMPTS);
        }
        Err(io::Error::other("another process keeps its lock"))
    }
}

/// `metrics.prom` → `metrics.prom.lock`.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(what);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use leasehold::metric;
    use metrics::{Key, Level, Metadata, Recorder as _};

    use super::*;
    use crate::telemetry::{registry::Installed, snapshot::Figure};

    fn run_once(path: &Path, more: u64) {
        let registry = Arc::new(Registry::default());
        let installed = Installed(registry.clone());
        let writer = Writer::start(path, registry).unwrap();
        let metadata = Metadata::new("", Level::INFO, None);
        installed.register_counter(&Key::from_name(metric::GRANTS), &metadata).increment(more);
        installed.register_gauge(&Key::from_name(metric::HELD), &metadata).increment(1.0);
        installed.register_histogram(&Key::from_name(metric::WAIT), &metadata).record(0.3);
        drop(writer);
    }

    #[test]
    fn runs_at_the_same_time_and_one_after_the_other_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leasehold.prom");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| run_once(&path, 2));
            }
        });
        run_once(&path, 1);
        let found = text::read(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(found.0[metric::GRANTS][""], Figure::Counter(17));
        assert!(!found.0.contains_key(metric::HELD), "a gauge would outlive its process");
        let Figure::Histogram { buckets, .. } = &found.0[metric::WAIT][""] else { panic!() };
        assert_eq!(buckets.iter().sum::<u64>(), 9);
    }

    #[test]
    fn a_file_of_somebody_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.prom");
        fs::write(&path, "node_load1 0.5\n").unwrap();
        assert!(Writer::start(&path, Arc::default()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "node_load1 0.5\n");
    }
}

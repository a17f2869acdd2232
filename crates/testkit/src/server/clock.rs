//! A server's wall clock, to be stepped or stopped by a test.
//!
//! A small library is preloaded into the server and adds what a file says to every reading of the wall clock, or answers with
//! the moment at which the file says it stands; clocks that count from boot stay as they are. It is compiled by the first test
//! that needs it.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use super::find_program;
use crate::process::Spawn;

const SHIM: &str = include_str!("clock_shim.c");

/// The wall clock of one server.
#[derive(Debug)]
pub struct ServerClock {
    path: PathBuf,
    file: File,
    shift_ns: AtomicI64,
}

impl ServerClock {
    /// A clock that shows what the machine's does, kept in a file of `folder`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join("clock");
        let file = File::create(&path)?;
        file.write_all_at(&[0; 32], 0)?;
        Ok(Self { path, file, shift_ns: AtomicI64::new(0) })
    }

    /// The same program under this clock.
    ///
    /// # Errors
    /// When the library cannot be compiled (a C compiler is missing).
    pub fn apply(&self, spawn: Spawn) -> io::Result<Spawn> {
        Ok(spawn.env("LD_PRELOAD", library()?).env("LEASEHOLD_CLOCK_FILE", &self.path))
    }

    /// Sets the clock forward.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn forward(&self, by: Duration) -> io::Result<()> {
        self.step(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX))
    }

    /// Sets the clock back.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn back(&self, by: Duration) -> io::Result<()> {
        self.step(-i64::try_from(by.as_nanos()).unwrap_or(i64::MAX))
    }

    /// Stops the clock at this moment, so many nanoseconds since 1970: what a server then does within one such moment is answered
    /// for that moment to the microsecond, however long it takes. 0 lets it go on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn stand(&self, unix_ns: u64) -> io::Result<()> {
        self.file.write_all_at(&i64::try_from(unix_ns).unwrap_or(i64::MAX).to_ne_bytes(), 8)
    }

    /// Has the clock gain so many parts per million from now on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn gain(&self, ppm: i64) -> io::Result<()> {
        let now_ns = crate::clock::unix_us().saturating_mul(1_000);
        self.file.write_all_at(&i64::try_from(now_ns).unwrap_or(i64::MAX).to_ne_bytes(), 24)?;
        self.file.write_all_at(&ppm.to_ne_bytes(), 16)
    }

    fn step(&self, by_ns: i64) -> io::Result<()> {
        let shift = self.shift_ns.fetch_add(by_ns, Ordering::SeqCst) + by_ns;
        self.file.write_all_at(&shift.to_ne_bytes(), 0)
    }
}

/// The compiled library. It stays where temporary files are, named by its source: the next run of a test finds it there.
fn library() -> io::Result<&'static Path> {
    static LIBRARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| compile().map_err(|error| error.to_string()));
    library.as_deref().map_err(|error| io::Error::other(error.clone()))
}

fn compile() -> io::Result<PathBuf> {
    let hash = SHIM.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let library = std::env::temp_dir().join(format!("leasehold-clock-shim-{hash:016x}.so"));
    if library.is_file() {
        return Ok(library);
    }
    // Made aside and put in its place whole: another test may be looking for it.
    let folder = super::folder("clock")?;
    let (source, made) = (folder.path().join("clock_shim.c"), folder.path().join("clock_shim.so"));
    std::fs::write(&source, SHIM)?;
    let output = Command::new(find_program("cc")?)
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&made)
        .arg(&source)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("cc failed: {}", String::from_utf8_lossy(&output.stderr))));
    }
    std::fs::rename(&made, &library)?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_the_clock_that_it_is_given() {
        let folder = super::super::folder("clock").unwrap();
        let clock = ServerClock::new(folder.path()).unwrap();
        clock.forward(Duration::from_secs(400 * 86_400)).unwrap();
        let shown = || -> u64 {
            let spawn = clock.apply(Spawn::new("date").arg("+%s%N")).unwrap();
            let date = spawn.start("date", folder.path()).unwrap();
            date.wait(super::super::PATIENCE).unwrap();
            date.stdout().unwrap().trim().parse().unwrap()
        };
        let here = crate::clock::unix_us() * 1_000;
        let later = shown();
        assert!(later > here + 399 * 86_400_000_000_000, "{later} {here}");
        clock.stand(1_800_000_000_123_456_789).unwrap();
        assert_eq!(shown(), 1_800_000_000_123_456_789);
        clock.stand(0).unwrap();
        assert!(shown() > later);
        clock.gain(1_000_000).unwrap();
        let (from, here) = (shown(), crate::clock::unix_us() * 1_000);
        crate::clock::pause(Duration::from_millis(50));
        let (gained, passed) = (shown() - from, crate::clock::unix_us() * 1_000 - here);
        assert!(gained >= passed + 50_000_000, "{gained} {passed}");
    }
}

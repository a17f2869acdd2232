//! Opening the file, or making it: identity, permissions, and what is known about the past.
//!
//! A new file is built under another name and moved into place complete, so that nobody ever sees half of one and a crash
//! leaves nothing to repair. All of it happens behind the gate.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Error, Kind, Ttl, slot::Now};
use rusqlite::{Connection, OpenFlags, config::DbConfig, hooks::Wal, params};

use super::{
    boot::{Boot, Relation},
    clocks::Clocks,
    failure,
    filesystem::{self, Trust},
    gate::{Gate, Passage},
    horizon::Horizon,
    in_use::InUse,
    row::signed,
    schema::{self, Nature},
};

/// How long a transaction waits for a program that does not use our gate: shorter than the shortest patience of a caller with
/// a TTL of some seconds, who is then told that nothing was changed instead of being left in doubt.
const BUSY: Duration = Duration::from_secs(1);
/// The log is moved into the database when it has this many bytes: SQLite's own figure, a thousand of its usual pages.
const FULL_LOG: u32 = 4 << 20;
/// A process that comes to a log of this many bytes moves it along in the background: the first one to open a file reads all
/// of the log, which a command that is started every minute must not pay for each time.
const LONG_LOG: u32 = 256 << 10;
/// A path whose file changes at each of so many looks cannot be opened.
const ATTEMPTS: usize = 5;
/// Statements kept ready: more than there are.
const STATEMENTS: usize = 64;
/// Pages that are kept in memory, in KiB, as far as they are used (ours: the rows of about 20,000 leases, so that renewing them
/// all in turn reads none of them again).
const CACHE_KIB: u32 = 8 << 10;

/// An open file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: Connection,
    /// Behind the connection, so that it is dropped later.
    pub(super) in_use: InUse,
    /// How long the log was after the last commit of ours, in bytes.
    pub(super) log_bytes: Arc<AtomicU32>,
    pub(super) gate: Arc<Gate>,
    pub(super) clocks: Clocks,
}

/// Opens the lease file at `path`, making it where there is none. `max_ttl` is the longest TTL that forgotten grants
/// may have had, `now` the engine's clock.
pub(super) fn open(path: &Path, max_ttl: Ttl, now: Now) -> Result<Opened, Error> {
    let folder = folder_of(path);
    if !folder.is_dir() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| {
            failure::from_io(&format!("cannot make the folder {}", folder.display()), &error)
        })?;
    }
    let local = filesystem::judge(folder)? == Trust::Local;
    let existing = schema::nature(path)?;
    let mine = Boot::read();
    let gate = Gate::open(path).map_err(|error| {
        failure::from_io(
            &format!("cannot open the lock file {}", super::gate::path_for(path).display()),
            &error,
        )
    })?;
    if existing == Nature::Absent {
        let passage =
            gate.pass_soon().map_err(|error| failure::from_io("cannot lock the lock file", &error))?;
        // Another may have made it while we waited.
        if schema::nature(path)? == Nature::Absent {
            let pause = pause_after_loss(&gate, &passage, &mine, local, max_ttl, now)?;
            make(path, &mine, pause, now)?;
        }
    }
    let (mut connection, in_use) = connect(path)?;
    gate.show_life().map_err(|error| failure::from_io("cannot lock the lock file", &error))?;
    let log_bytes = watch_log(&mut connection)
        .map_err(|error| failure::from_sql("cannot open the lease file", &error))?;
    Ok(Opened { connection, in_use, log_bytes, gate, clocks: Clocks::new(mine, local) })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A connection to a file that is ours, and the mark on that very file.
pub(super) fn connect(path: &Path) -> Result<(Connection, InUse), Error> {
    let doing = "cannot open the lease file";
    let io = |error: io::Error| failure::from_io(doing, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    for _ in 0..ATTEMPTS {
        let in_use = InUse::mark(path).map_err(io)?;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|error| failure::from_sql(doing, &error))?;
        // The path may have got another file between the two: its leases are not those of the file that was opened.
        if in_use.is_at(path).map_err(io)? {
            set_up(&connection)?;
            return Ok((connection, in_use));
        }
    }
    Err(Error::new(Kind::Unavailable, format!("{doing}: it is replaced again and again")))
}

/// Sets a connection up for durable commits.
fn set_up(connection: &Connection) -> Result<(), Error> {
    let failed = |error: rusqlite::Error| failure::from_sql("cannot open the lease file", &error);
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    if connection.is_readonly("main").map_err(failed)? {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        return Err(failure::from_io("the lease file cannot be written", &error));
    }
    schema::check(connection)?;
    // Closing must not cost a commit's worth of syncing: the last process of a burst of short ones would pay for all.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(Error::new(
            Kind::Unsupported,
            format!("the lease file cannot use write-ahead logging ({mode})"),
        )
        .advise("put the file on a local disk"));
    }
    connection
        .execute_batch(&format!("PRAGMA synchronous = FULL; PRAGMA cache_size = -{CACHE_KIB}"))
        .map_err(failed)
}

impl Opened {
    /// True when the log is long for those who come next.
    pub(super) fn has_long_log(&self) -> bool {
        self.log_bytes.load(Ordering::Relaxed) >= LONG_LOG
    }

    /// Moves the log into the database. Nobody waits for it, and nobody is kept from writing meanwhile.
    pub(super) fn move_log(&self) {
        let moved = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = moved {
            tracing::debug!(%error, "the log of the lease file was not moved; the next process tries again");
        }
    }
}

/// Moves the log into the database each time it has grown to [`FULL_LOG`], as SQLite does by itself, and tells how long
/// the log is after each commit.
fn watch_log(connection: &mut Connection) -> rusqlite::Result<Arc<AtomicU32>> {
    // Files that were made before pages became small keep theirs.
    let page: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let bytes = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&bytes);
    connection.wal_hook(Some(move |log: &mut Wal, length: std::ffi::c_int| {
        let length = length.unsigned_abs().saturating_mul(page);
        seen.store(length, Ordering::Relaxed);
        // The hook runs once the commit is durable. What it returned would be the answer to that commit, and another
        // process that moves the log at this moment would make it look as if nothing had been kept.
        if length >= FULL_LOG
            && let Err(error) = log.checkpoint()
        {
            tracing::debug!(%error, "the log of the lease file was not moved; a later commit tries again");
        }
        Ok(())
    }))?;
    Ok(bytes)
}

/// How long a new file must not grant, because an older one may have; in µs from now.
fn pause_after_loss(
    gate: &Gate,
    passage: &Passage<'_>,
    mine: &Boot,
    local: bool,
    max_ttl: Ttl,
    now: Now,
) -> Result<u64, Error> {
    // No margin: what a holder can believe in is shorter than its TTL by more than two clocks can differ.
    let whole = max_ttl.as_micros();
    let failed = |error: io::Error| failure::from_io("cannot read the lock file", &error);
    Ok(match Horizon::read(gate).map_err(failed)? {
        // The horizon is raised, behind the gate, before every commit that grants: through this lock file nobody has
        // granted yet, unless somebody emptied it. Whoever then still works with an older database shows life; those who
        // start together with us do not, because they have none open yet.
        Horizon::Empty if gate.is_alone(passage).map_err(failed)? => 0,
        Horizon::Empty | Horizon::Damaged => whole,
        Horizon::Until(boot, us) => match mine.relation(&boot, local) {
            Relation::Same => us.saturating_sub(now.clock_us),
            Relation::Rebooted => 0,
            Relation::Unknown => whole,
        },
    })
}

/// Builds the file beside its place and moves it there.
fn make(path: &Path, mine: &Boot, pause_us: u64, now: Now) -> Result<(), Error> {
    let doing = "cannot make the lease file";
    let io = |error: io::Error| failure::from_io(doing, &error);
    let draft = path.with_file_name(format!(
        ".{}-new-{}",
        path.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    ));
    let _ = fs::remove_file(&draft);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(io)?;
    let built = build(&draft, mine, pause_us, now).map_err(|error| failure::from_sql(doing, &error));
    let placed = built.and_then(|()| {
        File::open(&draft).and_then(|file| file.sync_all()).map_err(io)?;
        // The companions of a file that was removed belong to its pages, not to ours.
        for companion in ["-wal", "-shm", "-journal"] {
            let mut name = path.as_os_str().to_owned();
            name.push(companion);
            match fs::remove_file(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
                _ => {}
            }
        }
        fs::rename(&draft, path).map_err(io)?;
        File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(io)
    });
    if placed.is_err() {
        let _ = fs::remove_file(&draft);
    }
    placed
}

fn build(draft: &Path, mine: &Boot, pause_us: u64, now: Now) -> rusqlite::Result<()> {
    let connection = Connection::open_with_flags(draft, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    schema::create(&connection)?;
    connection.execute(
        "INSERT INTO store (id, made_unix, quarantine_boot, quarantine_until, quarantine_span) VALUES (1, ?1, ?2, ?3, ?4)",
        params![
            signed(now.unix_us),
            mine.text(),
            signed(now.clock_us.saturating_add(pause_us)),
            signed(pause_us)
        ],
    )?;
    connection.close().map_err(|(_, error)| error)
}

/// Where leases live when nobody says otherwise: for root and for services the system's state folder, for others their
/// own.
pub fn default_path() -> PathBuf {
    default_path_of(nix::unistd::geteuid().is_root(), |name| std::env::var_os(name))
}

/// The default of a user with these variables.
fn default_path_of(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    let folder = if is_root {
        PathBuf::from("/var/lib/leasehold")
    } else if let Some(folders) = variable("STATE_DIRECTORY") {
        // systemd gives a service its state folders, separated by colons.
        let first = folders.to_string_lossy().split(':').next().unwrap_or_default().to_owned();
        PathBuf::from(first)
    } else if let Some(state) = variable("XDG_STATE_HOME") {
        Path::new(&state).join("leasehold")
    } else {
        Path::new(&variable("HOME").unwrap_or_else(|| "/".into())).join(".local/state/leasehold")
    };
    folder.join("leases.db")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_is_in_the_users_own_state_folder() {
        let place = |is_root, variables: &[(&str, &str)]| {
            let found = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            default_path_of(is_root, found).display().to_string()
        };
        let home = ("HOME", "/home/alice");
        assert_eq!(place(true, &[home]), "/var/lib/leasehold/leases.db");
        assert_eq!(place(false, &[home]), "/home/alice/.local/state/leasehold/leases.db");
        let state = ("XDG_STATE_HOME", "/data/state");
        assert_eq!(place(false, &[home, state]), "/data/state/leasehold/leases.db");
        let service = ("STATE_DIRECTORY", "/var/lib/shop:/var/lib/shop-more");
        assert_eq!(place(false, &[home, state, service]), "/var/lib/shop/leases.db");
        // What is set to nothing is not set.
        assert_eq!(
            place(false, &[home, ("XDG_STATE_HOME", "")]),
            "/home/alice/.local/state/leasehold/leases.db"
        );
    }
}

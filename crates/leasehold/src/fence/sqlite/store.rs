//! A file of its own for highest tokens: for shell jobs, and for services that keep no database.
//!
//! One thread does all of it, because SQLite blocks and callers may be polled from anywhere. The file uses SQLite's rollback
//! journal, which needs no companions while nobody writes, and is as durable as the disk.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use leasehold_core::{
    Call, Error, Kind, Label, Namespace, Resource, Token,
    fence::{Ask, Mark, Pass, Refusal, Verdict},
};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::{failure, lift, step, table};
use crate::{
    clock,
    fence::{FenceStore, store::Work},
};

/// `lsHF`: SQLite's application id of a fence file.
const APPLICATION_ID: i32 = 0x6c73_4846;
/// How long a step waits for another process's: beyond a commit on a slow disk, below the patience of a shell job.
const BUSY: Duration = Duration::from_secs(5);

/// Highest tokens in a file of their own, shared by the processes of one machine.
#[derive(Debug)]
pub struct SqliteStore {
    place: String,
    jobs: Sender<Job>,
}

type Job = Box<dyn FnOnce(&mut Session) + Send>;

#[derive(Debug)]
struct Session {
    connection: Connection,
    path: PathBuf,
    file: (u64, u64),
}

impl SqliteStore {
    /// Opens the file, making it and its folder where they are missing, readable by this user alone.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a file that is something else, [`Kind::Denied`] and [`Kind::Unavailable`] as the system says.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let path = std::path::absolute(path).map_err(|error| io_failed(&error))?;
        let place = format!("sqlite:{}", crate::address::visible(&path.to_string_lossy()));
        let session = Session::open(&path).map_err(|error| error.at(&place))?;
        let (jobs, queue) = channel::<Job>();
        let work = move || {
            let mut session = session;
            for job in queue {
                job(&mut session);
            }
        };
        let started = thread::Builder::new().name("leasehold-fence".to_owned()).spawn(work);
        started.map_err(|error| io_failed(&error).at(&place))?;
        Ok(Self { place, jobs })
    }

    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> Result<T, Error> + Send + 'static,
    ) -> Call<'_, T> {
        let (tell, told) = oneshot::channel();
        let sent = self.jobs.send(Box::new(move |session| drop(tell.send(work(session)))));
        Box::pin(async move {
            let gone = |kind| Error::new(kind, "the thread of the fence's file has ended").at(&self.place);
            sent.map_err(|_| gone(Kind::Unavailable))?;
            // It ended in the middle of this job: nobody knows how far it came.
            told.await.map_err(|_| gone(Kind::Unknown))?.map_err(|error| error.at(&self.place))
        })
    }
}

impl Session {
    fn open(path: &Path) -> Result<Self, Error> {
        let failed = |error| not_opened(&error);
        make(path).map_err(|error| io_failed(&error))?;
        let found = fs::metadata(path).map_err(|error| io_failed(&error))?;
        if !found.is_file() || found.nlink() > 1 {
            return Err(Error::new(Kind::Invalid, "the fence's path is no regular file with one name")
                .advise("it was left as it is; give the path of a file in a folder"));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        // EXTRA: the folder is synced too, so that a journal that was removed stays removed.
        connection.execute_batch("PRAGMA synchronous = EXTRA").map_err(failed)?;
        prepare(&mut connection)?;
        Ok(Self { connection, path: path.to_owned(), file: (found.dev(), found.ino()) })
    }

    /// One step: all of it is kept, or nothing.
    fn step<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let in_place = fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file);
        if !in_place {
            return Err(Error::new(Kind::Unavailable, "the fence's file was removed or replaced")
                .advise("put it back, or start anew and seal every resource again"));
        }
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let tx =
            begun.map_err(|error| failure::from_sql("the fence's file cannot be changed now", &error))?;
        let value = work(&tx)?;
        tx.commit().map_err(|error| failure::from_commit(&error))?;
        Ok(value)
    }
}

/// Counts a refusal, in the step that gives it.
fn refuse(tx: &Transaction<'_>, refusal: Refusal) -> Result<Verdict, Error> {
    let counted = tx.execute("UPDATE leasehold_refused SET total = total + 1", []);
    counted.map_err(|error| failure::from_sql("the fence could not count a refusal", &error))?;
    Ok(Verdict::Refused(refusal))
}

/// Makes the folder and an empty file.
fn make(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes the table in an empty file; refuses what is not ours.
fn prepare(connection: &mut Connection) -> Result<(), Error> {
    let failed = |error| not_opened(&error);
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let ask = |sql| tx.query_row(sql, [], |row| row.get::<_, i32>(0)).map_err(failed);
    let ours = match (ask("PRAGMA application_id")?, ask("SELECT count(*) FROM sqlite_schema")?) {
        (APPLICATION_ID, _) => true,
        (0, 0) => false,
        _ => return Err(foreign()),
    };
    if !ours {
        table::create(&tx).map_err(failed)?;
        tx.execute_batch(&format!(
            "CREATE TABLE leasehold_refused (total INTEGER NOT NULL) STRICT; INSERT INTO leasehold_refused VALUES (0); \
             PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1"
        ))
            .map_err(failed)?;
    }
    if ask("PRAGMA user_version")? > 1 {
        return Err(Error::new(Kind::Unsupported, "the fence's file was made by a newer version")
            .advise("upgrade this program"));
    }
    tx.commit().map_err(failed)
}

fn not_opened(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => foreign(),
        _ => failure::from_sql("cannot open the fence's file", error),
    }
}

fn foreign() -> Error {
    Error::new(Kind::Invalid, "the file is no fence's")
        .advise("it was left as it is; give the path of a fence's file, or of none yet")
}

fn io_failed(error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::Denied,
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => {
            Kind::Invalid
        }
        _ => Kind::Unavailable,
    };
    Error::new(kind, format!("cannot open the fence's file: {error}"))
        .advise("look at the permissions of the folder")
}

impl FenceStore for SqliteStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn ask(&self, pass: Pass, ask: Ask) -> Call<'_, Verdict> {
        self.call(move |session| {
            session.step(|tx| match step(tx, &pass, ask, clock::unix_us())? {
                Ok(()) => Ok(Verdict::Admitted),
                Err(refusal) => refuse(tx, refusal),
            })
        })
    }

    fn look(&self, namespace: Namespace, resource: Resource) -> Call<'_, Option<Mark>> {
        self.call(move |session| {
            session.step(|tx| table::read(tx, &namespace, &resource).map_err(|failure| failure.error()))
        })
    }

    fn raise(&self, namespace: Namespace, resource: Resource, token: Token, by: Label) -> Call<'_, Mark> {
        self.call(move |session| session.step(|tx| lift(tx, &namespace, &resource, token, &by)))
    }

    fn refused(&self) -> Call<'_, u64> {
        self.call(|session| {
            session.step(|tx| {
                let total =
                    tx.query_row("SELECT total FROM leasehold_refused", [], |row| row.get::<_, i64>(0));
                let total =
                    total.map_err(|error| failure::from_sql("the fence could not be asked", &error))?;
                Ok(total.unsigned_abs())
            })
        })
    }

    fn admit_and(&self, pass: Pass, work: Work) -> Call<'_, Verdict> {
        self.call(move |session| {
            session.step(|tx| match step(tx, &pass, Ask::Write, clock::unix_us())? {
                Ok(()) => work().map(|()| Verdict::Admitted),
                Err(refusal) => refuse(tx, refusal),
            })
        })
    }
}

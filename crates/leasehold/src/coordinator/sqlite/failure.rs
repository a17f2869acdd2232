//! What went wrong below, in the words of the contract.

use std::io;

use leasehold_core::{Error, Kind};
use rusqlite::ErrorCode;

/// What to do about a file that cannot be trusted.
pub(super) const REPAIR: &str =
    "stop every program that uses the file and restore it from a copy, or move it away to begin anew";

/// Why a transaction was given up. Nothing of it has been kept.
#[derive(Debug)]
pub(super) enum Failure {
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// A system call failed.
    Io(io::Error),
    /// A row says what we never write.
    Corrupt(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Failure {
    /// The error of a request that had certainly no effect.
    pub(super) fn error(&self) -> Error {
        match self {
            Self::Sql(error) => from_sql("the lease file refused the change", error),
            Self::Io(error) => from_io("cannot write beside the lease file", error),
            Self::Corrupt(what) => Error::new(Kind::Corrupt, what.clone()).advise(REPAIR),
        }
    }
}

/// A failure of SQLite before the commit: nothing has been changed.
pub(super) fn from_sql(doing: &str, error: &rusqlite::Error) -> Error {
    let what = format!("{doing}: {error}");
    let Some(code) = error.sqlite_error_code() else {
        // A value of an unexpected type: not something we wrote.
        return Error::new(Kind::Corrupt, what).advise(REPAIR);
    };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Error::new(Kind::Unavailable, what)
            .advise("another program keeps the lease file locked; close it (a shell on the file, a backup), then ask again"),
        ErrorCode::DiskFull => Error::new(Kind::Unavailable, what).advise("make room on the disk of the lease file"),
        ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied => {
            Error::new(Kind::Denied, what)
                .advise("the user who runs this must be able to write the lease file and its folder")
        }
        ErrorCode::CannotOpen => Error::new(Kind::Unavailable, what)
            .advise("look at the permissions of the folder and at the number of open files"),
        ErrorCode::SystemIoFailure => {
            Error::new(Kind::Unavailable, what).advise("look at the disk of the lease file (kernel log, free space)")
        }
        ErrorCode::OutOfMemory | ErrorCode::OperationInterrupted => Error::new(Kind::Unavailable, what),
        // A damaged file, and whatever cannot happen with a sound one.
        _ => Error::new(Kind::Corrupt, what).advise(REPAIR),
    }
}

/// A failure of the commit itself.
pub(super) fn from_commit(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        // The commit frame is written last: without room for it nothing is committed. Nor is it while another holds on.
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            from_sql("the lease file could not take the change", error)
        }
        _ => Error::new(Kind::Unknown, format!("the lease file may not have kept the change: {error}"))
            .advise("look at the disk of the lease file (kernel log, free space)"),
    }
}

/// A failure of a system call before anything was changed.
pub(super) fn from_io(doing: &str, error: &io::Error) -> Error {
    let what = format!("{doing}: {error}");
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::new(Kind::Denied, what)
            .advise("the user who runs this must be able to write the lease file and its folder"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::new(Kind::Unavailable, what).advise("make room on the disk of the lease file")
        }
        // Making a folder where a file is answers "exists".
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            Error::new(Kind::Invalid, what).advise("give the path of a file in a folder")
        }
        io::ErrorKind::TimedOut => Error::new(Kind::Unavailable, what)
            .advise("look for a stopped process that uses the file (state T in ps) and continue or end it"),
        _ => Error::new(Kind::Unavailable, what),
    }
}

//! What went wrong below, in the words of the contract.

use leasehold_core::{Error, Kind};
use rusqlite::ErrorCode;

/// Why a step was given up. Nothing of it is kept.
#[derive(Debug)]
pub(super) enum Failure {
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// A row says what we never write.
    Corrupt(&'static str),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Failure {
    /// The error of a step that had certainly no effect.
    pub(super) fn error(&self) -> Error {
        match self {
            Self::Sql(error) => from_sql("the fence could not be asked", error),
            Self::Corrupt(what) => Error::new(Kind::Corrupt, *what)
                .advise("somebody has changed the table leasehold_fence by hand; put the row right"),
        }
    }
}

/// A failure of SQLite before the commit: nothing has been changed.
pub(super) fn from_sql(doing: &str, error: &rusqlite::Error) -> Error {
    let what = format!("{doing}: {error}");
    let Some(code) = error.sqlite_error_code() else {
        return Error::new(Kind::Corrupt, what)
            .advise("somebody has changed the table leasehold_fence by hand; put the row right");
    };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Error::new(Kind::Unavailable, what).advise("another transaction is in the way; ask again")
        }
        ErrorCode::DiskFull => Error::new(Kind::Unavailable, what).advise("make room on the disk"),
        ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied => {
            Error::new(Kind::Denied, what)
                .advise("the user who runs this must be able to write the database and its folder")
        }
        ErrorCode::CannotOpen
        | ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted => Error::new(Kind::Unavailable, what)
            .advise("look at the disk and at the permissions of the folder"),
        // "No such table" and the like.
        ErrorCode::Unknown => Error::new(Kind::Invalid, what)
            .advise("make the table with `SqliteFence::install` in the database of the data"),
        _ => Error::new(Kind::Corrupt, what).advise("restore the database from a copy"),
    }
}

/// A failure of the commit itself.
pub(super) fn from_commit(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            from_sql("the fence could not keep the change", error)
        }
        _ => Error::new(Kind::Unknown, format!("the fence may not have kept the change: {error}"))
            .advise("look at the disk (kernel log, free space)"),
    }
}

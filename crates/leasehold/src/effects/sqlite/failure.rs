//! What went wrong below, in the words of the contract.

use leasehold_core::{Error, Kind};
use rusqlite::ErrorCode;

/// A failure before the commit: nothing has been changed.
pub(super) fn of(doing: &str, error: &rusqlite::Error) -> Error {
    let what = format!("{doing}: {error}");
    let Some(code) = error.sqlite_error_code() else {
        return Error::new(Kind::Corrupt, what)
            .advise("somebody has changed the tables of the effects by hand; put the row right");
    };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Error::new(Kind::Unavailable, what)
            .advise("another transaction is in the way; ask again (a busy_timeout on the connection lets it wait)"),
        ErrorCode::DiskFull => Error::new(Kind::Unavailable, what).advise("make room on the disk"),
        ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied => {
            Error::new(Kind::Denied, what)
                .advise("the user who runs this must be able to write the database and its folder")
        }
        ErrorCode::ConstraintViolation => Error::new(Kind::Invalid, what)
            .advise("an event of this key is in the outbox already: the operation was carried out before its key was forgotten"),
        ErrorCode::Unknown => Error::new(Kind::Invalid, what)
            .advise("make the tables with `SqliteEffects::install` or `leasehold effects install`, in the database of the data"),
        ErrorCode::CannotOpen
        | ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted => Error::new(Kind::Unavailable, what)
            .advise("look at the disk and at the permissions of the folder"),
        _ => Error::new(Kind::Corrupt, what).advise("restore the database from a copy"),
    }
}

/// A failure of the commit itself.
pub(super) fn of_commit(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            of("the effect could not be committed", error)
        }
        _ => Error::new(Kind::Unknown, format!("the effect may not have been kept: {error}"))
            .advise("look at the disk; then ask again with the same key, which knows"),
    }
}

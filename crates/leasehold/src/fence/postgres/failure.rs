//! What went wrong below, in the words of the contract.

use leasehold_core::{Error, Kind};

/// A failure of a statement inside a transaction: nothing of it has been kept, because nothing was committed.
pub(super) fn of_statement(code: Option<&str>, what: &str) -> Error {
    let Some(code) = code else {
        return Error::new(Kind::Unavailable, format!("the fence could not be asked: {what}"));
    };
    let what = format!("the fence could not be asked: PostgreSQL says: {what} (SQLSTATE {code})");
    match code {
        "40001" | "40P01" => Error::new(Kind::Unavailable, what)
            .advise("another transaction came first; roll back and begin anew, and the fence then says whether you still count"),
        "42501" => Error::new(Kind::Denied, what).advise("let the fence's owner run `leasehold fence install --grant ROLE`"),
        "3F000" | "42P01" | "42883" => {
            Error::new(Kind::Invalid, what).advise("install the fence into this database with `leasehold fence install`")
        }
        "25006" => Error::new(Kind::Invalid, what).advise("a fenced transaction writes: begin it READ WRITE, on the primary"),
        "LHF08" => Error::new(Kind::Invalid, what).advise("seal in a transaction of its own, before the one that reads"),
        "XX001" | "XX002" => Error::new(Kind::Corrupt, what).advise("the server's data is damaged: restore it"),
        _ => Error::new(Kind::Unavailable, what),
    }
}

pub(super) fn of_tokio(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(db) => of_statement(Some(db.code().code()), db.message()),
        None => of_statement(None, &error.to_string()),
    }
}

/// A failure of the commit itself.
pub(super) fn of_commit(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        // An error of the server's has rolled it back.
        Some(db) if db.parsed_severity() == Some(tokio_postgres::error::Severity::Error) => of_tokio(error),
        _ => {
            Error::new(Kind::Unknown, format!("the connection ended before the commit was answered: {error}"))
        }
    }
}

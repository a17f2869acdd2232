//! What went wrong below, in the words of the contract.

use leasehold_core::{Error, Kind};
use tokio_postgres::error::{Severity, SqlState};

/// A failure of a statement inside a transaction: nothing of it has been kept, because nothing was committed.
pub(super) fn of(doing: &str, error: &tokio_postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        return Error::new(Kind::Unavailable, format!("{doing}: {error}"));
    };
    let what = format!("{doing}: PostgreSQL says: {} (SQLSTATE {})", db.message(), db.code().code());
    match db.code().code() {
        "42501" => Error::new(Kind::Denied, what)
            .advise("let the owner of the tables run `leasehold effects install --grant ROLE`"),
        "3F000" | "42P01" | "42883" | "42703" => Error::new(Kind::Invalid, what)
            .advise("make the tables in this database with `leasehold effects install`"),
        "25006" => Error::new(Kind::Invalid, what).advise("an effect is written on the primary"),
        "23505" => Error::new(Kind::Invalid, what)
            .advise("an event of this key is in the outbox already: the operation was carried out before its key was forgotten"),
        "57014" | "25P03" => Error::new(Kind::Unavailable, what).advise("it took longer than max_exec; ask again"),
        "40001" | "40P01" => Error::new(Kind::Unavailable, what).advise("another transaction came first; ask again"),
        "XX001" | "XX002" => Error::new(Kind::Corrupt, what).advise("the server's data is damaged: restore it"),
        _ => Error::new(Kind::Unavailable, what),
    }
}

/// A failure of the commit itself.
pub(super) fn of_commit(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        // An error of the server's has rolled it back.
        Some(db) if db.parsed_severity() == Some(Severity::Error) => {
            of("the effect was not committed", error)
        }
        _ => Error::new(
            Kind::Unknown,
            format!("the connection ended before the commit of the effect was answered: {error}"),
        )
        .advise("ask again with the same key, on another connection: the key knows"),
    }
}

/// True when another transaction came first, so that this one must look again.
pub(super) fn is_overtaken(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}

//! What went wrong below, in the words of the contract.
//!
//! One question decides: may the change have been committed? An error of the server's while it worked on our statement has
//! rolled it back. An end of the connection after the statement was sent leaves it unknown, and so does a session that was
//! ended by force: it may have been waiting for its standby, with the commit already written.

use leasehold_core::{Error, Kind};
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::ident::quote;

/// Words for those who operate the database.
#[derive(Clone, Debug)]
pub(super) struct Advice {
    /// The schema, quoted.
    pub(super) schema: String,
    /// The role that we log in as, as far as it is known.
    pub(super) role: String,
    /// The database.
    pub(super) database: String,
}

/// The schema's own refusals.
pub(super) const WRONG_MODE: &str = "LH001";
pub(super) const WRONG_ISOLATION: &str = "LH002";

/// The connection ended, or never was.
pub(super) fn lost(sent: bool, doing: &str) -> Error {
    if sent {
        Error::new(Kind::Unknown, format!("the connection ended before the answer {doing}"))
    } else {
        Error::new(Kind::Unavailable, format!("the connection had ended {doing}"))
    }
}

/// What `PostgreSQL` says, without the parts that may quote data.
fn said(error: &DbError) -> String {
    format!("PostgreSQL says: {} (SQLSTATE {})", error.message(), error.code().code())
}

impl Advice {
    /// The error of a statement that was sent.
    pub(super) fn of_statement(&self, error: &tokio_postgres::Error) -> Error {
        match error.as_db_error() {
            Some(db) => self.of_server(db),
            None if error.is_closed() => lost(true, "came"),
            None => Error::new(Kind::Unknown, format!("the answer could not be read: {}", describe(error))),
        }
    }

    fn of_server(&self, db: &DbError) -> Error {
        let what = said(db);
        if !matches!(db.parsed_severity(), Some(Severity::Error) | None) {
            return Error::new(Kind::Unknown, what);
        }
        let code = db.code();
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            return Error::new(Kind::Denied, what).advise(self.grants());
        }
        if is_missing(code) {
            return Error::new(Kind::Corrupt, format!("the schema {} is not what it was; {what}", self.schema)).advise(
                "every lease in it is forgotten; find out who dropped it, then make it again with `leasehold init` (it grants \
                 when every forgotten lease must have ended)",
            );
        }
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION || *code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
        {
            return Error::new(Kind::Unavailable, what)
                .advise("this is a standby, or set to read only; name the primary in the URL, or all hosts separated by commas");
        }
        match code.code() {
            WRONG_MODE => {
                Error::new(Kind::Invalid, format!("the expiry mode of the namespace is another one; {what}"))
                    .advise("put expiry=… or mode=… into the URL as the namespace has it")
            }
            WRONG_ISOLATION => Error::new(Kind::Unavailable, what),
            "53100" => Error::new(Kind::Unavailable, what).advise("make room on the disk of the server"),
            "XX001" | "XX002" => {
                Error::new(Kind::Corrupt, what).advise("the server's data is damaged: restore it")
            }
            "55P03" => Error::new(Kind::Unavailable, what).advise(
                "another session keeps the row of this resource locked; look for it in pg_locks and end it",
            ),
            "57014" => Error::new(Kind::Unavailable, what).advise(
                "a statement_timeout of this role is too short, or an operator cancelled the statement",
            ),
            _ => Error::new(Kind::Unavailable, what),
        }
    }

    /// The error of a connection that could not be made.
    pub(super) fn of_connecting(error: &tokio_postgres::Error) -> Error {
        let Some(db) = error.as_db_error() else {
            if let Some(error) = untrusted(error) {
                return error;
            }
            let text = describe(error);
            let what = format!("cannot connect: {}", text.trim_start_matches("error connecting to server: "));
            if what.contains("password") || what.contains("authentication") {
                return Error::new(Kind::Denied, what);
            }
            return Error::new(Kind::Unavailable, what)
                .advise("see whether the server runs and can be reached from here");
        };
        let what = format!("cannot connect; {}", said(db));
        match db.code().code() {
            code if code.starts_with("28") && db.message().contains("certificate") => Error::new(Kind::Denied, what)
                .advise("name the client's certificate and its key with cert=FILE and key=FILE in the URL; it must be one that the server \
                         knows as this role"),
            code if code.starts_with("28") => Error::new(Kind::Denied, what)
                .advise("look at the user and password in the URL (or the password file), and at the server's pg_hba.conf"),
            "42501" => Error::new(Kind::Denied, what),
            "3D000" => Error::new(Kind::Denied, what).advise("make the database first, or name another one in the URL"),
            "53300" => Error::new(Kind::Unavailable, what)
                .advise("the server has no connection left: raise max_connections, or put a pooler in between"),
            _ => Error::new(Kind::Unavailable, what),
        }
    }

    /// What to run so that this role may use the schema.
    pub(super) fn grants(&self) -> String {
        let (schema, role) = (&self.schema, quote(&self.role));
        format!(
            "let the schema's owner run: GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL \
             TABLES IN SCHEMA {schema} TO {role}; GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};"
        )
    }

    /// What to run so that somebody may make the schema.
    pub(super) fn creation(&self) -> String {
        let (schema, role, database) = (&self.schema, quote(&self.role), quote(&self.database));
        format!(
            "run `leasehold init` once with the URL of a role that may make schemas and then let it run: {}; or let an \
             administrator run: GRANT CREATE ON DATABASE {database} TO {role}; or: CREATE SCHEMA {schema} AUTHORIZATION {role};",
            self.grants().trim_start_matches("let the schema's owner run: ").trim_end_matches(';')
        )
    }
}

/// True when the schema, or a part of it, is not there.
pub(super) fn is_missing(code: &SqlState) -> bool {
    [
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::UNDEFINED_COLUMN,
        SqlState::UNDEFINED_OBJECT,
    ]
    .contains(code)
}

/// A handshake that failed, and will fail again.
fn untrusted(error: &tokio_postgres::Error) -> Option<Error> {
    match handshake(error)? {
        rustls::Error::InvalidCertificate(why) => Some(
            Error::new(Kind::Denied, format!("the server's certificate is not accepted: {why:?}")).advise(
                "name the certificate that signs it with ca=FILE in the URL, and the host as the certificate does",
            ),
        ),
        rustls::Error::AlertReceived(alert) => Some(
            Error::new(Kind::Denied, format!("the server refuses the TLS connection: {alert:?}")).advise(
                "a server that asks for a client certificate needs cert=FILE and key=FILE in the URL, of an authority that it trusts",
            ),
        ),
        _ => None,
    }
}

/// What TLS itself says, if it is the cause.
fn handshake(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        // An I/O error does not give what it wraps as its source.
        let wrapped = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let found = wrapped.and_then(|wrapped| wrapped.downcast_ref()).or_else(|| inner.downcast_ref());
        if found.is_some() {
            return found;
        }
        cause = inner.source();
    }
    None
}

/// The whole chain of an error's causes.
fn describe(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

//! What the work of an operation is given: the transaction, and the way to add events to it.

use std::{cell::Cell, ops::Deref};

use leasehold_core::{Error, Invalid, Kind, Token, fence::Pass};
use rusqlite::{Transaction, params};
use serde_json::Value;

use super::failure;
use crate::{
    clock,
    effects::{
        key::{self, Key},
        record::{MAX_EVENTS, json_text, signed},
    },
};

/// The transaction in which an operation happens. It is a [`rusqlite::Transaction`]; it is committed for you.
#[derive(Debug)]
pub struct SqliteTx<'t> {
    tx: &'t Transaction<'t>,
    pass: &'t Pass,
    key: &'t Key,
    events: Cell<u32>,
}

impl<'t> SqliteTx<'t> {
    pub(super) fn new(tx: &'t Transaction<'t>, pass: &'t Pass, key: &'t Key) -> Self {
        Self { tx, pass, key, events: Cell::new(0) }
    }

    /// Adds an event to the outbox: it is published if, and only if, the operation commits. Its number.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a topic that is not 1–255 bytes, for more than [`MAX_EVENTS`] of them or one too large; what SQLite says.
    pub fn emit(&self, topic: &str, payload: &Value) -> Result<u64, Error> {
        const SQL: &str = "INSERT INTO leasehold_outbox (namespace, resource, token, scope, key, topic, op_seq, payload, created_unix) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        key::text("topic of an event", topic)?;
        if self.events.get() == MAX_EVENTS {
            return Err(Error::from(Invalid::new("number of events", "of one operation is at most 1000")));
        }
        self.events.set(self.events.get() + 1);
        let payload = json_text("the event", payload)?;
        let failed = |error| failure::of("the event could not be written", &error).on(&self.pass.resource);
        let mut statement = self.tx.prepare_cached(SQL).map_err(failed)?;
        statement
            .execute(params![
                self.pass.namespace.as_str(),
                self.pass.resource.as_str(),
                signed(self.pass.token.get()),
                self.key.scope(),
                self.key.as_str(),
                topic,
                self.events.get(),
                payload,
                signed(clock::unix_us())
            ])
            .map_err(failed)?;
        u64::try_from(self.tx.last_insert_rowid())
            .map_err(|_| Error::new(Kind::Corrupt, "the number of an event is below zero"))
    }

    /// The key of the operation.
    pub fn key(&self) -> &Key {
        self.key
    }

    /// The fencing token under which it happens: for rows that should tell which grant wrote them.
    pub fn token(&self) -> Token {
        self.pass.token
    }
}

impl<'t> Deref for SqliteTx<'t> {
    type Target = Transaction<'t>;

    fn deref(&self) -> &Transaction<'t> {
        self.tx
    }
}

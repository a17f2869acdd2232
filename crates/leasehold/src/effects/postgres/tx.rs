//! What the work of an operation is given: the transaction, and the way to add events to it.

use std::{
    ops::Deref,
    sync::atomic::{AtomicU32, Ordering},
};

use leasehold_core::{Error, Invalid, Kind, Token, fence::Pass};
use serde_json::Value;
use tokio_postgres::Transaction;

use super::{failure, statements::Statements};
use crate::effects::{
    key::{self, Key},
    record::{MAX_EVENTS, json_text, signed},
};

/// The transaction in which an operation happens. It is a [`tokio_postgres::Transaction`]; it is committed for you.
pub struct PostgresTx<'t> {
    tx: &'t Transaction<'t>,
    statements: &'t Statements,
    pass: &'t Pass,
    key: &'t Key,
    events: AtomicU32,
}

impl std::fmt::Debug for PostgresTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresTx").field("pass", self.pass).field("key", self.key).finish_non_exhaustive()
    }
}

impl<'t> PostgresTx<'t> {
    pub(super) fn new(
        tx: &'t Transaction<'t>,
        statements: &'t Statements,
        pass: &'t Pass,
        key: &'t Key,
    ) -> Self {
        Self { tx, statements, pass, key, events: AtomicU32::new(0) }
    }

    /// Adds an event to the outbox: it is published if, and only if, the operation commits. Its number.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a topic that is not 1–255 bytes, for more than [`MAX_EVENTS`] of them or one too large; what the server
    /// says, and then the transaction can only be rolled back.
    pub async fn emit(&self, topic: &str, payload: &Value) -> Result<u64, Error> {
        key::text("topic of an event", topic)?;
        let number = self.events.fetch_add(1, Ordering::Relaxed) + 1;
        if number > MAX_EVENTS {
            return Err(Error::from(Invalid::new("number of events", "of one operation is at most 1000")));
        }
        let payload = json_text("the event", payload)?;
        let (namespace, resource) = (self.pass.namespace.as_str(), self.pass.resource.as_str());
        let (scope, key, token) = (self.key.scope(), self.key.as_str(), signed(self.pass.token.get()));
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let row = self
            .tx
            .query_one(
                &self.statements.emit,
                &[&namespace, &resource, &token, &scope, &key, &topic, &number, &payload],
            )
            .await;
        let id = row.and_then(|row| row.try_get::<_, i64>(0));
        let id = id
            .map_err(|error| failure::of("the event could not be written", &error).on(&self.pass.resource))?;
        u64::try_from(id).map_err(|_| Error::new(Kind::Corrupt, "the number of an event is below zero"))
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

impl<'t> Deref for PostgresTx<'t> {
    type Target = Transaction<'t>;

    fn deref(&self) -> &Transaction<'t> {
        self.tx
    }
}

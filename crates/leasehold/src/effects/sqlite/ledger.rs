//! The tables as seen from outside. One thread has the connection, because SQLite blocks and callers may be polled from anywhere.

use std::{
    path::Path,
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use leasehold_core::{Call, Error, Kind, Label, fence::Pass};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::{failure, table};
use crate::{
    clock,
    effects::{
        key::Key,
        ledger::{Delivery, Due, Events, Fate, Found, Keys, Queue, Store},
        record::{Event, Record, State, json_text, signed},
    },
    fence::{NotAdmitted, sqlite::SqliteFence},
};

/// How long a step waits for another's: beyond a commit on a slow disk.
const BUSY: Duration = Duration::from_secs(5);
const WAITS: &str = "o.published_unix IS NULL AND o.set_aside_unix IS NULL";

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The tables in a database file.
#[derive(Debug)]
pub(in crate::effects) struct SqliteLedger {
    place: String,
    jobs: Sender<Job>,
}

impl SqliteLedger {
    /// Opens a file that is there: a ledger makes no databases.
    pub(in crate::effects) fn open(path: &Path) -> Result<Self, Error> {
        let place = format!("sqlite:{}", crate::address::visible(&path.to_string_lossy()));
        let mut connection = open(path).map_err(|error| {
            failure::of("the database cannot be opened", &error)
                .at(&place)
                .advise("give the path of the database of the data, which must be there")
        })?;
        let (jobs, queue) = channel::<Job>();
        let work = move || queue.into_iter().for_each(|job| job(&mut connection));
        thread::Builder::new().name("leasehold-ledger".to_owned()).spawn(work).map_err(|error| {
            Error::new(Kind::Unavailable, format!("the operating system gave no thread: {error}")).at(&place)
        })?;
        Ok(Self { place, jobs })
    }

    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Error> + Send + 'static,
    ) -> Call<'_, T> {
        let (tell, told) = oneshot::channel();
        let sent = self.jobs.send(Box::new(move |connection| drop(tell.send(work(connection)))));
        Box::pin(async move {
            let gone = |kind| Error::new(kind, "the thread of the database has ended").at(&self.place);
            sent.map_err(|_| gone(Kind::Unavailable))?;
            told.await.map_err(|_| gone(Kind::Unknown))?.map_err(|error| error.at(&self.place))
        })
    }
}

pub(in crate::effects) fn no_roles() -> Error {
    Error::new(Kind::Invalid, "SQLite knows no roles").advise("leave --grant out")
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

#[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn failed(error: rusqlite::Error) -> Error {
    failure::of("the effects could not be looked at", &error)
}

fn step<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, NotAdmitted>,
) -> Result<T, NotAdmitted> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let value = work(&tx)?;
    tx.commit().map_err(|error| failure::of_commit(&error))?;
    Ok(value)
}

pub(super) fn purge(connection: &Connection) -> Result<u64, Error> {
    const EVENTS: &str = "DELETE FROM leasehold_outbox WHERE published_unix IS NOT NULL AND (scope, key) IN \
         (SELECT scope, key FROM leasehold_idempotency WHERE state = 'done' AND expires_unix <= ?1)";
    // A key whose events still wait is kept: it says what they are about.
    const KEYS: &str = "DELETE FROM leasehold_idempotency WHERE state = 'done' AND expires_unix <= ?1 AND NOT EXISTS \
         (SELECT 1 FROM leasehold_outbox o WHERE o.scope = leasehold_idempotency.scope AND o.key = leasehold_idempotency.key)";
    let now = signed(clock::unix_us());
    let purged = |error| failure::of("old keys could not be purged", &error);
    connection.execute(EVENTS, [now]).map_err(purged)?;
    Ok(connection.execute(KEYS, [now]).map_err(purged)? as u64)
}

fn events(
    connection: &Connection,
    rest: &str,
    parameters: impl rusqlite::Params,
) -> Result<Vec<Event>, Error> {
    let mut statement = connection.prepare_cached(&format!("{} {rest}", table::EVENT)).map_err(failed)?;
    let rows = statement.query_map(parameters, table::raw_event).map_err(failed)?;
    rows.map(|row| table::event(row.map_err(failed)?)).collect()
}

impl Store for SqliteLedger {
    fn place(&self) -> &str {
        &self.place
    }

    fn install(&self, roles: Vec<String>) -> Call<'_, ()> {
        self.call(move |connection| {
            if roles.is_empty() {
                return super::install(connection);
            }
            Err(no_roles())
        })
    }

    fn records(&self, which: Keys) -> Call<'_, Vec<Record>> {
        self.call(move |connection| {
            let sql = format!(
                "{} WHERE (?1 IS NULL OR scope = ?1) AND (?2 IS NULL OR state = ?2) AND (scope, key) > (?3, ?4) \
                 ORDER BY scope, key LIMIT ?5",
                table::RECORD
            );
            let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
            let after = which.after.as_ref().map_or(("", ""), |key| (key.scope(), key.as_str()));
            let parameters =
                params![which.scope, which.state.map(State::word), after.0, after.1, which.limit];
            let rows = statement.query_map(parameters, table::raw_record).map_err(failed)?;
            rows.map(|row| table::record(row.map_err(failed)?)).collect()
        })
    }

    fn record(&self, key: Key) -> Call<'_, Option<Record>> {
        self.call(move |connection| table::read(connection, &key))
    }

    fn resolve(&self, key: Key, found: Found, by: Label) -> Call<'_, bool> {
        self.call(move |connection| {
            let changed = match found {
                Found::Done(response) => connection.execute(
                    "UPDATE leasehold_idempotency SET state = 'done', response = ?3, done_unix = ?4, note = 'resolved by ' || ?5 \
                     WHERE scope = ?1 AND key = ?2 AND state <> 'done'",
                    params![
                        key.scope(),
                        key.as_str(),
                        json_text("the response", &response)?,
                        signed(clock::unix_us()),
                        by.as_str()
                    ],
                ),
                Found::NotDone => connection.execute(
                    "DELETE FROM leasehold_idempotency WHERE scope = ?1 AND key = ?2 AND state <> 'done'",
                    params![key.scope(), key.as_str()],
                ),
            };
            Ok(changed.map_err(failed)? == 1)
        })
    }

    fn events(&self, which: Events) -> Call<'_, Vec<Event>> {
        self.call(move |connection| {
            let queue = match which.queue {
                None => "1",
                Some(Queue::Waiting) => WAITS,
                Some(Queue::SetAside) => "o.published_unix IS NULL AND o.set_aside_unix IS NOT NULL",
                Some(Queue::Published) => "o.published_unix IS NOT NULL",
            };
            let rest = format!("WHERE o.id > ?1 AND {queue} ORDER BY o.id LIMIT ?2");
            events(connection, &rest, params![signed(which.after), which.limit])
        })
    }

    fn event(&self, id: u64) -> Call<'_, Option<Event>> {
        self.call(move |connection| Ok(events(connection, "WHERE o.id = ?1", params![signed(id)])?.pop()))
    }

    fn decide(&self, id: u64, fate: Fate, by: Label) -> Call<'_, bool> {
        self.call(move |connection| {
            let (aside, note) = match fate {
                Fate::Retry => (None, None),
                Fate::SetAside => {
                    (Some(signed(clock::unix_us())), Some(format!("set aside by {}", by.as_str())))
                }
            };
            let changed = connection.execute(
                "UPDATE leasehold_outbox SET set_aside_unix = ?2, attempts = 0, retry_unix = NULL, error = coalesce(?3, error) \
                 WHERE id = ?1 AND published_unix IS NULL",
                params![signed(id), aside, note],
            );
            Ok(changed.map_err(failed)? == 1)
        })
    }

    fn purge(&self) -> Call<'_, u64> {
        self.call(|connection| {
            let purged = step(connection, |tx| Ok(purge(tx)?));
            purged.map_err(|no| Error::new(Kind::Unavailable, no.to_string()))
        })
    }

    fn due(&self, limit: u32) -> Call<'_, Due> {
        self.call(move |connection| {
            let now_us = clock::unix_us();
            let rest = format!(
                "WHERE {WAITS} AND (o.retry_unix IS NULL OR o.retry_unix <= ?1) AND NOT EXISTS (SELECT 1 FROM leasehold_outbox w \
                 WHERE w.namespace = o.namespace AND w.resource = o.resource AND w.id < o.id AND w.published_unix IS NULL \
                 AND w.set_aside_unix IS NULL AND w.retry_unix > ?1) ORDER BY o.id LIMIT ?2"
            );
            let events = events(connection, &rest, params![signed(now_us), limit])?;
            let sql = format!("SELECT count(*), min(o.created_unix) FROM leasehold_outbox o WHERE {WAITS}");
            let counted = connection
                .query_row(&sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)))
                .optional();
            let (waiting, oldest) = counted.map_err(failed)?.unwrap_or_default();
            let lag = oldest.map_or(0, |oldest| now_us.saturating_sub(oldest.unsigned_abs()));
            Ok(Due { events, waiting: waiting.unsigned_abs(), lag: Duration::from_micros(lag) })
        })
    }

    fn seal(&self, pass: Pass) -> Call<'_, Result<(), NotAdmitted>> {
        self.call(move |connection| Ok(SqliteFence::default().seal(connection, &pass)))
    }

    fn mark(&self, pass: Pass, deliveries: Vec<(u64, Delivery)>) -> Call<'_, Result<(), NotAdmitted>> {
        self.call(move |connection| {
            Ok(step(connection, |tx| {
                SqliteFence::default().check(tx, &pass)?;
                let now_us = clock::unix_us();
                deliveries.iter().try_for_each(|(id, delivery)| mark(tx, *id, delivery, now_us))?;
                Ok(())
            }))
        })
    }
}

fn mark(tx: &Transaction<'_>, id: u64, delivery: &Delivery, now_us: u64) -> Result<(), Error> {
    let (id, now) = (signed(id), signed(now_us));
    let changed = match delivery {
        Delivery::Published => tx.execute(
            "UPDATE leasehold_outbox SET published_unix = ?2, retry_unix = NULL WHERE id = ?1 AND published_unix IS NULL",
            params![id, now],
        ),
        Delivery::Failed { again_in, why } => {
            let again = now.saturating_add(i64::try_from(again_in.as_micros()).unwrap_or(i64::MAX));
            tx.execute(
                "UPDATE leasehold_outbox SET attempts = attempts + 1, retry_unix = ?2, error = ?3 \
                 WHERE id = ?1 AND published_unix IS NULL",
                params![id, again, why],
            )
        }
        Delivery::SetAside { why } => tx.execute(
            "UPDATE leasehold_outbox SET attempts = attempts + 1, set_aside_unix = ?2, error = ?3 \
             WHERE id = ?1 AND published_unix IS NULL",
            params![id, now, why],
        ),
    };
    changed.map(drop).map_err(|error| failure::of("a delivery could not be noted", &error))
}

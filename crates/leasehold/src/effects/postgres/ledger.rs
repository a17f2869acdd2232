//! The tables as seen from outside, on a connection of their own.

use std::time::Duration;

use leasehold_core::{Call, Error, Label, fence::Pass};
use tokio_postgres::{Client, Row, Transaction, types::ToSql};

use super::{bell::PostgresBell, failure, install, script, statements};
use crate::{
    address::Address,
    coordinator::postgres::{Answering, Asker, Dialler, Options},
    effects::{
        key::Key,
        ledger::{Delivery, Due, Events, Fate, Found, Keys, Queue, Store},
        record::{Event, Record, State, json_text, signed},
        relay::Bell,
    },
    fence::{NotAdmitted, Policy, postgres::PostgresFence},
};

const WAITS: &str = "o.published_at IS NULL AND o.set_aside_at IS NULL";

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The tables in a schema.
#[derive(Debug)]
pub(in crate::effects) struct PostgresLedger {
    asker: Asker<Tables>,
    options: Options,
    dialler: Dialler,
}

#[derive(Debug)]
struct Tables {
    fence: PostgresFence,
    name: String,
    /// The quoted name of the schema.
    schema: String,
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl PostgresLedger {
    pub(in crate::effects) async fn connect(address: &Address) -> Result<Self, Error> {
        let options = Options::read(address)?;
        let schema = quoted(&options.schema);
        let dialler = Dialler::new(&options.target, schema.clone())?;
        let fence = PostgresFence::new(Policy::default(), &options.schema);
        let tables = Tables { fence, name: options.schema.clone(), schema };
        Ok(Self { asker: Asker::connect(address, dialler.clone(), tables).await?, options, dialler })
    }

    fn call<T: Send + 'static>(
        &self,
        work: impl for<'a> FnOnce(&'a mut Client, &'a Tables) -> Answering<'a, T> + Send + 'static,
    ) -> Call<'_, T> {
        Box::pin(self.asker.run(work))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn failed(error: tokio_postgres::Error) -> Error {
    failure::of("the effects could not be looked at", &error)
}

/// One change of at most one row.
async fn change(client: &Client, sql: &str, parameters: Parameters<'_>) -> Result<bool, Error> {
    let changed = client.execute(sql, parameters).await;
    Ok(changed.map_err(|error| failure::of_commit(&error))? == 1)
}

pub(super) async fn purge(client: &Client, schema: &str) -> Result<u64, Error> {
    // One snapshot for both: what the first deletes, the second may forget.
    let sql = format!(
        "WITH old AS (SELECT scope, key FROM {schema}.idempotency WHERE state = 'done' AND expires_at <= clock_timestamp()), \
         gone AS (DELETE FROM {schema}.outbox o USING old WHERE o.scope = old.scope AND o.key = old.key \
           AND o.published_at IS NOT NULL RETURNING o.id) \
         DELETE FROM {schema}.idempotency i USING old WHERE i.scope = old.scope AND i.key = old.key AND NOT EXISTS \
           (SELECT FROM {schema}.outbox o WHERE o.scope = i.scope AND o.key = i.key AND o.published_at IS NULL)"
    );
    client.execute(&sql, &[]).await.map_err(|error| failure::of("old keys could not be purged", &error))
}

async fn events(
    client: &Client,
    schema: &str,
    rest: &str,
    parameters: Parameters<'_>,
) -> Result<Vec<Event>, Error> {
    let sql = format!("SELECT {} FROM {schema}.outbox o {rest}", statements::event_columns());
    client.query(&sql, parameters).await.map_err(failed)?.iter().map(statements::event).collect()
}

async fn due(client: &Client, schema: &str, limit: u32) -> Result<Due, Error> {
    // Visible is not settled: a transaction with a lower number may still be under way, and its events come first. A number that
    // no transaction of this server has had yet came with a dump from another one.
    let settled = "(o.xid < pg_snapshot_xmin(pg_current_snapshot()) OR o.xid >= pg_snapshot_xmax(pg_current_snapshot()))";
    let rest = format!(
        "WHERE {WAITS} AND {settled} AND (o.retry_at IS NULL OR o.retry_at <= clock_timestamp()) AND NOT EXISTS \
         (SELECT FROM {schema}.outbox w WHERE w.namespace = o.namespace AND w.resource = o.resource AND (w.xid, w.id) < (o.xid, o.id) \
         AND w.published_at IS NULL AND w.set_aside_at IS NULL AND w.retry_at > clock_timestamp()) ORDER BY o.xid, o.id LIMIT $1"
    );
    let events = events(client, schema, &rest, &[&i64::from(limit)]).await?;
    let sql = format!(
        "SELECT count(*), coalesce((extract(epoch FROM clock_timestamp() - min(o.created_at)) * 1000000)::int8, 0) \
         FROM {schema}.outbox o WHERE {WAITS}"
    );
    let row = client.query_one(&sql, &[]).await.map_err(failed)?;
    let number = |row: &Row, at| row.try_get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0));
    let (waiting, lag) = (number(&row, 0).map_err(failed)?, number(&row, 1).map_err(failed)?);
    Ok(Due { events, waiting, lag: Duration::from_micros(lag) })
}

async fn mark(tx: &Transaction<'_>, schema: &str, id: u64, delivery: &Delivery) -> Result<(), Error> {
    let id = signed(id);
    let one = "WHERE id = $1::int8 AND published_at IS NULL";
    let marked = match delivery {
        Delivery::Published => {
            let sql =
                format!("UPDATE {schema}.outbox SET published_at = clock_timestamp(), retry_at = NULL {one}");
            tx.execute(&sql, &[&id]).await
        }
        Delivery::Failed { again_in, why } => {
            let sql = format!(
                "UPDATE {schema}.outbox SET attempts = attempts + 1, error = $2::text, \
                 retry_at = clock_timestamp() + $3::int8 * interval '1 microsecond' {one}"
            );
            tx.execute(&sql, &[&id, why, &i64::try_from(again_in.as_micros()).unwrap_or(i64::MAX)]).await
        }
        Delivery::SetAside { why } => {
            let sql = format!(
                "UPDATE {schema}.outbox SET attempts = attempts + 1, error = $2::text, set_aside_at = clock_timestamp() {one}"
            );
            tx.execute(&sql, &[&id, why]).await
        }
    };
    marked.map(drop).map_err(|error| failure::of("a delivery could not be noted", &error))
}

async fn mark_all(
    client: &mut Client,
    tables: &Tables,
    pass: &Pass,
    deliveries: &[(u64, Delivery)],
) -> Result<(), NotAdmitted> {
    let tx = client.transaction().await.map_err(failed)?;
    tables.fence.check(&tx, pass).await?;
    for (id, delivery) in deliveries {
        mark(&tx, &tables.schema, *id, delivery).await?;
    }
    tx.commit().await.map_err(|error| failure::of_commit(&error).into())
}

/// A refusal is an answer and leaves the connection alone; a failure ends it.
fn sort(answer: Result<(), NotAdmitted>) -> Result<Result<(), NotAdmitted>, Error> {
    match answer {
        Err(NotAdmitted::Failed(error)) => Err(error),
        other => Ok(other),
    }
}

impl Store for PostgresLedger {
    fn place(&self) -> &str {
        self.asker.place()
    }

    fn install(&self, roles: Vec<String>) -> Call<'_, ()> {
        self.call(move |client, tables| {
            Box::pin(async move {
                let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
                install(client, &script(&tables.name, &roles)?).await
            })
        })
    }

    fn records(&self, which: Keys) -> Call<'_, Vec<Record>> {
        self.call(move |client, tables| {
            Box::pin(async move {
                let sql = format!(
                    "SELECT {} FROM {}.idempotency WHERE ($1::text IS NULL OR scope = $1) AND ($2::text IS NULL OR state = $2) \
                     AND (scope, key) > ($3::text, $4::text) ORDER BY scope, key LIMIT $5::int8",
                    statements::record_columns(),
                    tables.schema
                );
                let after = which.after.as_ref().map_or(("", ""), |key| (key.scope(), key.as_str()));
                let state = which.state.map(State::word);
                let parameters: Parameters<'_> =
                    &[&which.scope, &state, &after.0, &after.1, &i64::from(which.limit)];
                client.query(&sql, parameters).await.map_err(failed)?.iter().map(statements::record).collect()
            })
        })
    }

    fn record(&self, key: Key) -> Call<'_, Option<Record>> {
        self.call(move |client, tables| {
            Box::pin(async move {
                let sql = format!(
                    "SELECT {} FROM {}.idempotency WHERE scope = $1::text AND key = $2::text",
                    statements::record_columns(),
                    tables.schema
                );
                let rows = client.query(&sql, &[&key.scope(), &key.as_str()]).await.map_err(failed)?;
                rows.first().map(statements::record).transpose()
            })
        })
    }

    fn resolve(&self, key: Key, found: Found, by: Label) -> Call<'_, bool> {
        self.call(move |client, tables| {
            Box::pin(async move {
                let (schema, one) =
                    (&tables.schema, "WHERE scope = $1::text AND key = $2::text AND state <> 'done'");
                match found {
                    Found::Done(response) => {
                        let sql = format!(
                            "UPDATE {schema}.idempotency SET state = 'done', response = $3::text::json, \
                             done_at = clock_timestamp(), note = 'resolved by ' || $4::text {one}"
                        );
                        let response = json_text("the response", &response)?;
                        change(client, &sql, &[&key.scope(), &key.as_str(), &response, &by.as_str()]).await
                    }
                    Found::NotDone => {
                        let sql = format!("DELETE FROM {schema}.idempotency {one}");
                        change(client, &sql, &[&key.scope(), &key.as_str()]).await
                    }
                }
            })
        })
    }

    fn events(&self, which: Events) -> Call<'_, Vec<Event>> {
        self.call(move |client, tables| {
            Box::pin(async move {
                let queue = match which.queue {
                    None => "true",
                    Some(Queue::Waiting) => WAITS,
                    Some(Queue::SetAside) => "o.published_at IS NULL AND o.set_aside_at IS NOT NULL",
                    Some(Queue::Published) => "o.published_at IS NOT NULL",
                };
                let rest = format!("WHERE o.id > $1::int8 AND {queue} ORDER BY o.id LIMIT $2::int8");
                events(client, &tables.schema, &rest, &[&signed(which.after), &i64::from(which.limit)]).await
            })
        })
    }

    fn event(&self, id: u64) -> Call<'_, Option<Event>> {
        self.call(move |client, tables| {
            Box::pin(async move {
                Ok(events(client, &tables.schema, "WHERE o.id = $1::int8", &[&signed(id)]).await?.pop())
            })
        })
    }

    fn decide(&self, id: u64, fate: Fate, by: Label) -> Call<'_, bool> {
        self.call(move |client, tables| {
            Box::pin(async move {
                let (aside, note) = match fate {
                    Fate::Retry => (false, None),
                    Fate::SetAside => (true, Some(format!("set aside by {}", by.as_str()))),
                };
                let sql = format!(
                    "UPDATE {}.outbox SET set_aside_at = CASE WHEN $2::bool THEN clock_timestamp() END, attempts = 0, \
                     retry_at = NULL, error = coalesce($3::text, error) WHERE id = $1::int8 AND published_at IS NULL",
                    tables.schema
                );
                change(client, &sql, &[&signed(id), &aside, &note]).await
            })
        })
    }

    fn purge(&self) -> Call<'_, u64> {
        self.call(|client, tables| Box::pin(async move { purge(client, &tables.schema).await }))
    }

    fn due(&self, limit: u32) -> Call<'_, Due> {
        self.call(move |client, tables| Box::pin(async move { due(client, &tables.schema, limit).await }))
    }

    fn bell(&self) -> Result<Option<Box<dyn Bell>>, Error> {
        let bell = PostgresBell::new(&self.options, &self.dialler, &quoted(&self.options.schema))?;
        Ok(bell.map(|bell| Box::new(bell) as Box<dyn Bell>))
    }

    fn seal(&self, pass: Pass) -> Call<'_, Result<(), NotAdmitted>> {
        self.call(move |client, tables| Box::pin(async move { sort(tables.fence.seal(client, &pass).await) }))
    }

    fn mark(&self, pass: Pass, deliveries: Vec<(u64, Delivery)>) -> Call<'_, Result<(), NotAdmitted>> {
        self.call(move |client, tables| {
            Box::pin(async move { sort(mark_all(client, tables, &pass, &deliveries).await) })
        })
    }
}

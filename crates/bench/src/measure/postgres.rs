//! The least that could work on `PostgreSQL`: one prepared statement for each change of one row; and advisory locks.

use std::{future::poll_fn, time::Duration};

use leasehold_testkit::random;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

use super::{
    hand_over::{Turn, hand_overs},
    pairs::{Pair, rate},
    who,
};
use crate::task::{Answer, Failure, Task, failed, number};

/// So many connections take the statements of all tasks.
const CONNECTIONS: usize = 16;
const TABLE: &str = "CREATE TABLE IF NOT EXISTS floor (resource text PRIMARY KEY, token bigint, lease_id text, \
                     granted_at timestamptz, expires_at timestamptz) WITH (fillfactor = 50)";
const TAKE: &str = "INSERT INTO floor AS l VALUES ($1, 1, $2, clock_timestamp(), clock_timestamp() + interval '30 s') \
     ON CONFLICT (resource) DO UPDATE SET token = l.token + 1, lease_id = excluded.lease_id, \
     granted_at = clock_timestamp(), expires_at = clock_timestamp() + interval '30 s' \
     WHERE l.lease_id IS NULL OR l.expires_at <= clock_timestamp() RETURNING token";
const FREE: &str =
    "UPDATE floor SET lease_id = NULL, expires_at = clock_timestamp() WHERE resource = $1 AND lease_id = $2";
const FREE_AND_TELL: &str = "WITH freed AS (UPDATE floor SET lease_id = NULL, expires_at = clock_timestamp() \
                             WHERE resource = $1 AND lease_id = $2) SELECT pg_notify($3, '')";

/// A connection, and what it is told by others.
async fn connect(task: &Task) -> Result<(Client, mpsc::UnboundedReceiver<String>), Failure> {
    let (client, mut connection) = tokio_postgres::connect(&task.url, NoTls).await?;
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(note) = message {
                let _ = tell.send(note.channel().to_owned());
            }
        }
    });
    Ok((client, told))
}

struct Row {
    client: Client,
    take: Statement,
    free: Statement,
}

impl Row {
    async fn connect(task: &Task) -> Result<Self, Failure> {
        let (client, _) = connect(task).await?;
        let (take, free) = (client.prepare(TAKE).await?, client.prepare(FREE).await?);
        Ok(Self { client, take, free })
    }
}

struct Rows(Vec<Row>);

impl Pair for Rows {
    async fn pair(&self, at: usize) -> Result<(), Failure> {
        let row = &self.0[at % self.0.len()];
        let (resource, lease_id) = (format!("orders/{at}"), random::lease_id().to_string());
        let _token = row.client.query_one(&row.take, &[&resource, &lease_id]).await?;
        match row.client.execute(&row.free, &[&resource, &lease_id]).await? {
            1 => Ok(()),
            _ => failed("the floor's row was taken"),
        }
    }
}

struct Advisory(Vec<(Client, Statement, Statement)>);

impl Pair for Advisory {
    async fn pair(&self, at: usize) -> Result<(), Failure> {
        let (client, lock, unlock) = &self.0[at % self.0.len()];
        let key = i64::try_from(at)?;
        let locked: bool = client.query_one(lock, &[&key]).await?.get(0);
        let unlocked: bool = client.query_one(unlock, &[&key]).await?.get(0);
        if locked && unlocked { Ok(()) } else { failed("the advisory lock was taken") }
    }
}

pub(super) async fn pairs(task: &Task) -> Result<Answer, Failure> {
    match task.who.as_str() {
        who::FLOOR => {
            connect(task).await?.0.batch_execute(TABLE).await?;
            let mut rows = Vec::new();
            for _ in 0..CONNECTIONS {
                rows.push(Row::connect(task).await?);
            }
            rate(Rows(rows), task).await
        }
        who::ADVISORY => {
            let mut connections = Vec::new();
            for _ in 0..CONNECTIONS {
                let (client, _) = connect(task).await?;
                let lock = client.prepare("SELECT pg_try_advisory_lock($1)").await?;
                let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
                connections.push((client, lock, unlock));
            }
            rate(Advisory(connections), task).await
        }
        other => failed(format!("nobody called {other} does pairs on postgres")),
    }
}

/// One of a ring: a durable release that names the next, and a durable claim by whoever is named.
struct Neighbour {
    row: Row,
    told: mpsc::UnboundedReceiver<String>,
    tell: Statement,
    lease_id: String,
    next: String,
    holds: bool,
}

impl Turn for Neighbour {
    async fn take(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.holds) && self.told.recv().await.is_none() {
            return failed("the connection ended");
        }
        let _token = self.row.client.query_one(&self.row.take, &[&"handed-over", &self.lease_id]).await?;
        Ok(())
    }

    async fn give(&mut self) -> Result<(), Failure> {
        let told = [&"handed-over" as &(dyn tokio_postgres::types::ToSql + Sync), &self.lease_id, &self.next];
        let _nothing = self.row.client.query(&self.tell, &told).await?;
        Ok(())
    }
}

async fn ring(task: &Task) -> Result<Vec<Neighbour>, Failure> {
    connect(task).await?.0.batch_execute(TABLE).await?;
    let members = task.tasks() + 1;
    let channel = |at: usize| format!("floor_wake_{at}");
    let mut ring = Vec::new();
    for at in 0..members {
        let (client, told) = connect(task).await?;
        client.batch_execute(&format!("LISTEN {}", channel(at))).await?;
        let (take, free) = (client.prepare(TAKE).await?, client.prepare(FREE).await?);
        let tell = client.prepare(FREE_AND_TELL).await?;
        let lease_id = random::lease_id().to_string();
        let (row, next) = (Row { client, take, free }, channel((at + 1) % members));
        ring.push(Neighbour { row, told, tell, lease_id, next, holds: at == 0 });
    }
    Ok(ring)
}

/// One who blocks in `pg_advisory_lock`.
struct Blocked(Client, Statement, Statement);

impl Turn for Blocked {
    async fn take(&mut self) -> Result<(), Failure> {
        self.0.execute(&self.1, &[]).await.map(drop).map_err(Failure::from)
    }

    async fn give(&mut self) -> Result<(), Failure> {
        self.0.execute(&self.2, &[]).await.map(drop).map_err(Failure::from)
    }
}

pub(super) async fn hand_over(task: &Task) -> Result<Answer, Failure> {
    match task.who.as_str() {
        who::FLOOR => hand_overs(ring(task).await?, task).await,
        who::ADVISORY => {
            let mut line = Vec::new();
            for _ in 0..=task.tasks() {
                let (client, _) = connect(task).await?;
                let lock = client.prepare("SELECT pg_advisory_lock(-1)").await?;
                let unlock = client.prepare("SELECT pg_advisory_unlock(-1)").await?;
                line.push(Blocked(client, lock, unlock));
            }
            hand_overs(line, task).await
        }
        other => failed(format!("nobody called {other} hands over on postgres")),
    }
}

/// Updates of our table, as the server counts them.
#[derive(Clone, Copy)]
pub(super) struct Updates {
    all: i64,
    hot: i64,
}

impl Updates {
    pub(super) fn hot_percent_until(self, later: Self) -> f64 {
        let all = u64::try_from(later.all - self.all).unwrap_or(0);
        let hot = u64::try_from(later.hot - self.hot).unwrap_or(0);
        100.0 * number(hot) / number(all).max(1.0)
    }
}

/// Until now. The server writes its counts down with some delay, and at once for the session that asks for it.
pub(super) async fn updates(task: &Task) -> Option<Updates> {
    if task.engine != "postgres" {
        return None;
    }
    // Idle sessions report within a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let (client, _) = connect(task).await.ok()?;
    let counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'leasehold' AND relname = 'slot'";
    let row = client.query_one(counts, &[]).await.ok()?;
    Some(Updates { all: row.get(0), hot: row.get(1) })
}

/// Bytes of our table and its indexes, for each row.
pub(super) async fn row_bytes(task: &Task) -> Result<f64, Failure> {
    let (client, _) = connect(task).await?;
    let size =
        "SELECT pg_total_relation_size('leasehold.slot')::float8 / greatest(1, count(*)) FROM leasehold.slot";
    Ok(client.query_one(size, &[]).await?.get(0))
}

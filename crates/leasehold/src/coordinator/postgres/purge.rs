//! Forgetting resources that nobody has used for a week.
//!
//! Once a minute and a step at a time, whichever client of the namespace comes first. Programs that run for seconds share the
//! work by chance.

use std::{collections::HashSet, sync::Arc, time::Duration};

use leasehold_core::{Error, Resource, Ttl, record::Purged, request::Purge};
use tokio::sync::oneshot;
use tokio_postgres::Row;

use super::{
    PostgresCoordinator,
    answer::unexpected,
    desk::Question,
    step::Setting,
    wire::{Param, Statement},
    worker::Shop,
};
use crate::clock;

/// How many rows one step of forgetting looks at.
const PURGE_STEP: i32 = 1_000;
/// Seven days, the retention of token counters.
#[allow(clippy::cast_possible_wrap, reason = "seven days in microseconds")]
const RETENTION_US: i64 = Ttl::MAX.as_micros() as i64;

/// Goes on until the coordinator is gone, a step every so often.
pub(super) async fn purge(shop: Arc<Shop>, every: Duration) {
    let chance = shop.setting.wake.unwrap_or(0).unsigned_abs() ^ clock::boot_us();
    let most_us = u64::try_from(every.as_micros()).unwrap_or(u64::MAX).max(1);
    let mut pause = Duration::from_micros(chance % most_us);
    let mut after: Option<String> = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shop.desk.closing() => return,
        }
        // A failure is met by the next round.
        if let Some(rows) = ask(&shop, due(&shop.setting, every)).await
            && rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false))
            && let Some(rows) = ask(&shop, step(&shop.setting, after.take(), PURGE_STEP)).await
        {
            after = rows.first().and_then(|row| row.try_get(0).ok().flatten()).or(Some(String::new()));
        }
        pause = every;
    }
}

async fn ask(shop: &Shop, statement: Statement) -> Option<Vec<Row>> {
    let (reply, answered) = oneshot::channel();
    shop.desk.ask(Question { statement, changes: true, reply });
    answered.await.ok()?.ok()
}

/// Whether it is this client's turn.
fn due(setting: &Setting, every: Duration) -> Statement {
    let sql = format!("SELECT {}.purge_due_1($1,$2)", setting.schema);
    let every_us = i64::try_from(every.as_micros()).unwrap_or(i64::MAX);
    Statement { sql, params: vec![setting.space(), Param::Big(Some(every_us))] }
}

/// Forgets what is idle among so many rows after `after`; anywhere when that is `None`. Answers where to go on.
fn step(setting: &Setting, after: Option<String>, rows: i32) -> Statement {
    let sql = format!("SELECT {}.purge_1($1,$2,$3,$4)", setting.schema);
    let params = vec![
        setting.space(),
        Param::MaybeText(after),
        Param::Big(Some(RETENTION_US)),
        Param::Int(Some(rows)),
    ];
    Statement { sql, params }
}

/// The names of so many rows after `after`, and which of them are idle: by the rule of `purge_1`.
fn look(setting: &Setting, after: String, rows: i32) -> Statement {
    let schema = &setting.schema;
    let sql = format!(
        "SELECT s.resource, s.at_us < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $3 AND s.waiting = 0 AND \
         (s.lease_id IS NULL OR EXISTS (SELECT FROM {schema}.space p WHERE p.namespace = $1 AND p.mode <> 'observed')) \
         FROM {schema}.slot s WHERE s.namespace = $1 AND s.resource > $2 ORDER BY s.resource LIMIT $4"
    );
    let params =
        vec![setting.space(), Param::Text(after), Param::Big(Some(RETENTION_US)), Param::Int(Some(rows))];
    Statement { sql, params }
}

impl PostgresCoordinator {
    /// One step for somebody who asks. The function of the schema does not tell what it has forgotten: who was idle and is not
    /// there any more is.
    pub(super) async fn forget(&self, purge: Purge) -> Result<Purged, Error> {
        let setting = &self.shop.setting;
        let after = purge.after.map(|resource| resource.as_str().to_owned()).unwrap_or_default();
        let found = self.looked_at(&after).await?;
        let whole = found.len() == usize::try_from(PURGE_STEP).unwrap_or(0);
        let mut purged = Purged { looked_at: found.len() as u64, ..Purged::default() };
        let mut last = found.last().map(|(name, _)| name.clone());
        let mut idle: Vec<String> =
            found.into_iter().filter(|(_, idle)| *idle).map(|(name, _)| name).collect();
        if !purge.dry_run && !idle.is_empty() {
            let rows = self.ask(step(setting, Some(after.clone()), PURGE_STEP), true).await?;
            // Rows that came in between make its step shorter than our look.
            last = rows.first().and_then(|row| row.try_get(0).ok().flatten());
            let left: HashSet<String> =
                self.looked_at(&after).await?.into_iter().map(|(name, _)| name).collect();
            idle.retain(|name| !left.contains(name));
        }
        let named = |name: &String| Resource::new(name).map_err(|_| unexpected());
        purged.idle = idle.iter().map(named).collect::<Result<_, _>>()?;
        purged.next = last.filter(|_| whole).as_ref().map(named).transpose()?;
        Ok(purged)
    }

    async fn looked_at(&self, after: &str) -> Result<Vec<(String, bool)>, Error> {
        let statement = look(&self.shop.setting, after.to_owned(), PURGE_STEP);
        let rows = self.ask(statement, false).await?;
        let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.iter().map(read).collect::<Result<_, tokio_postgres::Error>>().map_err(|_| unexpected())
    }
}

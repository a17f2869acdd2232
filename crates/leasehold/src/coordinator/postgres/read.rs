//! Looking without touching: one resource, or a page of them.
//!
//! A row becomes a slot of the contract, and the contract says what it means.

use std::time::Duration;

use leasehold_core::{
    Error, HolderId, LeaseId, Resource, Ttl,
    record::{Inspection, Notice, Page, Past, WaiterInfo},
    request::Listing,
    slot::{Held, Now, Slot},
};
use tokio_postgres::Row;

use super::{
    PostgresCoordinator,
    answer::{end, label, token, unexpected, unsigned},
    options::Expiry,
    sight::Seen,
    wire::{Id, Param, Statement},
};
use crate::coordinator::rules;

/// Behind every name that a prefix begins: no character is higher, and no name longer.
const LAST: &str = "\u{10FFFF}";
/// Rows of one look (ours: a page of the largest size takes four).
const ROWS: i32 = 256;

/// The namespace as it was found.
#[derive(Clone, Debug)]
pub(super) struct State {
    now: Now,
    /// Time until it grants, by the server's clock.
    quarantine: Option<Duration>,
    /// The quarantine that is on, and how long it lasts.
    epoch: Option<(i32, i64)>,
    pub(super) mode: Option<String>,
    pub(super) max_ttl: Option<Ttl>,
}

fn bad<E>(_: E) -> Error {
    unexpected()
}

impl State {
    pub(super) fn statement(schema: &str, space: Param) -> Statement {
        Statement { sql: format!("SELECT * FROM {schema}.state_1($1)"), params: vec![space] }
    }

    pub(super) fn read(rows: &[Row], default_ms: i64) -> Result<Self, Error> {
        let row = rows.first().ok_or_else(unexpected)?;
        let now_us: i64 = row.try_get(0).map_err(bad)?;
        let incarnation: Option<String> = row.try_get(1).map_err(bad)?;
        let known: Option<String> = row.try_get(3).map_err(bad)?;
        let epoch: Option<i32> = row.try_get(4).map_err(bad)?;
        let longest: i64 = row.try_get::<_, Option<i64>>(6).map_err(bad)?.unwrap_or(default_ms);
        let until: Option<i64> = row.try_get(7).map_err(bad)?;
        let max_ms: Option<i64> = row.try_get(5).map_err(bad)?;
        // A namespace that is not there, or believes to be on another server, begins its quarantine at the first claim.
        let left_us = if known.is_some() && known == incarnation {
            until.unwrap_or(0).saturating_sub(now_us)
        } else {
            longest.saturating_mul(1_000)
        };
        let on = known.is_none() || known != incarnation || until.is_some_and(|until| until > 0);
        let now = Now { clock_us: now_us.unsigned_abs(), unix_us: now_us.unsigned_abs() };
        Ok(Self {
            now,
            quarantine: u64::try_from(left_us).ok().filter(|&left| left > 0).map(Duration::from_micros),
            epoch: on.then_some((epoch.unwrap_or(0), longest)),
            mode: row.try_get(2).map_err(bad)?,
            max_ttl: max_ms.map(|ms| Ttl::from_millis(ms.unsigned_abs())).transpose().map_err(bad)?,
        })
    }
}

impl PostgresCoordinator {
    pub(super) async fn state(&self) -> Result<State, Error> {
        let setting = &self.shop.setting;
        let rows = self.ask(State::statement(&setting.schema, setting.space()), false).await?;
        State::read(&rows, setting.made_ms())
    }

    /// Time until the namespace grants.
    fn quarantine(&self, state: &State) -> Option<Duration> {
        match (self.shop.setting.expiry, state.epoch) {
            (Expiry::ServerClock | Expiry::Session, _) => state.quarantine,
            (Expiry::Observed, Some((epoch, longest))) => {
                let left = self.sights.note_quarantine(epoch, longest);
                Some(left.min(Duration::from_millis(longest.unsigned_abs()))).filter(|left| !left.is_zero())
            }
            (Expiry::Observed, None) => None,
        }
    }

    pub(super) async fn look(&self, resource: Resource) -> Result<Inspection, Error> {
        let state = self.state().await?;
        let name = resource.as_str().to_owned();
        let rows = self.rows(&name, "", &name, 1, true).await?;
        let Some(row) = rows.first() else {
            return Ok(rules::inspection(resource, &Slot::default(), Vec::new(), 0, state.now));
        };
        let mut item = self.item(row, state.now)?;
        if item.waiting > 0 {
            item.waiters = self.waiters(&resource).await?;
            item.waiting = item.waiting.max(u32::try_from(item.waiters.len()).unwrap_or(u32::MAX));
        }
        Ok(item)
    }

    pub(super) async fn page(&self, listing: Listing) -> Result<Page, Error> {
        let state = self.state().await?;
        let mut page = Page { items: Vec::new(), more: false, quarantine: self.quarantine(&state) };
        let to = format!("{}{}", listing.prefix, LAST.repeat(64));
        let mut after = listing.after.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default();
        let wanted = usize::from(listing.limit) + 1;
        while page.items.len() < wanted {
            let rows = self.rows(&listing.prefix, &after, &to, ROWS, listing.free_too).await?;
            let Some(last) = rows.last() else { break };
            after = last.try_get(0).map_err(bad)?;
            for row in &rows {
                let item = self.item(row, state.now)?;
                let listed = listing.free_too || item.record.is_some() || item.waiting > 0;
                if listed && item.resource.as_str().starts_with(&listing.prefix) && page.items.len() < wanted
                {
                    page.items.push(item);
                }
            }
            if rows.len() < usize::try_from(ROWS).unwrap_or(0) {
                break;
            }
        }
        page.more = page.items.len() == wanted;
        page.items.truncate(wanted - 1);
        Ok(page)
    }

    async fn rows(
        &self,
        from: &str,
        after: &str,
        to: &str,
        limit: i32,
        free_too: bool,
    ) -> Result<Vec<Row>, Error> {
        let sql = format!("SELECT * FROM {}.list_1($1,$2,$3,$4,$5,$6)", self.shop.setting.schema);
        let params = vec![
            self.shop.setting.space(),
            Param::Text(from.to_owned()),
            Param::Text(after.to_owned()),
            Param::Text(to.to_owned()),
            Param::Int(Some(limit)),
            Param::Bool(free_too),
        ];
        self.ask(Statement { sql, params }, false).await
    }

    async fn waiters(&self, resource: &Resource) -> Result<Vec<WaiterInfo>, Error> {
        let sql = format!("SELECT * FROM {}.waiters_1($1,$2,$3)", self.shop.setting.schema);
        let most = i32::try_from(Inspection::MAX_WAITERS).unwrap_or(100);
        let params = vec![
            self.shop.setting.space(),
            Param::Text(resource.as_str().to_owned()),
            Param::Int(Some(most)),
        ];
        let rows = self.ask(Statement { sql, params }, false).await?;
        let read = |row: &Row| {
            let lease_id: Id = row.try_get(0).map_err(bad)?;
            let text: Option<String> = row.try_get(1).map_err(bad)?;
            let waited: i64 = row.try_get(2).map_err(bad)?;
            Ok(WaiterInfo {
                lease_id: LeaseId::from_bytes(lease_id.0),
                label: label(text.as_deref()),
                waited: Duration::from_micros(waited.unsigned_abs()),
            })
        };
        rows.iter().map(read).collect()
    }

    /// The grants that have ended, the latest first.
    pub(super) async fn past(&self, resource: Resource) -> Result<Vec<Past>, Error> {
        let state = self.state().await?;
        let name = resource.as_str().to_owned();
        let rows = self.rows(&name, "", &name, 1, true).await?;
        let lapsed = match rows.first() {
            Some(row) => self.known(row, state.now)?.1.lapsed(state.now),
            None => None,
        };
        let sql = format!("SELECT * FROM {}.history_1($1,$2)", self.shop.setting.schema);
        let params = vec![self.shop.setting.space(), Param::Text(name)];
        let rows = self.ask(Statement { sql, params }, false).await?;
        let mut found: Vec<Past> = rows.iter().map(past).collect::<Result<_, _>>()?;
        // It may have been found between the two looks.
        let lapsed =
            lapsed.filter(|lapsed| found.first().is_none_or(|first| first.end.token < lapsed.end.token));
        found.splice(0..0, lapsed);
        found.truncate(Past::KEPT);
        Ok(found)
    }

    fn item(&self, row: &Row, now: Now) -> Result<Inspection, Error> {
        let (resource, slot, waiting) = self.known(row, now)?;
        Ok(rules::inspection(resource, &slot, Vec::new(), waiting, now))
    }

    /// A row of a list: the resource, its slot as of now, how many wait.
    fn known(&self, row: &Row, now: Now) -> Result<(Resource, Slot, u32), Error> {
        let name: String = row.try_get(0).map_err(bad)?;
        let resource = Resource::new(&name).map_err(bad)?;
        let mut slot = slot(row)?;
        let seen = Seen {
            token: row.try_get::<_, Option<i64>>(1).map_err(bad)?.unwrap_or(0),
            seq: row.try_get(5).map_err(bad)?,
        };
        let span: Option<i32> = row.try_get(7).map_err(bad)?;
        match &mut slot.held {
            // The server's clock does not say when this one ends: our own does.
            Some(held) if self.is_watched(held.expires_us, span, now) => {
                let left = self.sights.note(&resource, seen, i64::from(span.unwrap_or(0)));
                let left = left.min(Duration::from_millis(u64::try_from(span.unwrap_or(0)).unwrap_or(0)));
                held.expires_us =
                    now.clock_us.saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX));
            }
            _ => self.sights.forget(&resource),
        }
        let waiting: i64 = row.try_get(19).map_err(bad)?;
        Ok((resource, slot, u32::try_from(waiting).unwrap_or(u32::MAX)))
    }

    fn is_watched(&self, expires_us: u64, span_ms: Option<i32>, now: Now) -> bool {
        let span_us = u64::try_from(span_ms.unwrap_or(0)).unwrap_or(0).saturating_mul(1_000);
        self.shop.setting.expiry == Expiry::Observed || expires_us.saturating_sub(now.clock_us) > span_us
    }
}

fn past(row: &Row) -> Result<Past, Error> {
    let text = |at: usize| row.try_get::<_, Option<String>>(at).map_err(bad);
    let big = |at: usize| row.try_get::<_, Option<i64>>(at).map_err(bad);
    let id = |at: usize| row.try_get::<_, Id>(at).map_err(bad);
    let (how, by, note) = (text(2)?, text(3)?, text(4)?);
    Ok(Past {
        holder_id: HolderId::from_bytes(id(6)?.0),
        label: label(text(7)?.as_deref()),
        granted_us: unsigned(big(8)?),
        end: end(id(0)?, big(1)?, how.as_deref(), by.as_deref(), note.as_deref(), big(5)?)?,
    })
}

fn slot(row: &Row) -> Result<Slot, Error> {
    let text = |at: usize| row.try_get::<_, Option<String>>(at).map_err(bad);
    let big = |at: usize| row.try_get::<_, Option<i64>>(at).map_err(bad);
    let id = |at: usize| row.try_get::<_, Option<Id>>(at).map_err(bad);
    let last_token = big(1)?.map(|value| token(Some(value))).transpose()?;
    let held = match (id(8)?, last_token) {
        (Some(lease_id), Some(token)) => Some(Held {
            lease_id: LeaseId::from_bytes(lease_id.0),
            token,
            ttl: Ttl::from_millis(u64::try_from(row.try_get::<_, i32>(6).map_err(bad)?).map_err(bad)?)
                .map_err(bad)?,
            expires_us: unsigned(big(2)?),
            granted_us: unsigned(big(3)?),
            holder_id: HolderId::from_bytes(id(9)?.ok_or_else(unexpected)?.0),
            label: label(text(10)?.as_deref()),
            revoked: match text(11)? {
                Some(by) => Some(Notice { by: label(Some(&by)), reason: label(text(12)?.as_deref()) }),
                None => None,
            },
        }),
        (Some(_), None) => return Err(unexpected()),
        (None, _) => None,
    };
    let last_end = match id(15)? {
        Some(lease_id) => Some(end(
            lease_id,
            big(13)?,
            text(16)?.as_deref(),
            text(17)?.as_deref(),
            text(18)?.as_deref(),
            big(14)?,
        )?),
        None => None,
    };
    let free_since_us = if held.is_some() { 0 } else { unsigned(big(2)?) };
    Ok(Slot {
        last_token,
        held,
        free_since_us,
        last_end,
        last_success_us: big(4)?.map(|us| unsigned(Some(us))),
    })
}

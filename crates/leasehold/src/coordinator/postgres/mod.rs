//! `PostgreSQL`: a lease table, or a session's advisory locks.
//!
//! ```text
//!   callers ──▶ desk ──▶ worker ──▶ one statement, one commit ──▶ answers
//!   (futures)  (what has gathered)   (functions of the schema)
//!                          │ rows that another session has locked
//!                          └──▶ aside ──▶ alone, on a connection of its own
//!   NOTIFY in the releasing transaction ──▶ the first in line's own channel ──▶ mailbox
//! ```
//!
//! All decisions are made by functions of the schema (`sql/`), which mirror [`leasehold_core::slot`]: one call, one
//! statement, one round trip, one commit. What this folder adds is what a database cannot give by itself: sharing of commits
//! (`desk`, `worker`), certainty about what may have been committed (`failure`, `link`), expiry without trust in the server's
//! clock (`sight`), and an honest label (`profile`).
//!
//! | question | file |
//! | --- | --- |
//! | what does the URL say, who logs in? | `options`, `passfile` |
//! | how is a connection made, and what comes unasked? | `open`, `link`, `listener` |
//! | what is sent, together with what? | `desk`, `worker`, `step`, `wire`, `purge` |
//! | what does an answer mean? | `answer`, `read`, `failure` |
//! | is this deployment sound? | `examine`, `judge`, `profile` |
//! | which schema is there? | `schema`, `ident`, `sql/` |
//!
//! # Why a statement is a transaction
//!
//! A lone statement commits when the server has read the end of it, and needs nothing more from us: a connection that dies
//! half-way leaves all of it or nothing, and never a lock. It holds no session state, so a pooler in between does no harm. The
//! functions themselves refuse any isolation but READ COMMITTED and set `synchronous_commit` for the transaction they run in.
//!
//! # Limits
//!
//! Two servers that both believe to be the primary cannot be told apart from here. A database whose files are put back from a
//! copy without recovery goes back in time unseen, as far as its tokens are not above what clients remember.

mod answer;
mod asker;
mod desk;
mod discard;
mod examine;
mod failure;
mod ident;
mod judge;
pub(super) mod link;
mod listener;
mod open;
mod options;
mod passfile;
mod profile;
mod purge;
mod read;
mod schema;
mod sight;
mod step;
mod wire;
mod worker;

pub(crate) use self::profile::deployments;
use std::{pin::Pin, sync::Arc, time::Duration};

use leasehold_core::{
    Call, Coordinator, Error, Kind, LeaseId, Resource, Token, Ttl,
    line::{RECHECK_FRONT, recheck},
    profile::Profile,
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, MAX_LOCK_DELAY, Preparation, Purge, Release, Renewal, Revocation},
};
use tokio::sync::oneshot;
use tokio_postgres::Row;

pub(crate) use self::discard::discard;
#[doc(hidden)]
pub use self::open::climb;
pub use self::options::{Expiry, Listen, Mode, Options, Target, Tls};
use self::{
    answer::Answer,
    desk::{Attempt, Job, Question},
    sight::Sights,
    step::{Op, Step},
    wire::{Param, Statement, signed},
    worker::Shop,
};
#[cfg(feature = "effects")]
pub(crate) use self::{asker::Answering, link::Link, listener::has_own_session};
pub(crate) use self::{asker::Asker, link::Dialler};
pub use self::{examine::examine, open::connect};
use super::rules;
use crate::fork;

/// A coordinator of one namespace in a `PostgreSQL` database, on its lease table.
#[derive(Debug)]
pub struct PostgresCoordinator {
    profile: Profile,
    shop: Arc<Shop>,
    sights: Sights,
    generation: u32,
}

impl PostgresCoordinator {
    /// # Errors
    /// In a forked child, whose connection is its parent's as well.
    fn check(&self) -> Result<(), Error> {
        if fork::generation() == self.generation {
            return Ok(());
        }
        Err(Error::new(Kind::Unsupported, "the connection was made before this process was forked")
            .at(&self.profile.place)
            .advise("a forked child must connect by itself"))
    }

    fn gone(&self) -> Error {
        Error::new(Kind::Unknown, "the connection's worker has ended").at(&self.profile.place)
    }

    fn job(&self, op: Op) -> (Job, oneshot::Receiver<Result<Answer, Error>>) {
        let (reply, answered) = oneshot::channel();
        let seen_epoch = match (&op, self.shop.setting.expiry) {
            (Op::Acquire(_), Expiry::Observed) => self.sights.ripe_quarantine(),
            _ => None,
        };
        let mut step = Step { op, seen: None, seen_epoch };
        step.seen = self.sights.ripe(step.resource());
        (Job { step, attempt: Attempt::Together, reply }, answered)
    }

    async fn step(&self, op: Op) -> Result<Answer, Error> {
        self.check()?;
        let (job, answered) = self.job(op);
        self.shop.desk.submit(job);
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    async fn ask(&self, statement: Statement, changes: bool) -> Result<Vec<Row>, Error> {
        self.check()?;
        let (reply, answered) = oneshot::channel();
        self.shop.desk.ask(Question { statement, changes, reply });
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    async fn claim(&self, claim: Claim) -> Result<Acquired, Error> {
        claim.check().map_err(|invalid| Error::from(invalid).on(&claim.resource))?;
        // Who waits is woken when it is its turn, and who holds when its grant is revoked: before either can be.
        self.shop.desk.listen();
        let answer = self.step(Op::Acquire(claim.clone())).await?;
        let told = self.watched(&claim.resource, &answer);
        let acquired = answer.acquired(&claim);
        let acquired = acquired.map_err(|error| error.at(&self.profile.place).on(&claim.resource))?;
        Ok(self.by_own_clock(acquired, told))
    }

    /// Notes what an answer shows of another's grant, or of the quarantine. Time left by this client's own clock, where that
    /// one decides.
    fn watched(&self, resource: &Resource, answer: &Answer) -> Option<Duration> {
        let observed = self.shop.setting.expiry == Expiry::Observed;
        match (answer.word.as_str(), answer.seen()) {
            ("busy", Some((seen, span_ms))) => {
                let more_than_it_can_have = answer.left() > Duration::from_millis(span_ms.unsigned_abs());
                let span = Duration::from_millis(span_ms.unsigned_abs());
                (observed || more_than_it_can_have)
                    .then(|| self.sights.note(resource, seen, span_ms).min(span))
            }
            ("quarantined", _) if observed => {
                let longest_ms = answer.span_ms.unwrap_or(0);
                let left = self.sights.note_quarantine(answer.seq.unwrap_or(0), longest_ms);
                Some(left.min(Duration::from_millis(longest_ms.unsigned_abs())))
            }
            _ => {
                self.sights.forget(resource);
                None
            }
        }
    }

    fn by_own_clock(&self, acquired: Acquired, left: Option<Duration>) -> Acquired {
        // Ripe already, but not when the request left: ask again at once.
        let least = Duration::from_millis(1);
        match (acquired, left) {
            (Acquired::Busy(mut busy), Some(left)) => {
                busy.holder.remaining = left.max(least);
                busy.recheck = recheck(busy.position.unwrap_or(0), busy.holder.remaining);
                Acquired::Busy(busy)
            }
            (Acquired::Quarantined { position, .. }, Some(left)) => {
                Acquired::Quarantined { remaining: left.max(least), position }
            }
            // Nobody is woken when a quarantine ends, and a purely timed wait looks again as the front of a line does.
            (Acquired::Busy(mut busy), None) if !self.profile.capabilities.wakes => {
                busy.recheck = busy.recheck.min(RECHECK_FRONT);
                Acquired::Busy(busy)
            }
            (other, _) => other,
        }
    }

    async fn renewals(&self, renewals: Vec<Renewal>) -> Result<Vec<Result<Renewed, Error>>, Error> {
        self.check()?;
        let mut jobs = Vec::with_capacity(renewals.len());
        let mut waiting = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            let ttl = renewal.ttl;
            if renewal.lock_delay > MAX_LOCK_DELAY {
                let error = Error::new(Kind::Invalid, "lock-delay must be at most 1h").on(&renewal.resource);
                waiting.push(Err(error));
                continue;
            }
            let resource = renewal.resource.clone();
            let (job, answered) = self.job(Op::Renew(renewal));
            jobs.push(job);
            waiting.push(Ok((ttl, resource, answered)));
        }
        self.shop.desk.submit_all(jobs);
        let mut answers = Vec::with_capacity(waiting.len());
        for one in waiting {
            answers.push(match one {
                Err(error) => Err(error),
                Ok((ttl, resource, answered)) => {
                    let answer = answered.await.unwrap_or_else(|_| Err(self.gone()));
                    answer
                        .and_then(|answer| answer.renewed(ttl))
                        .map_err(|error| error.at(&self.profile.place).on(&resource))
                }
            });
        }
        Ok(answers)
    }

    pub(super) fn dialler(&self) -> Dialler {
        self.shop.dialler.clone()
    }

    /// Makes another connection, for whatever needs one of its own.
    pub(super) async fn dial(&self) -> Result<link::Link, Error> {
        self.shop.dialler.dial(Arc::new(|_| {})).await
    }

    /// Ends a grant if the session that keeps `key` has ended. True when that was so.
    pub(super) async fn bury(
        &self,
        resource: &Resource,
        lease_id: LeaseId,
        token: Token,
        key: i64,
    ) -> Result<bool, Error> {
        let setting = &self.shop.setting;
        let sql = format!("SELECT {}.bury_1($1,$2,$3,$4,$5,$6,$7)", setting.schema);
        let params = vec![
            setting.space(),
            setting.mode(),
            Param::Big(Some(setting.made_ms())),
            Param::Text(resource.as_str().to_owned()),
            Param::Id(lease_id.into()),
            Param::Big(Some(signed(token.get()))),
            Param::Big(Some(key)),
        ];
        let rows = self.ask(Statement { sql, params }, true).await?;
        Ok(rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
    }

    async fn prepared(&self, preparation: Preparation) -> Result<Prepared, Error> {
        let setting = &self.shop.setting;
        let sql = format!("SELECT * FROM {}.prepare_1($1,$2,$3,$4,$5)", setting.schema);
        let params = vec![
            setting.space(),
            setting.mode(),
            Param::Big(Some(setting.made_ms())),
            Param::Bool(preparation.fresh),
            Param::Big(preparation.max_ttl.map(|ttl| signed(ttl.as_millis()))),
        ];
        let rows = self.ask(Statement { sql, params }, true).await?;
        let row = rows.first().ok_or_else(answer::unexpected)?;
        let (word, max_ms, left): (&str, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if word == "exists" {
            return Err(rules::not_fresh(setting.namespace.as_str()).at(&self.profile.place));
        }
        let left = Duration::from_micros(left.unsigned_abs());
        Ok(Prepared {
            created: word == "made",
            max_ttl: Ttl::from_millis(max_ms.unsigned_abs()).map_err(|_| answer::unexpected())?,
            quarantine: Some(left).filter(|left| !left.is_zero()),
            place: setting.place.clone(),
        })
    }
}

impl Drop for PostgresCoordinator {
    fn drop(&mut self) {
        self.shop.desk.close();
        self.shop.aside.close();
    }
}

impl Coordinator for PostgresCoordinator {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(self.claim(claim))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        Box::pin(self.renewals(renewals))
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(async move {
            let resource = release.resource.clone();
            let answer = self.step(Op::Release(release)).await;
            answer.and_then(Answer::released).map_err(|error| error.at(&self.profile.place).on(&resource))
        })
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        Box::pin(async move {
            let (resource, now) = (revocation.resource.clone(), revocation.now);
            let answer = self.step(Op::Revoke(revocation)).await;
            answer
                .and_then(|answer| answer.revoked(now))
                .map_err(|error| error.at(&self.profile.place).on(&resource))
        })
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        Box::pin(self.look(resource))
    }

    fn history(&self, resource: Resource) -> Call<'_, Vec<Past>> {
        Box::pin(async move {
            let past = self.past(resource.clone()).await.map_err(Error::without_effect);
            past.map_err(|error| error.on(&resource).at(&self.profile.place))
        })
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(async move {
            rules::check_listing(&listing)?;
            self.page(listing).await
        })
    }

    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        Box::pin(async move { self.forget(purge).await.map_err(|error| error.at(&self.profile.place)) })
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        Box::pin(self.prepared(preparation))
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(self.shop.mailbox.next())
    }
}

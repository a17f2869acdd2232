//! The session that keeps the locks.
//!
//! A task of its own has the connection. When that ends it makes another, has the server end what is left of the one before, and
//! takes the locks again: a grant that nobody has buried in between still stands, and its next renewal says so.

use std::{collections::HashMap, sync::Arc, time::Duration};

use leasehold_core::{Error, Kind, LeaseId, Resource};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::{ToSql, Type};

use super::key;
use crate::{
    clock,
    coordinator::postgres::link::{Dialler, Link},
};

/// How long the server may take to lock something that nobody else can have.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts to connect again, and to have a lock that a dead session of ours still keeps.
const PAUSE: Duration = Duration::from_millis(500);
/// A lock is kept for this long after its grant must have ended without a word.
const GRACE_US: u64 = 5_000_000;

/// Shared with whoever else keeps the number alive: a second claimant of the same lease id, or of another one with this number. Who
/// buries tries to have it alone.
const LOCK: &str = "SELECT pg_try_advisory_lock_shared($1)";
const UNLOCK: &str = "SELECT pg_advisory_unlock_shared($1)";
/// How often, every [`STEP`], a session before this one is looked for until it has ended.
const LOOKS: u32 = 40;
const STEP: Duration = Duration::from_millis(50);

/// Whose lock it is: a claim, and the grant that comes of it. Several may share a number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct User {
    resource: Resource,
    lease_id: LeaseId,
}

impl User {
    pub(super) fn new(resource: &Resource, lease_id: LeaseId) -> Self {
        Self { resource: resource.clone(), lease_id }
    }
}

enum Order {
    Lock(User, Duration, oneshot::Sender<Result<bool, Error>>),
    Extend(User, Duration),
    Unlock(User),
}

/// The client's end.
#[derive(Debug)]
pub(super) struct Session {
    orders: mpsc::UnboundedSender<Order>,
}

/// One lock that we want.
#[derive(Default)]
struct Wanted {
    /// Those who want it, and until when at the latest. Never empty.
    users: HashMap<User, u64>,
    /// False between the end of a session and the moment at which the next one has the lock.
    had: bool,
}

/// A session, as the server knows it: a process id alone may be used again.
#[derive(Clone)]
struct Identity {
    pid: i32,
    begun_us: i64,
}

struct Keeper {
    dialler: Dialler,
    link: Option<Link>,
    /// The last session that could be asked who it is. It may be another than the link's, and then it is over.
    identity: Option<Identity>,
    wanted: HashMap<i64, Wanted>,
}

/// True when two connections share a session: there is a pooler in between, for certain.
pub(super) async fn is_shared(one: &Link, other: &Link) -> Result<bool, Error> {
    let failed = |error: tokio_postgres::Error| {
        Error::new(Kind::Unavailable, format!("the session could not be asked: {error}"))
    };
    let sql = "SELECT pg_backend_pid()";
    for _ in 0..3 {
        let mine: i32 = one.client.query_typed_one(sql, &[]).await.map_err(failed)?.get(0);
        other.client.batch_execute("BEGIN").await.map_err(failed)?;
        let theirs: i32 = other.client.query_typed_one(sql, &[]).await.map_err(failed)?.get(0);
        other.client.batch_execute("COMMIT").await.map_err(failed)?;
        if mine == theirs {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Somebody has the number alone: a program with locks of its own, or a burial of whoever had it last.
fn taken() -> Error {
    Error::new(
        Kind::Unavailable,
        "the number of this lease id collides with a lock that another session keeps to itself, so nothing could prove that this \
         holder lives",
    )
    .advise("claim again with a new lease id; a new acquire draws one by itself")
}

fn until(lasts: Duration) -> u64 {
    clock::boot_us()
        .saturating_add(u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX))
        .saturating_add(GRACE_US)
}

impl Session {
    pub(super) fn keep(link: Link, dialler: Dialler) -> Self {
        let (orders, taken) = mpsc::unbounded_channel();
        let keeper = Keeper { dialler, link: Some(link), wanted: HashMap::new(), identity: None };
        tokio::spawn(keeper.serve(taken));
        Self { orders }
    }

    /// Locks the number of a claim that is about to be sent. True when it has been this claim's before.
    ///
    /// # Errors
    /// [`Kind::Unavailable`], also when another session has the number alone: nothing was claimed.
    pub(super) async fn lock(&self, user: User, lasts: Duration) -> Result<bool, Error> {
        let gone = || Error::new(Kind::Unavailable, "the session that keeps the locks has ended");
        let (reply, answered) = oneshot::channel();
        self.orders.send(Order::Lock(user, lasts, reply)).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// The grant lasts longer.
    pub(super) fn extend(&self, user: User, lasts: Duration) {
        let _ = self.orders.send(Order::Extend(user, lasts));
    }

    /// The grant has ended, or was none.
    pub(super) fn unlock(&self, user: User) {
        let _ = self.orders.send(Order::Unlock(user));
    }
}

impl Keeper {
    async fn serve(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        self.identity = self.who().await;
        loop {
            let lost = async {
                if let Some(link) = &self.link {
                    link.ended().await;
                }
            };
            let order = tokio::select! {
                order = orders.recv() => order,
                () = lost => {
                    self.mend().await;
                    continue;
                }
                () = tokio::time::sleep(PAUSE), if !self.is_tidy() => {
                    self.tidy().await;
                    continue;
                }
            };
            match order {
                // The coordinator is gone, and the session goes with it.
                None => return,
                Some(Order::Lock(user, lasts, reply)) => {
                    let answer = self.lock(user, lasts).await;
                    let _ = reply.send(answer);
                }
                Some(Order::Extend(user, lasts)) => {
                    let wanted = self.wanted.get_mut(&key(user.lease_id));
                    if let Some(until_us) = wanted.and_then(|wanted| wanted.users.get_mut(&user)) {
                        *until_us = until(lasts).max(*until_us);
                    }
                }
                Some(Order::Unlock(user)) => self.unlock(&user).await,
            }
        }
    }

    /// Has the session lock a number. `None`: it does not answer any more.
    async fn ask(&self, sql: &str, key: i64) -> Option<bool> {
        let link = self.link.as_ref().filter(|link| link.is_open())?;
        let answer =
            tokio::time::timeout(PATIENCE, link.client.query_typed_one(sql, &[(&key, Type::INT8)])).await;
        answer.ok()?.ok()?.try_get(0).ok()
    }

    /// True when the user has it already.
    async fn lock(&mut self, user: User, lasts: Duration) -> Result<bool, Error> {
        if !self.link.as_ref().is_some_and(Link::is_open) {
            self.mend().await;
        }
        let key = key(user.lease_id);
        // Locks of one session are counted by the server: each number is taken once.
        if !self.wanted.get(&key).is_some_and(|wanted| wanted.had) {
            match self.ask(LOCK, key).await {
                Some(true) => self.wanted.entry(key).or_default().had = true,
                Some(false) => return Err(taken()),
                None => {
                    self.link = None;
                    return Err(Error::new(
                        Kind::Unavailable,
                        "the session that keeps the locks could not lock",
                    ));
                }
            }
        }
        let users = &mut self.wanted.entry(key).or_default().users;
        let known = users.get(&user).copied();
        users.insert(user, until(lasts).max(known.unwrap_or(0)));
        Ok(known.is_some())
    }

    async fn unlock(&mut self, user: &User) {
        let key = key(user.lease_id);
        let Some(wanted) = self.wanted.get_mut(&key) else { return };
        wanted.users.remove(user);
        if !wanted.users.is_empty() {
            return;
        }
        let had = wanted.had;
        self.wanted.remove(&key);
        if had && self.ask(UNLOCK, key).await.is_none() {
            self.link = None;
        }
    }

    /// Who this session is.
    async fn who(&self) -> Option<Identity> {
        let link = self.link.as_ref().filter(|link| link.is_open())?;
        let sql = "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_activity \
                   WHERE pid = pg_backend_pid()";
        let row = tokio::time::timeout(PATIENCE, link.client.query_typed_one(sql, &[])).await.ok()?.ok()?;
        Some(Identity { pid: row.try_get(0).ok()?, begun_us: row.try_get(1).ok()? })
    }

    /// Has the server end the session before this one, which hides our end for as long as the server believes that its client is
    /// there. A role may end its own sessions.
    async fn end(&self, former: &Identity) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE pid = $1 AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2";
        for _ in 0..LOOKS {
            let Some(link) = self.link.as_ref().filter(|link| link.is_open()) else { return };
            let params: [(&(dyn ToSql + Sync), Type); 2] =
                [(&former.pid, Type::INT4), (&former.begun_us, Type::INT8)];
            match tokio::time::timeout(PATIENCE, link.client.query_typed(sql, &params)).await {
                Ok(Ok(rows)) if !rows.is_empty() => tokio::time::sleep(STEP).await,
                _ => return,
            }
        }
    }

    /// Another session takes over what the last one kept.
    async fn mend(&mut self) {
        self.link = None;
        self.wanted.values_mut().for_each(|wanted| wanted.had = false);
        match self.dialler.dial(Arc::new(|_| {})).await {
            Ok(link) => self.link = Some(link),
            Err(_) => return tokio::time::sleep(PAUSE).await,
        }
        if let Some(former) = self.identity.clone() {
            self.end(&former).await;
        }
        // Who it was matters until it is known who comes after it.
        self.identity = self.who().await.or_else(|| self.identity.take());
        self.tidy().await;
    }

    fn is_tidy(&self) -> bool {
        let now_us = clock::boot_us();
        self.wanted
            .values()
            .all(|wanted| wanted.had && wanted.users.values().all(|&until_us| until_us > now_us))
    }

    /// Takes what it has not, and gives up what nobody has spoken of for longer than it can last.
    async fn tidy(&mut self) {
        let now_us = clock::boot_us();
        let users = self.wanted.values().flat_map(|wanted| &wanted.users);
        let stale: Vec<User> =
            users.filter(|&(_, &until_us)| until_us <= now_us).map(|(user, _)| user.clone()).collect();
        for user in stale {
            self.unlock(&user).await;
        }
        let missing: Vec<i64> =
            self.wanted.iter().filter(|(_, wanted)| !wanted.had).map(|(&key, _)| key).collect();
        for key in missing {
            let Some(had) = self.ask(LOCK, key).await else {
                // It may have locked all the same: only with the session that is undone for certain.
                self.link = None;
                return;
            };
            if let Some(wanted) = self.wanted.get_mut(&key) {
                wanted.had = had;
            }
        }
    }
}

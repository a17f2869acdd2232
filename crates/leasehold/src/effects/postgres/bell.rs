//! Word of new events, so that a relay which has found nothing can rest.
//!
//! ```text
//!   a transaction that adds events ─▶ trigger: may I share the lock?  yes: nobody rests. Nothing more is done
//!                                                                     no:  NOTIFY, which goes out with the commit
//!   a relay that has found nothing ─▶ LISTEN, take the lock alone, look once more, rest
//! ```
//!
//! Whoever shares the lock keeps it until its transaction ends. So a relay that has it alone knows that no transaction is under way
//! which has added something in silence, and every later one gives word. Nobody ever waits for the lock: who does not get it at
//! once gives word, or looks from time to time. A busy relay does not hold it, because commits that notify wait for one another.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Call, Error, Kind};
use tokio::{
    sync::{Mutex, Notify},
    time::timeout,
};

use super::failure;
use crate::{
    clock,
    coordinator::postgres::{Dialler, Link, Listen, Options, has_own_session},
    effects::relay::Bell,
    room::Room,
};

/// Asking takes this long at most.
const LIMIT: Duration = Duration::from_secs(5);
/// After a failure it is not asked again before this.
const PAUSE_US: u64 = 5_000_000;
/// Tables without a trigger are not looked at again before this: they wait for `effects install`.
const LONG_PAUSE_US: u64 = 60_000_000;
/// Two numbers, of the lock and of the table. NULL where nobody would give word.
const TAKE: &str = "SELECT t.oid::int8, CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = t.oid \
     AND tgname = 'outbox_wake' AND tgenabled IN ('O', 'A')) \
     THEN pg_catalog.pg_try_advisory_lock(pg_catalog.hashtext('leasehold outbox'), t.oid::int4) END \
     FROM (SELECT $1::text::regclass::oid AS oid) t";
const GIVE_BACK: &str = "SELECT pg_catalog.pg_advisory_unlock(pg_catalog.hashtext('leasehold outbox'), \
     $1::text::regclass::oid::int4)";

/// A connection of its own, made when it is first needed.
pub(super) struct PostgresBell {
    inner: Arc<Inner>,
    room: Room,
}

struct Inner {
    dialler: Dialler,
    /// Whether a pooler may be in between.
    is_to_be_judged: bool,
    /// The outbox, as SQL names it.
    table: String,
    heard: Arc<Notify>,
    is_armed: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// Not before this.
    again_us: u64,
    /// There is a pooler in between.
    is_hopeless: bool,
}

impl fmt::Debug for PostgresBell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBell").field("is_armed", &self.is_armed()).finish_non_exhaustive()
    }
}

impl PostgresBell {
    /// A bell for the outbox in this (quoted) schema; `None` where the URL says that nobody listens.
    pub(super) fn new(options: &Options, dialler: &Dialler, schema: &str) -> Result<Option<Self>, Error> {
        let (dialler, is_to_be_judged) = match &options.listen {
            Listen::Never => return Ok(None),
            Listen::Auto => (dialler.clone(), true),
            Listen::At(target) => (Dialler::new(target, schema.to_owned())?, false),
        };
        let inner = Inner {
            dialler,
            is_to_be_judged,
            table: format!("{schema}.outbox"),
            heard: Arc::default(),
            is_armed: Arc::default(),
            state: Mutex::default(),
        };
        Ok(Some(Self { inner: Arc::new(inner), room: Room::open()? }))
    }
}

impl Bell for PostgresBell {
    fn arm(&self) -> Call<'_, bool> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.room.run(async move { inner.arm().await }))
    }

    fn is_armed(&self) -> bool {
        self.inner.is_armed.load(Ordering::Acquire)
    }

    fn rung(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.inner.heard.notified())
    }

    fn disarm(&self) -> Call<'_, ()> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.room.run(async move { inner.disarm().await }))
    }
}

impl Inner {
    async fn arm(&self) -> Result<bool, Error> {
        let mut state = self.state.lock().await;
        if self.is_armed.load(Ordering::Acquire) {
            return Ok(true);
        }
        if state.is_hopeless || clock::boot_us() < state.again_us {
            return Ok(false);
        }
        let tried = timeout(LIMIT, self.try_to_arm(&mut state)).await;
        let late =
            |_| Err(Error::new(Kind::Unavailable, format!("the database did not answer within {LIMIT:?}")));
        let tried = tried.unwrap_or_else(late);
        if tried.is_err() {
            state.link = None;
            state.again_us = clock::boot_us() + PAUSE_US;
        }
        tried
    }

    async fn try_to_arm(&self, state: &mut State) -> Result<bool, Error> {
        let link = match state.link.take().filter(Link::is_open) {
            Some(link) => Some(link),
            None => self.dial().await?,
        };
        let Some(link) = link else {
            state.is_hopeless = true;
            return Ok(false);
        };
        let failed = |error| failure::of("the outbox gives no word of new events", &error);
        let row = link.client.query_one(TAKE, &[&self.table]).await.map_err(failed)?;
        let (oid, taken) = (row.try_get::<_, i64>(0), row.try_get::<_, Option<bool>>(1));
        match taken.map_err(failed)? {
            Some(true) => {
                // Before anything is looked for again: what is committed from here on is heard.
                let listen = format!("LISTEN leasehold_outbox_{}", oid.map_err(failed)?);
                link.client.batch_execute(&listen).await.map_err(failed)?;
                self.is_armed.store(true, Ordering::Release);
            }
            // A transaction is under way that has added something in silence; or another relay rests.
            Some(false) => {}
            None => state.again_us = clock::boot_us() + LONG_PAUSE_US,
        }
        // Only now: a connection that ends after this is noticed by its task.
        let is_armed = link.is_open() && self.is_armed.load(Ordering::Acquire);
        self.is_armed.store(is_armed, Ordering::Release);
        state.link = Some(link);
        Ok(is_armed)
    }

    /// A connection whose notifications are heard; `None` where there is a pooler in between.
    async fn dial(&self) -> Result<Option<Link>, Error> {
        let begun_us = clock::boot_us();
        let heard = Arc::clone(&self.heard);
        let link = self.dialler.dial(Arc::new(move |_| heard.notify_one())).await?;
        if self.is_to_be_judged {
            let own = has_own_session(&link, begun_us).await;
            let failed = |error| failure::of("the session could not be looked at", &error);
            if !own.map_err(failed)? {
                tracing::debug!(
                    "there is a pooler before the database: the relay looks for events from time to time; name a direct address with listen_url"
                );
                return Ok(None);
            }
        }
        let (mut over, heard, is_armed) = (link.over(), Arc::clone(&self.heard), Arc::clone(&self.is_armed));
        tokio::spawn(async move {
            // An error: its other end is gone, which is what is waited for.
            while over.changed().await.is_ok() {}
            is_armed.store(false, Ordering::Release);
            heard.notify_one();
        });
        Ok(Some(link))
    }

    async fn disarm(&self) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        self.is_armed.store(false, Ordering::Release);
        let Some(link) = state.link.take() else { return Ok(()) };
        let given = timeout(LIMIT, link.client.query_one(GIVE_BACK, &[&self.table])).await;
        match given {
            Ok(Ok(_)) => {
                state.link = Some(link);
                Ok(())
            }
            // With its session ends the lock.
            Ok(Err(error)) => Err(failure::of("the outbox could not be told that nobody rests", &error)),
            Err(_) => {
                Err(Error::new(Kind::Unavailable, format!("the database did not answer within {LIMIT:?}")))
            }
        }
    }
}

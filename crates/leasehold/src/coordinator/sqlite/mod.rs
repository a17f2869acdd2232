//! The embedded engine: one SQLite file, many processes of one machine.
//!
//! ```text
//!   callers ──▶ inbox ──▶ worker thread ──▶ gate ──▶ BEGIN IMMEDIATE … COMMIT ──▶ wakes, answers
//!   (futures)   (queue)   (or a caller      (lock)   (all that has gathered)
//!                          that may block)
//! ```
//!
//! All processes on one kernel share `CLOCK_BOOTTIME`, so expiry needs no agreement between clocks: the file stores boot
//! times, and [`leasehold_core::slot`] decides inside the transaction. What this folder adds is what a file cannot give by
//! itself: order between processes (`gate`), sharing of commits (`inbox`, `worker`), wakes and proof of death (`wake`), what
//! happens when the file is taken away (`horizon`, `open`), and times written by other clocks (`clocks`, `boot`).
//!
//! | question | file |
//! | --- | --- |
//! | how is the file found, made, known to be ours, opened? | `place`, `open`, `schema`, `in_use`, `filesystem` |
//! | what does one request do? | `apply`, `space`, `row`, `line`, `heir`, `read`, `purge`, `discard` |
//! | what is one transaction, and who does it? | `session`, `inbox`, `worker` |
//! | what may go wrong, and what is said then? | `failure` |
//!
//! # Limits
//!
//! A process that is stopped (SIGSTOP) inside a commit blocks the whole file until it goes on or dies. Removing the lock
//! file together with the database, or putting another lease file in its place by hand, cannot be told from a new
//! beginning: holders notice at their next renewal.

mod apply;
mod boot;
mod clocks;
mod discard;
mod examine;
mod failure;
mod filesystem;
mod gate;
mod heir;
mod horizon;
mod in_use;
mod inbox;
mod line;
mod open;
mod past;
mod place;
mod purge;
mod read;
mod request;
mod row;
mod schema;
mod session;
mod space;
#[cfg(test)]
mod tests;
mod wake;
mod worker;

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use leasehold_core::{
    Call, Coordinator, Error, Kind, Namespace, Resource, Ttl,
    profile::{Capabilities, Guarantee, Profile, Promise, QueueOrder},
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
    window::ClockRule,
};
use tokio::{runtime::Handle, sync::oneshot};

pub use self::open::default_path;
use self::{
    apply::Setting,
    heir::Woken,
    inbox::Job,
    request::{Reply, Request},
    session::{Context, Session},
    wake::{Bell, Ringer},
    worker::{Desk, Server},
};
pub(crate) use self::{discard::discard, examine::examine};
use super::mailbox::Mailbox;
use crate::{
    clock::{Clock, SystemClock},
    fork,
    guarantees::Deployment,
};

/// How to open a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// The longest TTL of the namespace as the client was told, by its URL: it must agree with the file. `None` takes the
    /// file's, up to a day.
    pub max_ttl: Option<Ttl>,
    /// The engine's clock. All processes on a file must use the same one: anything but [`SystemClock`] is for tests.
    pub clock: Arc<dyn Clock>,
    /// A runtime with I/O that outlives the coordinator, to listen for wakes on; `None`: a thread of its own.
    pub reactor: Option<Handle>,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_ttl: None, clock: Arc::new(SystemClock), reactor: None }
    }
}

/// A coordinator of one namespace in a SQLite file.
///
/// Calling it blocks nothing: a thread of its own does the work, unless the caller says that it may block
/// ([`crate::blocking`]). It is not for use after `fork`.
#[derive(Debug)]
pub struct SqliteCoordinator {
    profile: Profile,
    desk: Arc<Desk>,
    bell: Bell,
    woken: Woken,
    generation: u32,
}

impl SqliteCoordinator {
    /// Opens the lease file at `path`, making it and its folder where there are none.
    ///
    /// A new file grants at once, unless an older one was removed from under leases that may still run; then claims are
    /// answered [`Acquired::Quarantined`] until the last of them must have ended.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] on a network file system or for a file of a newer format, [`Kind::Invalid`] for a file that is
    /// something else, [`Kind::Corrupt`] for a damaged one, [`Kind::Denied`] without permission, [`Kind::Unavailable`] when
    /// it is locked or the disk is full. Nothing that was there is overwritten.
    pub fn open(path: &Path, namespace: Namespace, options: Options) -> Result<Self, Error> {
        // Its one name, and an absolute one: the process may change its folder later.
        let path = place::resolve(path).map_err(|error| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            error.at(&format!("sqlite:{}", path.display()))
        })?;
        let place = format!("sqlite:{}", path.display());
        Self::begin(path, namespace, options, &place).map_err(|error| error.at(&place))
    }

    fn begin(path: PathBuf, namespace: Namespace, options: Options, place: &str) -> Result<Self, Error> {
        let told_max_ttl = options.max_ttl;
        let session = Session::open(&path, told_max_ttl.unwrap_or(Ttl::LOCAL_MAX), &*options.clock)?;
        let failed = |error| failure::from_io("cannot listen for wakes", &error);
        let mailbox = Arc::new(Mailbox::default());
        let bell = Bell::hang(Arc::clone(&mailbox), options.reactor.as_ref()).map_err(failed)?;
        let ringer = Ringer::new(bell.address(), mailbox).map_err(failed)?;
        let max_ttl = told_max_ttl.or(session.max_ttl(&namespace)?).unwrap_or(Ttl::LOCAL_MAX);
        let setting = Setting { namespace, place: place.to_owned(), told_max_ttl, own: bell.address() };
        let context = Context { setting, ringer, clock: options.clock };
        let desk = Arc::new(Desk::new(Server { path, max_ttl, context, session: Some(session) }));
        Ok(Self {
            profile: profile(place, max_ttl),
            desk,
            bell,
            woken: Woken::default(),
            generation: fork::generation(),
        })
    }

    async fn ask(&self, request: Request) -> Result<Reply, Error> {
        if fork::generation() != self.generation {
            return Err(Error::new(
                Kind::Unsupported,
                "the lease file was opened before this process was forked",
            )
            .at(&self.profile.place)
            .advise("a forked child must open its own"));
        }
        let (answer, answered) = oneshot::channel();
        let job = Job { request, answer: Some(answer) };
        self.desk.submit(job, &self.profile.place, crate::blocking::may_block());
        answered.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// The worker ended without an answer, or answered another question: both are bugs of ours.
    fn gone(&self) -> Error {
        Error::new(Kind::Unknown, "the thread of the lease file has ended unexpectedly")
            .at(&self.profile.place)
    }
}

impl Drop for SqliteCoordinator {
    fn drop(&mut self) {
        // In a forked child the threads do not exist, and the socket is the parent's as well.
        if fork::generation() == self.generation {
            self.desk.inbox.close();
            self.bell.silence();
        }
    }
}

/// What it guarantees.
const GUARANTEE: Guarantee = Guarantee {
    windows: Promise::Yes("A1, one host"),
    tokens: Promise::Yes(""),
    after_failover: "no failover; a reboot frees every lease, a removed file grants nothing until its leases have ended",
    caveat: "one machine only, and not on network file systems",
};
pub(crate) const DEPLOYMENTS: &[Deployment] =
    &[Deployment { url: "sqlite:PATH", what: "the processes of one machine", guarantee: GUARANTEE }];

fn profile(place: &str, max_ttl: Ttl) -> Profile {
    Profile {
        engine: "sqlite",
        place: place.to_owned(),
        capabilities: Capabilities {
            queue: QueueOrder::Fifo,
            wakes: true,
            once_per: true,
            history: true,
            ttl_step_ms: NonZeroU32::MIN,
        },
        clock: ClockRule::Boot,
        max_ttl,
        guarantee: GUARANTEE,
    }
}

macro_rules! ask {
    ($self:ident, $request:expr, $reply:ident) => {
        Box::pin(async move {
            match $self.ask($request).await? {
                Reply::$reply(answer) => Ok(answer),
                _ => Err($self.gone()),
            }
        })
    };
}

impl Coordinator for SqliteCoordinator {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        let woken = self.woken.forget(claim.lease_id);
        ask!(self, if woken { Request::AcquireWoken(claim) } else { Request::Acquire(claim) }, Acquired)
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        ask!(self, Request::Renew(renewals), Renewed)
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        ask!(self, Request::Release(release), Released)
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        ask!(self, Request::Revoke(revocation), Revoked)
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        ask!(self, Request::Inspect(resource), Inspected)
    }

    fn history(&self, resource: Resource) -> Call<'_, Vec<Past>> {
        ask!(self, Request::History(resource), History)
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(async move {
            super::rules::check_listing(&listing)?;
            match self.ask(Request::List(listing)).await? {
                Reply::Listed(page) => Ok(page),
                _ => Err(self.gone()),
            }
        })
    }

    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        ask!(self, Request::Purge(purge), Purged)
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        ask!(self, Request::Prepare(preparation), Prepared)
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(async {
            let wake = self.bell.next().await;
            self.woken.note(wake);
            wake
        })
    }
}

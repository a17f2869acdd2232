//! The thread that serves requests, and the queue in front of it.
//!
//! Whatever has gathered while the disk was busy becomes the next transaction; a lone request never waits for company.
//! The queue is emptied only *after* the gate has been passed and the transaction has begun: until then a request that
//! is dropped has certainly no effect, and one that cannot be served is answered so.
//!
//! A caller that may block (the blocking API says so) serves the queue itself when nobody else does and the gate stands
//! open: that spares it the way to the thread and back, which costs about as much as the disk.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use leasehold_core::{Error, Kind, Ttl};
use tokio::sync::oneshot;

use super::{
    failure,
    gate::{Gate, Passage},
    request::{Reply, Request},
    session::{Context, Done, Session},
};
use crate::{clock, sync::lock};

/// More requests than this wait for the next transaction (ours: keeps a transaction in the milliseconds).
const MAX_BATCH: usize = 1_024;
/// How long the worker looks for more work before it sleeps, giving way to others: about what it takes an asker to wake up
/// and ask again (measured: 20-80 µs; waking this thread instead would add as much to every request).
const LINGER_US: u64 = 100;
/// A writer that has waited this long at the gate waits for a process that is stopped, not slow.
const STUCK_US: u64 = 5_000_000;

pub(super) type Answer = oneshot::Sender<Result<Reply, Error>>;

#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    /// Where the answer goes; nowhere for the worker's own jobs.
    pub(super) answer: Option<Answer>,
}

impl Job {
    /// False once whoever asked has stopped listening.
    fn is_wanted(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| !answer.is_closed())
    }

    fn finish(self, answer: Result<Reply, Error>) {
        if let Some(sender) = self.answer {
            // Whoever has stopped listening knows that the outcome is unknown.
            let _ = sender.send(answer);
        }
    }
}

/// The way to the worker.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    /// The length of the queue, to be looked at without the lock.
    length: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
    sleeping: bool,
    at_gate_since_us: Option<u64>,
    /// The log shall be moved along when there is nothing better to do.
    untidy: bool,
}

/// What the worker is woken for.
enum Call {
    /// Jobs, and whether one of them writes.
    Jobs(bool),
    /// Nothing but a long log.
    Tidy,
}

impl Inbox {
    /// Leaves a job for whoever serves next, and wakes nobody: the sender serves at once.
    fn leave(&self, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        self.length.store(state.jobs.len(), Ordering::Release);
    }

    fn rouse(&self) {
        self.arrived.notify_one();
    }

    fn ask_to_tidy(&self) {
        lock(&self.state).untidy = true;
        self.arrived.notify_one();
    }

    fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }

    /// Leaves a job. Fails the jobs in the queue when the worker has been kept at the gate for too long.
    pub(super) fn send(&self, job: Job, place: &str) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return refuse([job], &ended(place));
        }
        state.jobs.push_back(job);
        let since = state.at_gate_since_us;
        if since.is_some_and(|since| clock::boot_us().saturating_sub(since) > STUCK_US) {
            let jobs = std::mem::take(&mut state.jobs);
            self.length.store(0, Ordering::Relaxed);
            drop(state);
            refuse(jobs, &stuck(place));
            return;
        }
        self.length.store(state.jobs.len(), Ordering::Release);
        let sleeping = state.sleeping;
        drop(state);
        if sleeping {
            self.arrived.notify_one();
        }
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.arrived.notify_one();
    }

    /// Waits for something to do. `None` when there will be nothing any more.
    fn wait(&self) -> Option<Call> {
        let until = clock::boot_us().saturating_add(LINGER_US);
        while self.length.load(Ordering::Acquire) == 0 && clock::boot_us() < until {
            std::thread::yield_now();
        }
        let mut state = lock(&self.state);
        loop {
            if !state.jobs.is_empty() {
                return Some(Call::Jobs(state.jobs.iter().any(|job| job.request.writes())));
            }
            if std::mem::take(&mut state.untidy) {
                return Some(Call::Tidy);
            }
            if state.closed {
                return None;
            }
            state.sleeping = true;
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping = false;
        }
    }

    /// Nobody serves any more: whoever still waits is told so.
    fn abandon(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.jobs.clear();
    }

    fn at_gate(&self, since_us: Option<u64>) {
        lock(&self.state).at_gate_since_us = since_us;
    }

    /// Takes what has gathered and is still wanted. `writing`: what a transaction that only reads cannot do stays.
    fn take(&self, writing: bool) -> Vec<Job> {
        let mut state = lock(&self.state);
        let count = state.jobs.len().min(MAX_BATCH);
        let count = if writing {
            count
        } else {
            state.jobs.iter().take(count).take_while(|job| !job.request.writes()).count()
        };
        let jobs = state.jobs.drain(..count).filter(Job::is_wanted).collect();
        self.length.store(state.jobs.len(), Ordering::Release);
        jobs
    }
}

/// Answers jobs that had certainly no effect.
fn refuse(jobs: impl IntoIterator<Item = Job>, error: &Error) {
    for job in jobs {
        let error = match job.request.resource() {
            Some(resource) => error.clone().on(resource),
            None => error.clone(),
        };
        job.finish(Err(error));
    }
}

fn ended(place: &str) -> Error {
    Error::new(Kind::Unavailable, "the thread of the lease file has ended").at(place)
}

fn stuck(place: &str) -> Error {
    Error::new(Kind::Unavailable, "another process has kept the lease file for more than 5s")
        .at(place)
        .advise("look for a stopped process that uses the file (state T in ps) and continue or end it")
}

/// The queue, and what serves it: the thread, or a caller in its stead.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) inbox: Inbox,
    server: Mutex<Server>,
}

/// What it takes to serve.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) path: PathBuf,
    pub(super) max_ttl: Ttl,
    pub(super) context: Context,
    pub(super) session: Option<Session>,
}

/// Also when the thread panics: requests must not wait for a worker that is gone.
struct Abandon<'a>(&'a Inbox);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Desk {
    pub(super) fn new(server: Server) -> Self {
        Self { inbox: Inbox::default(), server: Mutex::new(server) }
    }

    /// The thread: serves until the inbox is closed.
    pub(super) fn run(&self) {
        let _gone = Abandon(&self.inbox);
        while let Some(call) = self.inbox.wait() {
            let mut server = lock(&self.server);
            match call {
                Call::Tidy => server.tidy(),
                // A caller may have served them meanwhile.
                Call::Jobs(_) if self.inbox.is_empty() => {}
                Call::Jobs(writing) => {
                    if let Err(error) = server.serve(&self.inbox, writing) {
                        let error = error.at(&server.context.setting.place);
                        refuse(self.inbox.take(true), &error);
                    }
                    if writing && server.wants_tidying() {
                        self.inbox.ask_to_tidy();
                    }
                }
            }
        }
    }

    /// Has a job done: by this thread when it may block and nothing stands in the way, else by the worker.
    pub(super) fn submit(&self, job: Job, place: &str, may_block: bool) {
        if may_block
            && let Ok(mut server) = self.server.try_lock()
            && self.inbox.is_empty()
        {
            let writing = job.request.writes();
            self.inbox.leave(job);
            if !server.serve_now(&self.inbox, writing) {
                self.inbox.rouse();
            } else if writing && server.wants_tidying() {
                self.inbox.ask_to_tidy();
            }
        } else {
            self.inbox.send(job, place);
        }
    }
}

impl Server {
    /// The open session: the one there is, or a new one with what is at the path now, when the file was lost or failed.
    fn session(&mut self) -> Result<&mut Session, Error> {
        let session = match self.session.take() {
            Some(session) => session,
            None => Session::open(&self.path, self.max_ttl, &*self.context.clock)?,
        };
        Ok(self.session.insert(session))
    }

    fn wants_tidying(&mut self) -> bool {
        self.session.as_mut().is_some_and(Session::wants_tidying)
    }

    fn tidy(&self) {
        if let Some(session) = &self.session {
            session.tidy();
        }
    }

    /// Serves what has gathered. An error is for all of it, and nothing was changed.
    fn serve(&mut self, inbox: &Inbox, writing: bool) -> Result<(), Error> {
        if !writing {
            return self.transact(inbox, None);
        }
        let gate = self.gate()?;
        inbox.at_gate(Some(clock::boot_us()));
        let passage = gate.pass();
        inbox.at_gate(None);
        let passage = passage.map_err(|error| failure::from_io("cannot lock the lock file", &error))?;
        self.transact(inbox, Some(passage))
    }

    /// The same without waiting at the gate. False when the worker must do it, because somebody else is at it.
    fn serve_now(&mut self, inbox: &Inbox, writing: bool) -> bool {
        let served = if writing {
            match self.gate() {
                Err(error) => Err(error),
                Ok(gate) => match gate.try_pass() {
                    Ok(Some(passage)) => self.transact(inbox, Some(passage)),
                    // A lock file that is ill is the worker's to tell of.
                    Ok(None) | Err(_) => return false,
                },
            }
        } else {
            self.transact(inbox, None)
        };
        if let Err(error) = served {
            refuse(inbox.take(true), &error.at(&self.context.setting.place));
        }
        true
    }

    fn gate(&mut self) -> Result<Arc<Gate>, Error> {
        self.session()?;
        let Self { session, path, context, .. } = self;
        match session {
            Some(session) => session.gate(path, context),
            None => Err(ended(&context.setting.place)),
        }
    }

    fn transact(&mut self, inbox: &Inbox, passage: Option<Passage<'_>>) -> Result<(), Error> {
        self.session()?;
        let Some(session) = &mut self.session else { return Ok(()) };
        let in_place = session
            .is_in_place(&self.path)
            .map_err(|error| failure::from_io("cannot look at the lease file", &error))?;
        if !in_place {
            self.session = None;
            self.lost(inbox);
            return Ok(());
        }
        session.begin(passage.is_some())?;
        let jobs = inbox.take(passage.is_some());
        let requests: Vec<&Request> = jobs.iter().map(|job| &job.request).collect();
        let done = session.apply(&requests, &self.context, passage.as_ref());
        drop(passage);
        self.finish(inbox, jobs, done);
        Ok(())
    }

    /// Tells those who asked.
    fn finish(&mut self, inbox: &Inbox, jobs: Vec<Job>, done: Done) {
        if !done.healthy {
            self.session = None;
        }
        for unheard in done.unheard {
            let job = Job { request: Request::PassOver(unheard), answer: None };
            inbox.send(job, &self.context.setting.place);
        }
        for (job, answer) in jobs.into_iter().zip(done.answers) {
            let answer = answer.map_err(|error| {
                let error = error.at(&self.context.setting.place);
                job.request.resource().map_or(error.clone(), |resource| error.on(resource))
            });
            job.finish(answer);
        }
    }

    fn lost(&self, inbox: &Inbox) {
        let error = Error::new(Kind::Unavailable, "the lease file was removed or replaced by another")
            .at(&self.context.setting.place)
            .advise(
                "leases of the old file are lost; claims go to the file that is there now, once the old leases have ended",
            );
        tracing::error!(path = %self.path.display(), "the lease file was removed or replaced; its leases are lost");
        for job in inbox.take(true) {
            let answer = job.request.lost(&error);
            job.finish(answer);
        }
    }
}

//! The thread that serves requests, and callers in its stead.
//!
//! The queue is emptied only *after* the gate has been passed and the transaction has begun: until then a request that
//! is dropped has certainly no effect, and one that cannot be served is answered so.
//!
//! A caller that may block (the blocking API says so) serves the queue itself when nobody else does and the gate stands
//! open: that spares it the way to the thread and back, which costs about as much as the disk. So the thread is started
//! when there is first something for it: a short command that nobody waits for never needs it.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use leasehold_core::{Error, Kind, Ttl};

use super::{
    failure,
    gate::{Gate, Passage},
    inbox::{Call, Inbox, Job, ended, refuse},
    place::log_of,
    request::{Request, Work},
    session::{Context, Done, Session},
};
use crate::{clock, sync::lock};

/// The queue, and what serves it: the thread, or a caller in its stead.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) inbox: Inbox,
    server: Mutex<Server>,
    /// True once the thread was started.
    started: Mutex<bool>,
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
        Self { inbox: Inbox::default(), server: Mutex::new(server), started: Mutex::new(false) }
    }

    /// The thread: serves until the inbox is closed.
    fn run(&self) {
        let _gone = Abandon(&self.inbox);
        while let Some(call) = self.inbox.wait() {
            let mut server = lock(&self.server);
            match call {
                Call::Tidy => server.tidy(),
                Call::Settle => {
                    let log = server.unsettled_log();
                    // Nobody is kept from working meanwhile.
                    drop(server);
                    log.inspect(|log| settle(log));
                }
                // A caller may have served them meanwhile.
                Call::Jobs(_) if self.inbox.is_empty() => {}
                Call::Jobs(work) => {
                    if let Err(error) = server.serve(&self.inbox, work) {
                        let error = error.at(&server.context.setting.place);
                        refuse(self.inbox.take(Work::Write), &error);
                    }
                    self.look_after(&mut server, work);
                }
            }
        }
    }

    /// Leaves to the thread what has time.
    fn look_after(&self, server: &mut Server, work: Work) {
        if work == Work::Inherit && server.unsettled_log().is_some() {
            self.inbox.ask_to_settle();
        }
        if work.writes() && server.wants_tidying() {
            self.inbox.ask_to_tidy();
        }
    }

    /// Has a job done: by this thread when it may block and nothing stands in the way, else by the worker.
    pub(super) fn submit(self: &Arc<Self>, job: Job, place: &str, may_block: bool) {
        self.take_on(job, place, may_block);
        if !self.inbox.is_idle()
            && let Err(reason) = self.ensure_thread()
        {
            let error = failure::from_io("cannot start the thread of the lease file", &reason).at(place);
            refuse(self.inbox.take(Work::Write), &error);
        }
    }

    fn ensure_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let mut started = lock(&self.started);
        if !*started {
            let desk = Arc::clone(self);
            std::thread::Builder::new().name("leasehold-sqlite".to_owned()).spawn(move || desk.run())?;
            *started = true;
        }
        Ok(())
    }

    fn take_on(&self, job: Job, place: &str, may_block: bool) {
        if may_block
            && let Ok(mut server) = self.server.try_lock()
            && self.inbox.is_empty()
        {
            let work = job.request.work();
            self.inbox.leave(job);
            if server.serve_now(&self.inbox, work) {
                self.look_after(&mut server, work);
            } else {
                self.inbox.rouse();
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

    /// The log, when it may not be on the disk yet.
    fn unsettled_log(&self) -> Option<PathBuf> {
        self.session.as_ref().filter(|session| session.is_unsettled()).map(|_| log_of(&self.path))
    }

    /// Serves what has gathered. An error is for all of it, and nothing was changed.
    fn serve(&mut self, inbox: &Inbox, work: Work) -> Result<(), Error> {
        if !work.writes() {
            return self.transact(inbox, work, None);
        }
        let gate = self.gate()?;
        inbox.at_gate(Some(clock::boot_us()));
        let passage = gate.pass();
        inbox.at_gate(None);
        let passage = passage.map_err(|error| failure::from_io("cannot lock the lock file", &error))?;
        self.transact(inbox, work, Some(passage))
    }

    /// The same without waiting at the gate. False when the worker must do it, because somebody else is at it.
    fn serve_now(&mut self, inbox: &Inbox, work: Work) -> bool {
        let served = if work.writes() {
            match self.gate() {
                Err(error) => Err(error),
                Ok(gate) => match gate.try_pass() {
                    Ok(Some(passage)) => self.transact(inbox, work, Some(passage)),
                    // A lock file that is ill is the worker's to tell of.
                    Ok(None) | Err(_) => return false,
                },
            }
        } else {
            self.transact(inbox, work, None)
        };
        if let Err(error) = served {
            refuse(inbox.take(Work::Write), &error.at(&self.context.setting.place));
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

    fn transact(&mut self, inbox: &Inbox, work: Work, passage: Option<Passage<'_>>) -> Result<(), Error> {
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
        session.begin(work)?;
        let jobs = inbox.take(work);
        let requests: Vec<&Request> = jobs.iter().map(|job| &job.request).collect();
        let done = session.apply(&requests, work, &self.context, passage.as_ref());
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
        for job in inbox.take(Work::Write) {
            let answer = job.request.lost(&error);
            job.finish(answer);
        }
    }
}

/// Waits until the log is on the disk, whoever wrote to it.
fn settle(log: &Path) {
    if let Err(error) = File::open(log).and_then(|log| log.sync_data()) {
        tracing::error!(%error, path = %log.display(), "the log of the lease file did not reach the disk; the next commit tries again");
    }
}

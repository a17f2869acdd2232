//! The queue in front of whoever serves requests.
//!
//! Whatever has gathered while the disk was busy becomes the next transaction; a lone request never waits for company.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Error, Kind};
use tokio::sync::oneshot;

use super::request::{Reply, Request, Work};
use crate::{clock, sync::lock};

/// More requests than this wait for the next transaction (ours: keeps a transaction in the milliseconds).
const MAX_BATCH: usize = 1_024;
/// How long the worker looks for more work before it sleeps, giving way to others: about what it takes an asker to wake up
/// and ask again (measured: 20-80 µs; waking this thread instead would add as much to every request).
const LINGER_US: u64 = 100;
/// What was answered before it was on the disk is there this much later (ours: long enough that the next commit of a holder
/// who was only quickly through has taken it along).
const SETTLE_US: u64 = 5_000;
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

    pub(super) fn finish(self, answer: Result<Reply, Error>) {
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
    /// When the log shall be on the disk, because something was answered that may not be there yet.
    settle_at_us: Option<u64>,
}

/// What the worker is woken for.
pub(super) enum Call {
    /// Jobs, and what it takes to serve them.
    Jobs(Work),
    /// Nothing but a long log.
    Tidy,
    /// A log that may not be on the disk yet.
    Settle,
}

impl Inbox {
    /// Leaves a job for whoever serves next, and wakes nobody: the sender serves at once.
    pub(super) fn leave(&self, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        self.length.store(state.jobs.len(), Ordering::Release);
    }

    pub(super) fn rouse(&self) {
        self.arrived.notify_one();
    }

    pub(super) fn ask_to_tidy(&self) {
        lock(&self.state).untidy = true;
        self.arrived.notify_one();
    }

    pub(super) fn ask_to_settle(&self) {
        lock(&self.state).settle_at_us = Some(clock::boot_us().saturating_add(SETTLE_US));
        self.arrived.notify_one();
    }

    /// True while nothing is left for the worker, now or soon.
    pub(super) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.jobs.is_empty() && !state.untidy && state.settle_at_us.is_none()
    }

    pub(super) fn is_empty(&self) -> bool {
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
    pub(super) fn wait(&self) -> Option<Call> {
        let until = clock::boot_us().saturating_add(LINGER_US);
        while self.length.load(Ordering::Acquire) == 0 && clock::boot_us() < until {
            std::thread::yield_now();
        }
        let mut state = lock(&self.state);
        loop {
            if let Some(work) = state.jobs.iter().map(|job| job.request.work()).reduce(Work::and) {
                return Some(Call::Jobs(work));
            }
            let now_us = clock::boot_us();
            let closed = state.closed;
            if state.settle_at_us.take_if(|at_us| closed || *at_us <= now_us).is_some() {
                return Some(Call::Settle);
            }
            if std::mem::take(&mut state.untidy) {
                return Some(Call::Tidy);
            }
            if state.closed {
                return None;
            }
            state.sleeping = true;
            state = match state.settle_at_us {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at_us) => {
                    let limit = Duration::from_micros(at_us - now_us);
                    self.arrived.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.sleeping = false;
        }
    }

    /// Nobody serves any more: whoever still waits is told so.
    pub(super) fn abandon(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.jobs.clear();
    }

    pub(super) fn at_gate(&self, since_us: Option<u64>) {
        lock(&self.state).at_gate_since_us = since_us;
    }

    /// Takes what has gathered and is still wanted. What a transaction for this `work` cannot do stays.
    pub(super) fn take(&self, work: Work) -> Vec<Job> {
        let mut state = lock(&self.state);
        let can = |job: &&Job| work == Work::Write || job.request.work() == work;
        let count = state.jobs.iter().take(MAX_BATCH).take_while(can).count();
        let jobs = state.jobs.drain(..count).filter(Job::is_wanted).collect();
        self.length.store(state.jobs.len(), Ordering::Release);
        jobs
    }
}

/// Answers jobs that had certainly no effect.
pub(super) fn refuse(jobs: impl IntoIterator<Item = Job>, error: &Error) {
    for job in jobs {
        let error = match job.request.resource() {
            Some(resource) => error.clone().on(resource),
            None => error.clone(),
        };
        job.finish(Err(error));
    }
}

pub(super) fn ended(place: &str) -> Error {
    Error::new(Kind::Unavailable, "the thread of the lease file has ended").at(place)
}

fn stuck(place: &str) -> Error {
    Error::new(Kind::Unavailable, "another process has kept the lease file for more than 5s")
        .at(place)
        .advise("look for a stopped process that uses the file (state T in ps) and continue or end it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_early_settles_soon_and_before_the_end() {
        let inbox = Inbox::default();
        let before_us = clock::boot_us();
        inbox.ask_to_settle();
        assert!(matches!(inbox.wait(), Some(Call::Settle)));
        assert!(clock::boot_us() >= before_us + SETTLE_US);
        inbox.ask_to_settle();
        inbox.close();
        assert!(matches!(inbox.wait(), Some(Call::Settle)));
        assert!(inbox.wait().is_none());
    }
}

//! The desk: where requests wait until a connection is free, and leave together.
//!
//! While one statement is under way the others gather; then all that has gathered leaves as one statement and one commit. A
//! request that finds nobody working leaves at once, alone.

use std::{
    collections::{HashSet, VecDeque},
    sync::Mutex,
    time::Duration,
};

use leasehold_core::{Error, Resource};
use tokio::sync::{Notify, oneshot, watch};
use tokio_postgres::Row;

use super::{answer::Answer, step::Step, wire::Statement};
use crate::sync::lock;

/// The most steps in one statement (ours: a few milliseconds of the server's time).
const MAX_BATCH: usize = 1_000;
/// How long an answer is waited for at most, and at least.
const MOST_PATIENCE: Duration = Duration::from_secs(5);
const LEAST_PATIENCE: Duration = Duration::from_secs(3);

/// How often a step has been tried because its row was locked by another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    /// With others, skipping what is locked.
    Together,
    /// Alone, waiting a moment.
    Alone,
    /// Alone, on a connection of its own, for as long as it may take.
    Aside,
}

/// A step and who waits for its answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) step: Step,
    pub(super) attempt: Attempt,
    pub(super) reply: oneshot::Sender<Result<Answer, Error>>,
}

/// A statement that is no step: a look, or the care of the schema.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) statement: Statement,
    /// True when it changes something: then a missing answer leaves that open.
    pub(super) changes: bool,
    pub(super) reply: oneshot::Sender<Result<Vec<Row>, Error>>,
}

/// What a worker does in one turn.
#[derive(Debug)]
pub(super) enum Turn {
    Steps(Vec<Job>),
    Question(Question),
    /// Nothing but to listen: what else is sent begins to listen, too.
    Listen,
    Over,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    questions: VecDeque<Question>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Desk {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    status: watch::Sender<Status>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Status {
    closed: bool,
    listen: bool,
}

impl Desk {
    pub(super) fn submit(&self, job: Job) {
        lock(&self.waiting).jobs.push_back(job);
        self.arrived.notify_one();
    }

    pub(super) fn submit_all(&self, jobs: impl IntoIterator<Item = Job>) {
        lock(&self.waiting).jobs.extend(jobs);
        self.arrived.notify_one();
    }

    pub(super) fn ask(&self, question: Question) {
        lock(&self.waiting).questions.push_back(question);
        self.arrived.notify_one();
    }

    /// Asks once for notifications to be listened for. They are before the next statement leaves.
    pub(super) fn listen(&self) {
        if !self.wants_to_listen() {
            self.status.send_modify(|status| status.listen = true);
            self.arrived.notify_one();
        }
    }

    pub(super) fn wants_to_listen(&self) -> bool {
        self.status.borrow().listen
    }

    pub(super) fn close(&self) {
        self.status.send_modify(|status| status.closed = true);
        self.arrived.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.status.borrow().closed
    }

    /// Ready when listening is asked for, or the desk closed.
    pub(super) async fn listening_wanted(&self) {
        let mut status = self.status.subscribe();
        // The sender is ours: it lives as long as this.
        let _ = status.wait_for(|status| status.listen || status.closed).await;
    }

    /// Ready when the desk is closed.
    pub(super) async fn closing(&self) {
        let mut status = self.status.subscribe();
        let _ = status.wait_for(|status| status.closed).await;
    }

    pub(super) fn is_empty(&self) -> bool {
        let waiting = lock(&self.waiting);
        waiting.jobs.is_empty() && waiting.questions.is_empty()
    }

    /// All that waits: there is nobody to serve it.
    pub(super) fn drain(&self) -> (Vec<Job>, Vec<Question>) {
        let mut waiting = lock(&self.waiting);
        (waiting.jobs.drain(..).collect(), waiting.questions.drain(..).collect())
    }

    /// The next turn, as soon as there is one. `listening`: whether this worker's connection listens already.
    pub(super) async fn next(&self, listening: bool) -> Turn {
        loop {
            if let Some(turn) = lock(&self.waiting).take() {
                return turn;
            }
            if !listening && self.wants_to_listen() {
                return Turn::Listen;
            }
            if self.is_closed() {
                return Turn::Over;
            }
            self.arrived.notified().await;
        }
    }
}

impl Waiting {
    fn take(&mut self) -> Option<Turn> {
        if let Some(question) = self.questions.pop_front() {
            return Some(Turn::Question(question));
        }
        // Nobody waits any more for what was dropped before it left: it is not sent.
        self.jobs.retain(|job| !job.reply.is_closed());
        let first = self.jobs.pop_front()?;
        if first.attempt != Attempt::Together || first.step.is_single() {
            return Some(Turn::Steps(vec![first]));
        }
        if self.jobs.is_empty() {
            return Some(Turn::Steps(vec![first]));
        }
        Some(Turn::Steps(self.gather(first)))
    }

    /// At most one step of a resource; the others keep their order.
    fn gather(&mut self, first: Job) -> Vec<Job> {
        let mut named: HashSet<Resource> = HashSet::from([first.step.resource().clone()]);
        let mut batch = vec![first];
        let mut rest = VecDeque::new();
        while let Some(job) = self.jobs.pop_front() {
            let fits = batch.len() < MAX_BATCH
                && job.attempt == Attempt::Together
                && !job.step.is_single()
                && named.insert(job.step.resource().clone());
            if fits {
                batch.push(job);
            } else {
                // Nobody behind may pass it.
                named.insert(job.step.resource().clone());
                rest.push_back(job);
            }
        }
        self.jobs = rest;
        batch
    }
}

/// How long the answer to these is waited for: a quarter of the shortest TTL, so that a connection that has died does not cost
/// its holder the lease.
pub(super) fn patience(jobs: &[Job]) -> Duration {
    let shortest = jobs.iter().filter_map(|job| job.step.ttl()).min();
    let quarter = shortest.map_or(MOST_PATIENCE, |ttl| ttl.as_duration() / 4);
    quarter.clamp(LEAST_PATIENCE, MOST_PATIENCE)
}

/// How long a question is waited for.
pub(super) const QUESTION_PATIENCE: Duration = MOST_PATIENCE;

//! Those who work: each with a connection of its own, one statement at a time.
//!
//! One worker serves the desk and never waits for another transaction's lock for more than a moment. What must wait longer
//! goes aside, to workers that come and go, so that one row that somebody keeps locked costs nobody else a renewal.
//!
//! A statement is one transaction, so cutting the connection anywhere leaves either all of it or nothing, and no lock behind.
//! Where the role's default isolation is not READ COMMITTED the schema refuses, and the statement is framed by BEGIN and
//! COMMIT, sent with it in one go.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Error, Kind, record::Wake};
use tokio_postgres::{
    Row,
    error::SqlState,
    types::{ToSql, Type},
};

use super::{
    answer::Answer,
    desk::{self, Attempt, Desk, Job, QUESTION_PATIENCE, Question, Turn},
    failure::{WRONG_ISOLATION, lost},
    link::{Dialler, Link, OnNotification},
    step::{Patience, Setting},
    wire::{Param, Statement},
};
use crate::{coordinator::mailbox::Mailbox, sync::lock};

/// How many may wait aside at once.
const MAX_ASIDE: usize = 4;
/// A worker aside without work ends after this.
const IDLE_ASIDE: Duration = Duration::from_secs(10);
/// How long a statement aside waits for a row, at least and at most.
const LEAST_WAIT: Duration = Duration::from_secs(1);
const LONG_WAIT: Duration = Duration::from_secs(4);

/// Turns of the runtime that those get who were just answered.
const GATHER: u32 = 3;

/// Between two attempts to listen while there is nothing else to do.
const PAUSE: Duration = Duration::from_millis(500);

/// What the workers of a coordinator share.
#[derive(Debug)]
pub(super) struct Shop {
    pub(super) desk: Desk,
    pub(super) aside: Desk,
    pub(super) dialler: Dialler,
    pub(super) setting: Setting,
    pub(super) mailbox: Arc<Mailbox>,
    /// True when the workers' own connection hears notifications.
    pub(super) hears: bool,
    pub(super) workers_aside: std::sync::Mutex<usize>,
}

/// One worker.
pub(super) struct Worker {
    shop: Arc<Shop>,
    link: Option<Link>,
    listening: bool,
    framed: bool,
    aside: bool,
}

/// How a statement ended.
enum Outcome {
    Rows(Vec<Row>),
    Failed(Error),
    /// The role's default isolation is another one.
    Framed,
    /// Another transaction was in the way; everything was rolled back.
    InTheWay(Error),
}

impl Shop {
    pub(super) fn heard(&self) -> OnNotification {
        let mailbox = Arc::clone(&self.mailbox);
        Arc::new(move |notification| {
            if let Ok(lease_id) = notification.payload().replace('-', "").parse() {
                mailbox.push(Wake::Lease(lease_id));
            }
        })
    }

    /// The name that this client is woken by.
    pub(super) fn channel(&self) -> Option<String> {
        self.setting.wake.map(|wake| format!("leasehold_{wake}"))
    }

    fn at(&self, error: Error) -> Error {
        error.at(&self.setting.place)
    }

    /// Gives a job to those who may wait.
    fn set_aside(self: &Arc<Self>, mut job: Job) {
        job.attempt = Attempt::Aside;
        self.aside.submit(job);
        let mut workers = lock(&self.workers_aside);
        if *workers < MAX_ASIDE {
            *workers += 1;
            tokio::spawn(Worker::new(Arc::clone(self), None, true).serve_aside());
        }
    }
}

impl Worker {
    pub(super) fn new(shop: Arc<Shop>, link: Option<Link>, aside: bool) -> Self {
        Self { shop, link, listening: false, framed: false, aside }
    }

    /// Serves the desk until the coordinator is gone.
    pub(super) async fn serve(mut self) {
        loop {
            let open = self.link.as_ref().is_some_and(Link::is_open);
            let listening = !self.shop.hears || (self.listening && open);
            let shop = Arc::clone(&self.shop);
            let turn = tokio::select! {
                turn = shop.desk.next(listening) => turn,
                () = self.ends(), if open && self.listening => {
                    // Without a word: whoever waits must look, and the next turn connects and listens again.
                    self.drop_link();
                    continue;
                }
            };
            match turn {
                Turn::Over => return,
                turn => self.turn(turn).await,
            }
        }
    }

    async fn serve_aside(mut self) {
        let shop = Arc::clone(&self.shop);
        loop {
            match tokio::time::timeout(IDLE_ASIDE, shop.aside.next(true)).await {
                Ok(Turn::Over) => return,
                Ok(turn) => self.turn(turn).await,
                Err(_) => {
                    let mut workers = lock(&shop.workers_aside);
                    // What came in this moment is served by this worker: nobody else may have been started for it.
                    if shop.aside.is_empty() {
                        *workers -= 1;
                        return;
                    }
                }
            }
        }
    }

    async fn ends(&self) {
        if let Some(link) = &self.link {
            link.ended().await;
        }
    }

    fn drop_link(&mut self) {
        if self.link.take().is_some() && std::mem::take(&mut self.listening) {
            self.shop.mailbox.push(Wake::All);
        }
    }

    async fn turn(&mut self, turn: Turn) {
        if let Err(error) = self.connect().await {
            return self.refuse(turn, &error).await;
        }
        match turn {
            Turn::Steps(jobs) => self.steps(jobs).await,
            Turn::Question(question) => self.question(question).await,
            Turn::Listen => self.listen().await,
            Turn::Over => {}
        }
    }

    async fn connect(&mut self) -> Result<(), Error> {
        if !self.link.as_ref().is_some_and(Link::is_open) {
            self.drop_link();
            self.link = Some(self.shop.dialler.dial(self.shop.heard()).await?);
        }
        Ok(())
    }

    /// The statement that begins to listen, where that is wanted and was not done on this connection.
    fn begin_to_listen(&self) -> Option<String> {
        let wanted = self.shop.hears && !self.aside && !self.listening && self.shop.desk.wants_to_listen();
        Some(format!("LISTEN {}", self.shop.channel().filter(|_| wanted)?))
    }

    async fn listen(&mut self) {
        let (Some(link), Some(listen)) = (&self.link, self.begin_to_listen()) else { return };
        let answer = tokio::time::timeout(QUESTION_PATIENCE, link.client.batch_execute(&listen)).await;
        self.listening = matches!(answer, Ok(Ok(())));
        if !self.listening {
            self.drop_link();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Nobody can be reached: all that waits is told so. Nothing was sent.
    async fn refuse(&mut self, turn: Turn, error: &Error) {
        let error = self.shop.at(error.clone());
        let desk = if self.aside { &self.shop.aside } else { &self.shop.desk };
        let (mut jobs, mut questions) = desk.drain();
        match turn {
            Turn::Steps(more) => jobs.extend(more),
            Turn::Question(question) => questions.push(question),
            Turn::Listen | Turn::Over => {}
        }
        if jobs.is_empty() && questions.is_empty() {
            // Only listening was wanted: again in a moment.
            tokio::time::sleep(PAUSE).await;
        }
        for job in jobs {
            let _ = job.reply.send(Err(error.clone()));
        }
        for question in questions {
            let _ = question.reply.send(Err(error.clone()));
        }
    }

    async fn steps(&mut self, jobs: Vec<Job>) {
        let patience = match jobs.first().map(|job| job.attempt) {
            Some(Attempt::Aside) => Patience::Long(long_wait(&jobs)),
            Some(Attempt::Together) if jobs.len() > 1 => Patience::Skip,
            _ => Patience::Short,
        };
        let steps: Vec<_> = jobs.iter().map(|job| &job.step).collect();
        let (statement, order) = self.shop.setting.statement(&steps, patience);
        let limit = desk::patience(&jobs) + if self.aside { LONG_WAIT } else { Duration::ZERO };
        let mut outcome = self.run(&statement, limit, true).await;
        if let Outcome::Framed = outcome {
            // The schema refused before it did anything.
            self.framed = true;
            outcome = self.run(&statement, limit, true).await;
        }
        match outcome {
            Outcome::Rows(rows) => {
                let many = jobs.len() > 1;
                self.answer(jobs, &order, &rows);
                if many {
                    // Those who were answered together come back together: a few of them alone would cost the others a
                    // commit. A lone request never waits.
                    for _ in 0..GATHER {
                        tokio::task::yield_now().await;
                    }
                }
            }
            Outcome::InTheWay(error) => jobs.into_iter().for_each(|job| self.again(job, &error)),
            Outcome::Failed(error) => {
                let error = self.shop.at(error);
                for job in jobs {
                    let _ = job.reply.send(Err(error.clone()));
                }
            }
            Outcome::Framed => {}
        }
    }

    /// Hands out the answers. A row that was locked by another is asked for again, alone.
    fn answer(&self, jobs: Vec<Job>, order: &[Vec<usize>; 4], rows: &[Row]) {
        let mut jobs: Vec<Option<Job>> = jobs.into_iter().map(Some).collect();
        for row in rows {
            let Ok((kind, n, answer)) = Answer::read(row) else { continue };
            let at = order.get(kind).and_then(|picked| picked.get(n));
            let Some(job) = at.and_then(|&at| jobs.get_mut(at)?.take()) else { continue };
            if answer.word == "skipped" {
                self.again(
                    job,
                    &Error::new(Kind::Unavailable, "another session keeps the row of this resource locked"),
                );
            } else {
                let _ = job.reply.send(Ok(answer));
            }
        }
        let missing = Error::new(Kind::Corrupt, "the server did not answer every request");
        for job in jobs.into_iter().flatten() {
            let _ = job.reply.send(Err(self.shop.at(missing.clone()).on(job.step.resource())));
        }
    }

    /// Tries again with more patience: nothing was changed.
    fn again(&self, mut job: Job, error: &Error) {
        match job.attempt {
            Attempt::Together => {
                job.attempt = Attempt::Alone;
                self.shop.desk.submit(job);
            }
            Attempt::Alone => self.shop.set_aside(job),
            Attempt::Aside => {
                let error = self.shop.at(error.clone()).on(job.step.resource());
                let _ = job.reply.send(Err(error));
            }
        }
    }

    async fn question(&mut self, question: Question) {
        let mut outcome = self.run(&question.statement, QUESTION_PATIENCE, question.changes).await;
        if let Outcome::Framed = outcome {
            self.framed = true;
            outcome = self.run(&question.statement, QUESTION_PATIENCE, question.changes).await;
        }
        let answer = match outcome {
            Outcome::Rows(rows) => Ok(rows),
            Outcome::Failed(error) | Outcome::InTheWay(error) => Err(self.shop.at(error)),
            Outcome::Framed => {
                Err(self.shop.at(Error::new(Kind::Unavailable, "the isolation level keeps changing")))
            }
        };
        let _ = question.reply.send(answer);
    }

    /// Runs one statement as one transaction. A connection that gives no answer in time is closed.
    async fn run(&mut self, statement: &Statement, limit: Duration, changes: bool) -> Outcome {
        let Some(link) = self.link.as_ref().filter(|link| link.is_open()) else {
            return Outcome::Failed(lost(false, "before the request was sent"));
        };
        let before = link.warnings();
        let listen = self.begin_to_listen();
        let both = execute(link, statement, self.framed, listen.as_deref());
        let ended = tokio::time::timeout(limit, both).await.map(|(rows, listening)| {
            self.listening |= listening;
            rows
        });
        let warned = link.warnings() != before;
        let outcome = match ended {
            Ok(Ok(_)) if warned && changes => {
                // Committed here, but the standby may not have it: the next primary may not know of it.
                let what =
                    "the server stopped waiting for its standby, so the change may be lost in a failover";
                let advice = "an operator cancelled the statement: let it wait, or look at the standby";
                return Outcome::Failed(Error::new(Kind::Unknown, what).advise(advice));
            }
            Ok(Ok(rows)) => return Outcome::Rows(rows),
            Ok(Err(error)) => {
                let outcome = self.judge(&error);
                // A server that does not write any more is not the primary: the next connection looks for that.
                if error.code().is_some_and(|code| *code == SqlState::READ_ONLY_SQL_TRANSACTION) {
                    self.drop_link();
                }
                outcome
            }
            Err(_) => {
                let what = format!("no answer from the server within {limit:?}");
                Outcome::Failed(Error::new(Kind::Unknown, what))
            }
        };
        match outcome {
            Outcome::Failed(error) => {
                if error.kind() == Kind::Unknown {
                    self.drop_link();
                }
                Outcome::Failed(if changes { error } else { error.without_effect() })
            }
            other => other,
        }
    }

    fn judge(&self, error: &tokio_postgres::Error) -> Outcome {
        let told = self.shop.dialler.advice.of_statement(error);
        match error.as_db_error().map(|db| db.code().code()) {
            Some(WRONG_ISOLATION) if !self.framed => Outcome::Framed,
            // Certainly rolled back.
            Some("55P03" | "40P01" | "40001") if told.kind() == Kind::Unavailable => Outcome::InTheWay(told),
            _ => Outcome::Failed(told),
        }
    }
}

/// Sends a statement and waits until the server is ready for the next: before that it may not have committed. Whether it
/// listens now, where that was to be begun. Everything is written before the first answer comes, in this order.
async fn execute(
    link: &Link,
    statement: &Statement,
    framed: bool,
    listen: Option<&str>,
) -> (Result<Vec<Row>, tokio_postgres::Error>, bool) {
    let params: Vec<(&(dyn ToSql + Sync), Type)> = statement.params.iter().map(Param::parts).collect();
    let listening = async {
        match listen {
            Some(listen) => link.client.batch_execute(listen).await.is_ok(),
            None => false,
        }
    };
    let query = link.client.query_typed(&statement.sql, &params);
    if !framed {
        let (listening, rows) = tokio::join!(biased; listening, query);
        return (rows, listening);
    }
    let begin = link.client.batch_execute(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'",
    );
    let commit = link.client.batch_execute("COMMIT");
    let (listening, begun, rows, committed) = tokio::join!(biased; listening, begin, query, commit);
    (begun.and(rows).and_then(|rows| committed.map(|()| rows)), listening)
}

/// How long rows are waited for aside: a quarter of the TTL, in milliseconds.
fn long_wait(jobs: &[Job]) -> i32 {
    let ttl = jobs.iter().filter_map(|job| job.step.ttl()).min();
    let wait = ttl.map_or(LONG_WAIT, |ttl| ttl.as_duration() / 4).clamp(LEAST_WAIT, LONG_WAIT);
    i32::try_from(wait.as_millis()).unwrap_or(1_000)
}

//! One connection to one server, shared by all calls: gathers what is waiting, sends it together, deals out the answers.
//!
//! ```text
//!   calls ──▶ queue ──▶ gather ──▶ EVALSHA (many operations) ──▶ answers, each to its call
//!                         │  at most IN_FLIGHT calls of the script under way: what comes meanwhile goes together
//!                         └─ no connection? dial, with back-off, for PATIENCE; then what waits fails as not sent
//! ```
//!
//! What is known about a request is exact: while it waits here it was not sent, and a call that was dropped is not sent any
//! more. Once it has been handed to the connection, only an answer tells; without one it is unknown and never repeated.
//! The task lives on the runtime on which the link was made; callers may be polled by anything.

use std::{
    collections::{HashMap, hash_map::RandomState},
    future::poll_fn,
    hash::BuildHasher as _,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use redis::{Cmd, Pipeline, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    failure::{self, Failure, Turn},
    op::Op,
    script::{self, By, Kind},
    space::Space,
    target::{Reached, Target},
};
use crate::{address::Host, clock};

/// Operations in one call of the script (ours: about half a millisecond of the server's time).
pub(crate) const MAX_OPS: usize = 128;
/// Calls of the script under way at once: one that the server works on, and the next on its way.
const IN_FLIGHT: usize = 2;
/// An answer that takes longer will not come: the connection is given up. As long as any call may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long what waits may wait for a connection: a restart of a small server, not an outage.
const PATIENCE: Duration = Duration::from_secs(2);
/// A connection that was idle for this long is asked for a sign of life first: it may be half open.
const IDLE_US: u64 = 10_000_000;
/// How long that sign may take.
const SIGN_LIMIT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(500);

/// What a call is answered.
pub(crate) type Answer = Result<Vec<Value>, Failure>;

/// What is to be done for one call.
#[derive(Debug)]
pub(crate) enum Task {
    /// Operations of a shard, all of one kind; at most [`MAX_OPS`]. With `asking` they go to a node that is only about to get the slot.
    Step { space: Arc<Space>, ops: Vec<Op>, asking: bool },
    /// A plain command.
    Plain(Cmd),
}

#[derive(Debug)]
struct Job {
    task: Task,
    answer: oneshot::Sender<Answer>,
}

/// The callers' end. When the last one is dropped the connection is closed.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    queue: mpsc::UnboundedSender<Job>,
    leads_to: watch::Receiver<Option<Host>>,
}

impl Link {
    /// Connects, and keeps the connection on the runtime that polls this.
    pub(super) async fn open(target: Target, replicas: Option<Replicas>) -> Result<Self, Failure> {
        // With replicas to be waited for, the count of acknowledgements must be about these writes and no others.
        let in_flight = if replicas.is_some() { 1 } else { IN_FLIGHT };
        let (link, mut keeper) = Self::new(target, replicas, PATIENCE, in_flight);
        keeper.dial().await?;
        tokio::spawn(keeper.keep());
        Ok(link)
    }

    /// The same without a connection yet. What waits for one waits for `patience` at most.
    pub(super) fn idle(target: Target, patience: Duration) -> Self {
        // Whoever asks several servers waits for the slower of them anyway, and more at a time costs each of them less.
        let (link, keeper) = Self::new(target, None, patience, 1);
        tokio::spawn(keeper.keep());
        link
    }

    fn new(
        target: Target,
        replicas: Option<Replicas>,
        patience: Duration,
        in_flight: usize,
    ) -> (Self, Keeper) {
        let (queue, jobs) = mpsc::unbounded_channel();
        let (tell, leads_to) = watch::channel(None);
        let (connection, flying) = (None, Flying::default());
        let keeper =
            Keeper { target, replicas, patience, in_flight, jobs, connection, flying, tell, epoch: 0 };
        (Self { queue, leads_to }, keeper)
    }

    /// Sends, and waits for the answer. Dropping it before it was sent leaves no trace.
    pub(super) async fn call(&self, task: Task) -> Answer {
        self.post(task).await
    }

    /// The same, in its place in the order at once, before it is waited for.
    pub(super) fn post(&self, task: Task) -> impl Future<Output = Answer> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let queued = self.queue.send(Job { task, answer }).is_ok();
        async move {
            if !queued {
                return Err(Failure::unsent("the connection's task has ended with its runtime"));
            }
            let ended = || Err(Failure::unanswered("the connection's task ended with its runtime"));
            answered.await.unwrap_or_else(|_| ended())
        }
    }

    /// The server that the connection leads to, while there is one.
    pub(crate) fn leads_to(&self) -> watch::Receiver<Option<Host>> {
        self.leads_to.clone()
    }
}

/// How many replicas must have a change before it is believed, and how long they may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Replicas {
    pub(crate) count: u8,
    pub(crate) limit: Duration,
}

/// A connection that stands, or stood a moment ago.
struct Standing {
    connection: MultiplexedConnection,
    carrier: JoinHandle<()>,
    used_us: u64,
    epoch: u64,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

/// Holds the connection.
struct Keeper {
    target: Target,
    replicas: Option<Replicas>,
    patience: Duration,
    in_flight: usize,
    jobs: mpsc::UnboundedReceiver<Job>,
    connection: Option<Standing>,
    flying: Flying,
    tell: watch::Sender<Option<Host>>,
    epoch: u64,
}

/// Calls of the script under way, begun strictly in the order in which they were launched: what concerns one resource must not
/// overtake itself.
#[derive(Default)]
struct Flying(Vec<Pin<Box<dyn Future<Output = Landed> + Send>>>);

impl Flying {
    fn push(&mut self, call: impl Future<Output = Landed> + Send + 'static) {
        self.0.push(Box::pin(call));
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// The next that is over. Pending while there is none.
    async fn next(&mut self) -> Landed {
        poll_fn(|context| {
            let over =
                self.0.iter_mut().enumerate().find_map(|(at, call)| match call.as_mut().poll(context) {
                    Poll::Ready(landed) => Some((at, landed)),
                    Poll::Pending => None,
                });
            let Some((at, landed)) = over else { return Poll::Pending };
            drop(self.0.remove(at));
            Poll::Ready(landed)
        })
        .await
    }
}

/// A call of the script that is over: on which connection, and what is to become of that.
struct Landed {
    epoch: u64,
    redial: bool,
}

impl Keeper {
    async fn keep(mut self) {
        let mut gathered = Vec::new();
        loop {
            let busy = self.flying.len() >= self.in_flight;
            tokio::select! {
                biased;
                landed = self.flying.next() => self.landed(&landed),
                count = self.jobs.recv_many(&mut gathered, MAX_OPS), if !busy => {
                    if count == 0 {
                        break;
                    }
                    self.launch(mem::take(&mut gathered)).await;
                }
            }
        }
        while self.flying.len() > 0 {
            self.flying.next().await;
        }
    }

    fn landed(&mut self, landed: &Landed) {
        match &mut self.connection {
            Some(standing) if standing.epoch == landed.epoch && landed.redial => self.hang_up(),
            Some(standing) if standing.epoch == landed.epoch => standing.used_us = clock::boot_us(),
            _ => {}
        }
    }

    fn hang_up(&mut self) {
        self.connection = None;
        self.tell.send_replace(None);
    }

    /// Sends what was gathered: operations of one shard together, in the order in which they came.
    async fn launch(&mut self, jobs: Vec<Job>) {
        // What is under way goes on meanwhile.
        let (mut flying, mut landed) = (mem::take(&mut self.flying), Vec::new());
        let ready = {
            let mut ready = pin!(self.ready(flying.len() == 0));
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut ready => break outcome,
                    over = flying.next() => landed.push(over),
                }
            }
        };
        self.flying = flying;
        match ready {
            Ok(()) => self.send(jobs),
            Err(failure) => jobs.into_iter().for_each(|job| drop(job.answer.send(Err(failure.clone())))),
        }
        for over in &landed {
            self.landed(over);
        }
    }

    fn send(&mut self, jobs: Vec<Job>) {
        for batch in batches(jobs) {
            if let Some(standing) = &mut self.connection {
                standing.used_us = clock::boot_us();
                let (connection, epoch, replicas) =
                    (standing.connection.clone(), standing.epoch, self.replicas);
                self.flying
                    .push(async move { Landed { epoch, redial: batch.fly(connection, replicas).await } });
            }
        }
    }

    /// Makes sure that there is a connection that seems to work. `quiet`: nothing is under way.
    async fn ready(&mut self, quiet: bool) -> Result<(), Failure> {
        if self.connection.as_ref().is_some_and(|standing| standing.carrier.is_finished()) {
            self.hang_up();
        }
        if let Some(standing) = &mut self.connection {
            let idle = clock::boot_us().saturating_sub(standing.used_us) > IDLE_US && quiet;
            if !idle || gives_a_sign(&mut standing.connection).await {
                return Ok(());
            }
            self.hang_up();
        }
        let begun_us = clock::boot_us();
        let patience_us = u64::try_from(self.patience.as_micros()).unwrap_or(u64::MAX);
        let mut pause = FIRST_PAUSE;
        loop {
            let spent_us = clock::boot_us().saturating_sub(begun_us);
            let left = Duration::from_micros(patience_us.saturating_sub(spent_us));
            let outcome = timeout(left.max(FIRST_PAUSE), self.dial()).await;
            let failure = match outcome {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) if !failure.error.is_transient() => return Err(failure),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::unsent("the server does not take the connection"),
            };
            if left <= pause {
                return Err(failure);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn dial(&mut self) -> Result<(), Failure> {
        let Reached { host, connection, carrier } = self.target.reach().await?;
        self.epoch += 1;
        let (used_us, epoch) = (clock::boot_us(), self.epoch);
        self.connection = Some(Standing { connection, carrier: tokio::spawn(carrier), used_us, epoch });
        self.tell.send_replace(Some(host));
        Ok(())
    }
}

async fn gives_a_sign(connection: &mut MultiplexedConnection) -> bool {
    let ping = redis::cmd("PING");
    matches!(timeout(SIGN_LIMIT, connection.send_packed_command(&ping)).await, Ok(Ok(_)))
}

/// What goes together in one message.
enum Batch {
    Step { kind: Kind, space: Arc<Space>, asking: bool, calls: Vec<(Vec<Op>, oneshot::Sender<Answer>)> },
    Plain(Cmd, oneshot::Sender<Answer>),
}

/// Puts together what may go together. Calls that nobody waits for any more are left out.
fn batches(jobs: Vec<Job>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    // The last batch that touches a key: what comes later for the same key must not go into an earlier one.
    let mut touched: HashMap<u64, usize> = HashMap::new();
    let keys = RandomState::new();
    for Job { task, answer } in jobs {
        if answer.is_closed() {
            continue;
        }
        match task {
            Task::Plain(command) => batches.push(Batch::Plain(command, answer)),
            Task::Step { space, ops, asking } => {
                let Some(kind) = ops.first().map(Op::kind) else { continue };
                let fits = |batch: &Batch| match batch {
                    Batch::Step { kind: as_those, space: other, asking: as_well, calls } => {
                        let size: usize = calls.iter().map(|(ops, _)| ops.len()).sum();
                        *as_those == kind
                            && Arc::ptr_eq(other, &space)
                            && !*as_well
                            && !asking
                            && size + ops.len() <= MAX_OPS
                    }
                    Batch::Plain(..) => false,
                };
                let own: Vec<u64> =
                    ops.iter().filter_map(|op| op.keys().first()).map(|key| keys.hash_one(key)).collect();
                let first = own.iter().filter_map(|key| touched.get(key)).max().copied().unwrap_or_default();
                let found = batches.iter_mut().enumerate().skip(first).find(|(_, batch)| fits(batch));
                let at = if let Some((at, Batch::Step { calls, .. })) = found {
                    calls.push((ops, answer));
                    at
                } else {
                    batches.push(Batch::Step { kind, space, asking, calls: vec![(ops, answer)] });
                    batches.len() - 1
                };
                touched.extend(own.into_iter().map(|key| (key, at)));
            }
        }
    }
    batches
}

impl Batch {
    /// Sends it and deals out the answers. True when the connection is not to be used any more.
    async fn fly(self, mut connection: MultiplexedConnection, replicas: Option<Replicas>) -> bool {
        match self {
            Self::Plain(command, answer) => {
                let outcome =
                    bounded(connection.send_packed_command(&command)).await.map(|value| vec![value]);
                let redial = outcome.as_ref().is_err_and(|failure| failure.turn == Turn::Redial);
                let _ = answer.send(outcome);
                redial
            }
            Self::Step { kind, space, asking, calls } => {
                let ops: Vec<&Op> = calls.iter().flat_map(|(ops, _)| ops).collect();
                let outcome = run(&mut connection, kind, &space, &ops, asking, replicas).await;
                let redial = match &outcome {
                    Ok(answers) => answers.iter().any(super::answer::from_a_replica),
                    Err(failure) => failure.turn == Turn::Redial,
                };
                deal(calls, outcome);
                redial
            }
        }
    }
}

/// Runs the script, by its name first. A server that does not know it has done nothing, so it may be told in full.
async fn run(
    connection: &mut MultiplexedConnection,
    kind: Kind,
    space: &Space,
    ops: &[&Op],
    asking: bool,
    replicas: Option<Replicas>,
) -> Answer {
    let mut outcome =
        send(connection, script::call(By::Name, kind, space, ops.iter().copied()), asking, replicas).await;
    if outcome.as_ref().is_err_and(|failure| failure.turn == Turn::Teach) {
        outcome =
            send(connection, script::call(By::Text, kind, space, ops.iter().copied()), asking, replicas)
                .await;
    }
    match outcome? {
        Value::Array(answers) if answers.len() == ops.len() + 1 => Ok(answers),
        _ => Err(Failure::unanswered("the server answered something else than was asked")),
    }
}

async fn send(
    connection: &mut MultiplexedConnection,
    call: Cmd,
    asking: bool,
    replicas: Option<Replicas>,
) -> Result<Value, Failure> {
    let mut pipeline = Pipeline::with_capacity(3);
    if asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(call);
    if let Some(Replicas { count, limit }) = replicas {
        // Right behind the script and on the same connection: WAIT counts only what this connection wrote.
        pipeline.cmd("WAIT").arg(count).arg(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    }
    let at = usize::from(asking);
    let length = pipeline.len();
    let values = bounded(connection.send_packed_commands(&pipeline, 0, length)).await?;
    let mut values = values.into_iter().skip(at);
    let value = values.next().unwrap_or(Value::Nil);
    if let Value::ServerError(error) = value {
        return Err(failure::of_code(error.code(), error.details().unwrap_or_default()));
    }
    match (replicas, values.next()) {
        (Some(Replicas { count, .. }), acknowledged) => Ok(with_doubt(value, acknowledged.as_ref(), count)),
        _ => Ok(value),
    }
}

/// Replaces the answers that promise something that too few replicas have.
fn with_doubt(value: Value, acknowledged: Option<&Value>, count: u8) -> Value {
    let enough = matches!(acknowledged, Some(Value::Int(have)) if *have >= i64::from(count));
    match value {
        Value::Array(answers) if !enough => {
            Value::Array(answers.into_iter().map(super::answer::doubted).collect())
        }
        value => value,
    }
}

async fn bounded<T>(call: impl Future<Output = redis::RedisResult<T>>) -> Result<T, Failure> {
    match timeout(ANSWER_LIMIT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure::of_request(&error)),
        Err(_) => Err(Failure::unanswered(format!("no answer from the server within {ANSWER_LIMIT:?}"))),
    }
}

/// Gives each call its part. The first answer, the server's time, goes to everyone.
fn deal(calls: Vec<(Vec<Op>, oneshot::Sender<Answer>)>, outcome: Answer) {
    match outcome {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            let now = answers.next().unwrap_or(Value::Nil);
            for (ops, answer) in calls {
                let part = std::iter::once(now.clone()).chain(answers.by_ref().take(ops.len())).collect();
                let _ = answer.send(Ok(part));
            }
        }
        Err(failure) => {
            for (_, answer) in calls {
                let _ = answer.send(Err(failure.clone()));
            }
        }
    }
}

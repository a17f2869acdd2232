//! One connection to one server, shared by all calls: gathers what is waiting, sends it together, deals out the answers.
//!
//! ```text
//!   calls ──▶ queue ──▶ lot ──▶ EVALSHA (many operations) ──▶ answers, each to its call
//!                        │  at most LOTS under way: what comes meanwhile goes together
//!                        └─ no connection? dial, with back-off, for PATIENCE; then what waits fails as not sent
//! ```
//!
//! What is known about a request is exact: while it waits here it was not sent, and a call that was dropped is not sent any
//! more. Once it has been handed to the connection, only an answer tells; without one it is unknown and never repeated.
//! The task lives on the runtime on which the link was made; callers may be polled by anything.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use redis::{Value, aio::MultiplexedConnection};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    failure::Failure,
    flight,
    queue::{Job, Launch, Queue, Task},
    target::{Reached, Target},
};
use crate::{address::Host, clock};

/// Lots under way at once: one that the server works on, and the next on its way.
const LOTS: usize = 2;
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

/// The callers' end. When the last one is dropped the connection is closed.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    callers: Arc<Callers>,
    leads_to: watch::Receiver<Option<Host>>,
}

#[derive(Debug)]
struct Callers(Arc<Queue>);

impl Drop for Callers {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Link {
    /// Connects, and keeps the connection on the runtime that polls this.
    pub(super) async fn open(target: Target, replicas: Option<Replicas>) -> Result<Self, Failure> {
        // With replicas to be waited for, the count of acknowledgements must be about these writes and no others.
        let lots = if replicas.is_some() { 1 } else { LOTS };
        let (link, mut keeper) = Self::new(target, replicas, PATIENCE, lots);
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

    fn new(target: Target, replicas: Option<Replicas>, patience: Duration, lots: usize) -> (Self, Keeper) {
        let queue = Arc::new(Queue::new(lots));
        let (tell, leads_to) = watch::channel(None);
        let callers = Arc::new(Callers(Arc::clone(&queue)));
        let (connection, flying) = (None, Flying::default());
        let keeper = Keeper { target, replicas, patience, queue, connection, flying, tell, epoch: 0 };
        (Self { callers, leads_to }, keeper)
    }

    /// Sends, and waits for the answer. Dropping it before it was sent leaves no trace.
    pub(super) async fn call(&self, task: Task) -> Answer {
        self.post(task).await
    }

    /// The same, in its place in the order at once, before it is waited for.
    pub(super) fn post(&self, task: Task) -> impl Future<Output = Answer> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let queued = self.callers.0.push(Job { task, answer });
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
    queue: Arc<Queue>,
    connection: Option<Standing>,
    flying: Flying,
    tell: watch::Sender<Option<Host>>,
    epoch: u64,
}

/// Messages under way, begun strictly in the order in which they were launched: what concerns one resource must not overtake
/// itself.
#[derive(Default)]
struct Flying(Vec<(u64, Flight)>);

type Flight = Pin<Box<dyn Future<Output = Landed> + Send>>;

impl Flying {
    fn push(&mut self, lot: u64, flight: impl Future<Output = Landed> + Send + 'static) {
        self.0.push((lot, Box::pin(flight)));
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// True while some of a lot is under way.
    fn has(&self, lot: u64) -> bool {
        self.0.iter().any(|(of, _)| *of == lot)
    }

    /// The next that is over. Pending while there is none.
    async fn next(&mut self) -> Landed {
        poll_fn(|context| {
            let mut flights = self.0.iter_mut().enumerate();
            let over = flights.find_map(|(at, (_, flight))| match flight.as_mut().poll(context) {
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

/// A message that is over: of which lot, on which connection, and what is to become of that.
struct Landed {
    lot: u64,
    epoch: u64,
    redial: bool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

impl Keeper {
    async fn keep(mut self) {
        let queue = Arc::clone(&self.queue);
        loop {
            tokio::select! {
                biased;
                landed = self.flying.next() => self.landed(&landed),
                launch = queue.next() => match launch {
                    Some(launch) => self.launch(launch).await,
                    None => break,
                }
            }
        }
        while self.flying.len() > 0 {
            self.flying.next().await;
        }
    }

    fn landed(&mut self, landed: &Landed) {
        if !self.flying.has(landed.lot) {
            self.queue.over(landed.lot);
        }
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
    async fn launch(&mut self, Launch { jobs, lot }: Launch) {
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
            Ok(()) => self.send(jobs, lot),
            Err(failure) => jobs.into_iter().for_each(|job| drop(job.answer.send(Err(failure.clone())))),
        }
        if !self.flying.has(lot) {
            // Nobody waited for any of it any more, or it could not be sent.
            self.queue.over(lot);
        }
        for over in &landed {
            self.landed(over);
        }
    }

    fn send(&mut self, jobs: Vec<Job>, lot: u64) {
        for batch in flight::batches(jobs) {
            if let Some(standing) = &mut self.connection {
                standing.used_us = clock::boot_us();
                let (connection, epoch, replicas) =
                    (standing.connection.clone(), standing.epoch, self.replicas);
                self.flying.push(lot, async move {
                    Landed { lot, epoch, redial: batch.fly(connection, replicas).await }
                });
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

//! The driver: one thread per client that keeps all its leases.
//!
//! It runs on a thread and a runtime of its own, so that a blocked user runtime loses no lease. It never judges: the
//! machines in [`leasehold_core`] say what is due, the coordinator says what became of it. Each turn it lets time act on
//! the leases whose moment has come, sends the renewals that are due in one batch, carries wakes to waiters, and works
//! off the chores that dropped guards and cancelled acquires left behind. Between turns it sleeps on an alarm that counts
//! suspend, and on nothing else.
//!
//! ```text
//!  guards ── register, chores ──▶ Registry ◀── turn ── driver thread ── renew, release ──▶ coordinator
//!                                                          ▲   └── wakes ──▶ waiters, holders
//!                                                        alarm (BOOTTIME)
//! ```

mod alarm;
mod chore;
mod doubt;
mod registry;
mod renew;
mod steps;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold_core::{
    Coordinator, Error, HolderId, Kind, Namespace,
    record::Wake,
    window::{ClockRule, Reading},
};
use tokio::{
    runtime::{Builder, Handle},
    sync::{Notify, oneshot, watch},
    task::LocalSet,
};

use crate::{clock, meter::Meter, random::Jitter};

use alarm::Alarm;
pub(crate) use chore::Chore;
use doubt::Doubts;
pub(crate) use registry::Registry;
use steps::Steps;

/// No single call may take longer than this (ours: several times a healthy engine's worst day, below a default TTL).
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(5);
/// How long the thread of a client that nobody uses any more may go on releasing what was dropped.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long after that a coordinator may take to leave (ours: what is left then runs out by itself).
const LEAVING: Duration = Duration::from_secs(1);

/// What the driver's thread and the client's handles share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) registry: Registry,
    pub(crate) jitter: Jitter,
    pub(crate) holder_id: HolderId,
    pub(crate) meter: Arc<Meter>,
    doubts: Doubts,
    /// Rung when the driver must look again before its alarm.
    pub(crate) bell: Notify,
    closing: AtomicBool,
}

/// The client's end of its driver. Dropping the last one ends the thread, after its chores.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) core: Arc<Core>,
    runtime: Handle,
    finished: watch::Receiver<bool>,
}

/// Makes a coordinator on the driver's runtime, where its own tasks may live.
pub(crate) type Connect = Box<dyn FnOnce() -> ConnectFuture + Send>;
pub(crate) type ConnectFuture = std::pin::Pin<Box<dyn Future<Output = Result<Arc<dyn Coordinator>, Error>>>>;

impl Driver {
    /// Starts the thread and connects on it.
    ///
    /// # Errors
    /// What `connect` answers; [`Kind::Unavailable`] when the operating system gives no thread.
    pub(crate) async fn start(
        connect: Connect,
        holder_id: HolderId,
        namespace: Namespace,
    ) -> Result<Self, Error> {
        let (tell, told) = oneshot::channel();
        let (over, finished) = watch::channel(false);
        let spawned = thread::Builder::new().name("leasehold-driver".to_owned()).spawn(move || {
            main(connect, holder_id, &namespace, tell);
            over.send_replace(true);
        });
        spawned.map_err(|reason| no_thread(&reason))?;
        let (core, runtime) =
            told.await.map_err(|_| Error::new(Kind::Unavailable, "the driver thread ended early"))??;
        Ok(Self { core, runtime, finished })
    }

    /// Sleeps on the driver's timers, whatever executor polls this.
    pub(crate) fn sleep(&self, duration: Duration) -> tokio::time::Sleep {
        let _context = self.runtime.enter();
        tokio::time::sleep(duration)
    }

    /// Runs something on the driver's runtime, which ends with the client.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(future));
    }

    /// Ready after `duration`, or when the driver has ended: unlike [`Driver::sleep`] it may outlive the driver, whose
    /// timers panic when they are polled after their runtime is gone.
    pub(crate) fn alarm(&self, duration: Duration) -> oneshot::Receiver<()> {
        let (over, rings) = oneshot::channel();
        self.runtime.spawn(async move {
            tokio::time::sleep(duration).await;
            // Whoever has stopped listening needs no alarm.
            let _ = over.send(());
        });
        rings
    }

    /// A call's answer, or [`Kind::Unknown`] once it has taken `limit`.
    pub(crate) async fn bounded<T>(
        &self,
        limit: Duration,
        what: &'static str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut call = std::pin::pin!(call);
        let sent = clock::read(ClockRule::Boot);
        // Most calls on a local engine are answered before a timer would be worth arming.
        let answer = tokio::select! {
            biased;
            answer = &mut call => answer,
            () = self.sleep(limit) => Err(no_answer(what, limit, &self.core.coordinator.profile().place)),
        };
        self.core.meter.called(what, answer.as_ref().err(), since(sent));
        answer
    }

    /// Leaves work for the driver.
    pub(crate) fn chore(&self, chore: Chore) {
        self.core.registry.push_chore(chore);
        self.core.bell.notify_one();
    }

    /// Waits until the thread has ended, after the last handle but this one is gone.
    pub(crate) fn finished(&self) -> watch::Receiver<bool> {
        self.finished.clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.core.closing.store(true, Ordering::Release);
        self.core.bell.notify_one();
    }
}

/// The error of a call that was given up.
pub(crate) fn no_answer(what: &str, limit: Duration, place: &str) -> Error {
    Error::new(Kind::Unknown, format!("no answer to the {what} within {limit:?}")).at(place)
}

fn no_thread(reason: &std::io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("the driver could not be started: {reason}"))
        .advise("free some threads, memory or file descriptors")
}

type Connected = Result<(Arc<Core>, Handle), Error>;

/// The thread: connects, tells, and turns until it is closed.
fn main(connect: Connect, holder_id: HolderId, namespace: &Namespace, tell: oneshot::Sender<Connected>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(reason) => {
            let _ = tell.send(Err(no_thread(&reason)));
            return;
        }
    };
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        match prepare(connect, holder_id, namespace).await {
            Ok((core, alarm)) => {
                if tell.send(Ok((core.clone(), Handle::current()))).is_ok() {
                    drive(core, alarm).await;
                }
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    });
}

async fn prepare(
    connect: Connect,
    holder_id: HolderId,
    namespace: &Namespace,
) -> Result<(Arc<Core>, Alarm), Error> {
    let alarm = Alarm::new().map_err(|reason| no_thread(&reason))?;
    let coordinator = connect().await?;
    let core = Core {
        meter: Arc::new(Meter::new(coordinator.profile(), namespace)),
        doubts: Doubts::default(),
        coordinator,
        registry: Registry::default(),
        jitter: Jitter::seeded()?,
        holder_id,
        bell: Notify::new(),
        closing: AtomicBool::new(false),
    };
    Ok((Arc::new(core), alarm))
}

/// Turns until the client is gone, then finishes the chores.
async fn drive(core: Arc<Core>, mut alarm: Alarm) {
    let wakes = tokio::task::spawn_local(carry_wakes(core.clone()));
    let mut chores = tokio::task::JoinSet::new();
    let mut steps = Steps::new();
    while !core.closing.load(Ordering::Acquire) {
        for chore in core.registry.take_chores() {
            chores.spawn_local(chore::work_off(core.clone(), chore));
        }
        while chores.try_join_next().is_some() {}
        let turn = core.registry.turn();
        for part in renew::split(turn.due) {
            tokio::task::spawn_local(renew::send(core.clone(), part));
        }
        alarm.set(turn.next_ns);
        tokio::select! {
            late = alarm.rings() => core.meter.woken(late),
            () = core.bell.notified() => {}
        }
        if steps.found() {
            core.meter.clock_stepped();
        }
    }
    wakes.abort();
    for chore in core.registry.take_chores() {
        chores.spawn_local(chore::work_off(core.clone(), chore));
    }
    let _ = tokio::time::timeout(FAREWELL, async { while chores.join_next().await.is_some() {} }).await;
    let _ = tokio::time::timeout(LEAVING, core.coordinator.farewell()).await;
}

/// Time since `sent` on the clock that counts suspend.
pub(crate) fn since(sent: Reading) -> Duration {
    ClockRule::Boot.elapsed(sent, clock::read(ClockRule::Boot))
}

/// Hands each wake to the claim or the lease it is for.
async fn carry_wakes(core: Arc<Core>) {
    loop {
        match core.coordinator.next_wake().await {
            Wake::Lease(lease_id) => {
                if core.registry.wake(lease_id) {
                    core.bell.notify_one();
                }
            }
            Wake::All => core.registry.wake_all(),
        }
    }
}

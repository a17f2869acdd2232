//! What a guard and the driver share about one lease.
//!
//! The state machine sits behind a mutex that is held for nanoseconds and never across I/O. The question asked most often,
//! "is it still mine?", does not take it: the local deadline on each clock lies beside it in atomics. They are written
//! under the mutex and only ever move later for a live lease, so a torn read is at worst stricter. Finding the deadline
//! passed is settled under the mutex, where it becomes final: no late renewal can undo an answer that was given.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    HolderId, Label, Namespace, Ttl,
    fence::{OpSeq, Pass},
    holder::{Holder, Identity, Loss, State, Transition},
    record::Notice,
    window::{ClockRule, Reading},
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::{clock, fork, leases::Client, meter::Meter, observe, sync::lock};

/// A transition that is still to be told.
#[derive(Debug)]
pub(crate) struct News {
    transition: Transition,
    ttl: Ttl,
}

#[derive(Debug)]
pub(crate) struct Shared {
    identity: Identity,
    namespace: Namespace,
    label: Label,
    /// The number of the last write that took one.
    op_seq: AtomicU64,
    holder_id: HolderId,
    rule: ClockRule,
    generation: u32,
    meter: Arc<Meter>,
    opened: Reading,
    holder: Mutex<Holder>,
    /// Where transitions are published, once somebody has asked to hear of them: most leases are never watched, and a channel
    /// is as large as the rest of a lease. Made and written under the machine's mutex.
    told: OnceLock<watch::Sender<State>>,
    cancel: OnceLock<CancellationToken>,
    /// The span of this lease, once somebody has asked for it.
    span: OnceLock<Span>,
    /// By whose wish it is handed over, once its holder has agreed.
    pub(crate) yields_to: OnceLock<Notice>,
    /// Rung when the local deadline has moved on, or can move no more.
    moved: Notify,
    /// False once work must stop: the fast answer to "is it still mine?".
    live: AtomicBool,
    close_boot_ns: AtomicU64,
    close_raw_ns: AtomicU64,
    close_real_ns: AtomicU64,
    /// When the registry next looks at this lease, on BOOTTIME. Changed under the registry's lock only.
    pub(crate) scheduled_ns: AtomicU64,
    /// The mean time between renewals.
    pub(crate) renew_every: Duration,
    /// True when its TTL is that of the settings, also when they change.
    pub(crate) follows: bool,
    /// Order of registration; leases registered together are renewed together.
    pub(crate) sequence: u64,
}

impl Shared {
    pub(crate) fn new(holder: Holder, client: &Client, follows: bool) -> Self {
        let closes = holder.window().closes();
        let core = &client.driver.core;
        Self {
            identity: holder.identity().clone(),
            namespace: client.namespace.clone(),
            label: client.label.clone(),
            op_seq: AtomicU64::new(0),
            holder_id: core.holder_id,
            rule: core.coordinator.profile().clock,
            generation: fork::generation(),
            meter: core.meter.clone(),
            opened: holder.opened(),
            follows,
            renew_every: holder.policy().renew_every(),
            told: OnceLock::new(),
            holder: Mutex::new(holder),
            cancel: OnceLock::new(),
            span: OnceLock::new(),
            yields_to: OnceLock::new(),
            moved: Notify::new(),
            live: AtomicBool::new(true),
            close_boot_ns: AtomicU64::new(closes.boot_ns),
            close_raw_ns: AtomicU64::new(closes.raw_ns),
            close_real_ns: AtomicU64::new(closes.real_ns),
            scheduled_ns: AtomicU64::new(u64::MAX),
            sequence: core.registry.next_sequence(),
        }
    }

    /// What a write under this lease shows at a fence.
    pub(crate) fn pass(&self) -> Pass {
        let Identity { resource, token, lease_id, .. } = &self.identity;
        Pass::new(self.namespace.clone(), resource.clone(), *token, *lease_id).held_by(self.label.clone())
    }

    /// The same, with the next number.
    pub(crate) fn numbered_pass(&self) -> Pass {
        let last = self.op_seq.fetch_add(1, Ordering::Relaxed);
        // 2^53 writes at a million a second take 285 years.
        match OpSeq::new(last.saturating_add(1)) {
            Ok(op_seq) => self.pass().numbered(op_seq),
            Err(_) => self.pass(),
        }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn holder_id(&self) -> HolderId {
        self.holder_id
    }

    /// The one span of this lease. It ends when the lease and all who have it are gone.
    pub(crate) fn span(&self) -> &Span {
        self.span.get_or_init(|| {
            let Identity { resource, token, lease_id, .. } = &self.identity;
            tracing::info_span!(
                target: "leasehold",
                "lease",
                resource = resource.as_str(),
                namespace = self.namespace.as_str(),
                %lease_id,
                holder_id = %self.holder_id,
                label = self.label.as_str(),
                fencing_token = token.get(),
            )
        })
    }

    /// Tells something of this lease, inside its span where there is one.
    pub(crate) fn inside(&self, tell: impl FnOnce()) {
        match self.span.get() {
            Some(span) => span.in_scope(tell),
            None => tell(),
        }
    }

    /// Which clocks count.
    pub(crate) fn now(&self) -> Reading {
        clock::read(self.rule)
    }

    /// True in a forked child of the process that acquired.
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Changes the machine, publishes what changed, and tells of the transition.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Holder) -> (T, Option<Transition>)) -> T {
        let (answer, news) = self.alter(change);
        if let Some(news) = news {
            self.tell(&news);
        }
        answer
    }

    /// As [`Shared::change`], for a caller that holds a lock: what there is to tell is told once it is released, because
    /// whoever listens may ask this client a question.
    pub(crate) fn alter<T>(
        &self,
        change: impl FnOnce(&mut Holder) -> (T, Option<Transition>),
    ) -> (T, Option<News>) {
        let mut holder = lock(&self.holder);
        let (answer, transition) = change(&mut holder);
        let closes = holder.window().closes();
        let before_ns = self.close_boot_ns.swap(closes.boot_ns, Ordering::AcqRel);
        self.close_raw_ns.store(closes.raw_ns, Ordering::Release);
        self.close_real_ns.store(closes.real_ns, Ordering::Release);
        if let Some(transition) = &transition {
            self.live.store(transition.to.may_work(), Ordering::Release);
            if let Some(told) = self.told.get() {
                told.send_replace(transition.to.clone());
            }
        }
        let ttl = holder.policy().ttl();
        drop(holder);
        if closes.boot_ns != before_ns || transition.is_some() {
            self.moved.notify_waiters();
        }
        (answer, transition.map(|transition| News { transition, ttl }))
    }

    /// Tells of a transition.
    pub(crate) fn tell(&self, news: &News) {
        if matches!(news.transition.to, State::Lost(_)) {
            self.cancel.get().inspect(|cancel| cancel.cancel());
        }
        self.count(&news.transition);
        self.inside(|| observe::transition(&self.identity, self.holder_id, news.ttl, &news.transition));
    }

    /// The end of a lease's working life is counted once: nothing leads back into it.
    fn count(&self, transition: &Transition) {
        if !transition.from.may_work() {
            return;
        }
        match &transition.to {
            State::Lost(loss) => self.meter.lost(loss),
            State::Releasing => self.meter.worked(self.rule.elapsed(self.opened, self.now())),
            _ => {}
        }
    }

    /// Lets time act, then reads the machine.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Holder, Reading) -> T) -> T {
        let now = self.now();
        self.change(|holder| {
            let transition = holder.tick(now);
            (look(holder, now), transition)
        })
    }

    /// Is it still mine, at this moment?
    pub(crate) fn check(&self) -> Result<(), Loss> {
        if self.is_forked() {
            return Err(Loss::ForkedChild);
        }
        if self.live.load(Ordering::Acquire) && self.is_open(self.now()) {
            return Ok(());
        }
        match self.look(|holder, _| holder.state().clone()) {
            State::Lost(loss) => Err(loss),
            State::Releasing | State::Released => Err(Loss::Released),
            // A renewal landed between the two looks.
            State::Held | State::Uncertain | State::Draining => Ok(()),
        }
    }

    fn is_open(&self, now: Reading) -> bool {
        let boot = now.boot_ns < self.close_boot_ns.load(Ordering::Acquire);
        match self.rule {
            ClockRule::Boot => boot,
            ClockRule::LargestOfThree => {
                boot && now.raw_ns < self.close_raw_ns.load(Ordering::Acquire)
                    && now.real_ns < self.close_real_ns.load(Ordering::Acquire)
            }
        }
    }

    /// The local deadline once it is later than `known` on BOOTTIME; `None` once it can move no more.
    pub(crate) async fn moved_beyond(&self, known: Reading) -> Option<Reading> {
        loop {
            let mut moved = pin!(self.moved.notified());
            // Registered before looking, so that nothing is missed in between.
            moved.as_mut().enable();
            let (may_work, closes) =
                self.look(|holder, _| (holder.state().may_work(), holder.window().closes()));
            if !may_work {
                return None;
            }
            if closes.boot_ns > known.boot_ns {
                return Some(closes);
            }
            moved.await;
        }
    }

    /// The state and every later one.
    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        let holder = lock(&self.holder);
        self.told.get_or_init(|| watch::Sender::new(holder.state().clone())).subscribe()
    }

    /// A token that is cancelled when the lease is lost.
    pub(crate) fn cancellation(&self) -> &CancellationToken {
        let cancel = self.cancel.get_or_init(CancellationToken::new);
        // A loss that came before the token was there did not see it; one that comes after it will.
        if matches!(lock(&self.holder).state(), State::Lost(_)) {
            cancel.cancel();
        }
        cancel
    }
}

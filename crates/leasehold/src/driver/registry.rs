//! Which leases there are, when each next wants attention, who waits for a wake, and what is left to do.
//!
//! Everything sits behind one mutex that is held for bookkeeping only. The driver is rung only when something becomes due
//! before its alarm, so that acquiring and releasing in quick succession costs it nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{LeaseId, request::Renewal, window::Reading};
use tokio::sync::Notify;

use crate::{
    shared::{News, Shared},
    sync::lock,
};

use super::Chore;

/// Leases that fall due within this part of the renewal interval go along with one that is due.
const GATHER: u32 = 8;

/// A renewal about to leave, and whose it is.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) lease: Arc<Shared>,
    pub(super) sent: Reading,
    pub(super) renewal: Renewal,
    /// How late it leaves.
    pub(super) late: Duration,
    /// What is left of the window.
    pub(super) window_left: Duration,
}

/// What a turn found.
#[derive(Debug)]
pub(super) struct Turn {
    /// The renewals to send.
    pub(super) due: Vec<Due>,
    /// When to turn next, on BOOTTIME.
    pub(super) next_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    sequence: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Leases by when they want attention; the sequence number makes each key unique.
    agenda: BTreeMap<(u64, u64), Arc<Shared>>,
    leases: HashMap<LeaseId, Arc<Shared>>,
    waiters: HashMap<LeaseId, Arc<Notify>>,
    chores: Vec<Chore>,
    /// When the driver's alarm rings.
    alarm_ns: u64,
}

impl Registry {
    /// A number for the next lease.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a lease into care. True when the driver must be rung.
    pub(crate) fn register(&self, lease: &Arc<Shared>) -> bool {
        let wake_in = lease.look(|holder, now| holder.wake_in(now).map(|wake_in| (now, wake_in)));
        let Some((now, wake_in)) = wake_in else { return false };
        let mut inner = lock(&self.inner);
        inner.leases.insert(lease.identity().lease_id, lease.clone());
        inner.schedule(lease, after(now, wake_in))
    }

    /// Lets a lease go: it is over, or somebody else keeps it now.
    pub(crate) fn deregister(&self, lease: &Shared) {
        let mut inner = lock(&self.inner);
        inner.unschedule(lease);
        inner.leases.remove(&lease.identity().lease_id);
    }

    /// Puts leases back on the agenda after something happened to them. True when the driver must be rung.
    pub(super) fn reschedule<'a>(&self, leases: impl Iterator<Item = &'a Arc<Shared>>) -> bool {
        let mut told = Vec::new();
        let mut inner = lock(&self.inner);
        let ring = leases.fold(false, |ring, lease| inner.reschedule(lease, &mut told) | ring);
        drop(inner);
        tell(&told);
        ring
    }

    /// Lets time act on every lease whose moment has come.
    pub(super) fn turn(&self) -> Turn {
        let mut inner = lock(&self.inner);
        let mut due: Vec<Due> = Vec::new();
        let mut told = Vec::new();
        let mut aside = Vec::new();
        while let Some((&(at_ns, _), lease)) = inner.agenda.first_key_value() {
            let lease = lease.clone();
            let now = lease.now();
            // Once one renewal leaves, those that are nearly due go along: fewer, larger batches.
            let horizon = due.first().map_or(Duration::ZERO, |first| first.lease.gather());
            if at_ns > after(now, horizon) {
                break;
            }
            inner.unschedule(&lease);
            let ((renewal, wake_in, window_left), news) = lease.turn(now);
            told.extend(news.map(|news| (lease.clone(), news)));
            if let Some(renewal) = renewal {
                let late = Duration::from_nanos(now.boot_ns.saturating_sub(at_ns));
                due.push(Due { lease: lease.clone(), sent: now, renewal, late, window_left });
            }
            match wake_in {
                // Never before the next instant: a turn ends even if a lease keeps asking for attention.
                Some(wake_in) => aside.push((after(now, wake_in).max(now.boot_ns + 1), lease)),
                None => drop(inner.leases.remove(&lease.identity().lease_id)),
            }
        }
        for (at_ns, lease) in aside {
            let _ = inner.schedule(&lease, at_ns);
        }
        inner.alarm_ns = inner.agenda.first_key_value().map_or(u64::MAX, |(&(at_ns, _), _)| at_ns);
        let next_ns = inner.alarm_ns;
        drop(inner);
        tell(&told);
        Turn { due, next_ns }
    }

    /// Registers a claim that waits for a wake.
    pub(crate) fn expect_wake(&self, lease_id: LeaseId, waiter: Arc<Notify>) {
        lock(&self.inner).waiters.insert(lease_id, waiter);
    }

    /// Ends that registration.
    pub(crate) fn forget_wake(&self, lease_id: LeaseId) {
        lock(&self.inner).waiters.remove(&lease_id);
    }

    /// A wake for one claim or lease has come. True when the driver must be rung.
    pub(super) fn wake(&self, lease_id: LeaseId) -> bool {
        let mut inner = lock(&self.inner);
        if let Some(waiter) = inner.waiters.get(&lease_id) {
            waiter.notify_one();
        }
        let Some(lease) = inner.leases.get(&lease_id).cloned() else { return false };
        lease.change(|holder| (holder.poke(), None));
        let now = lease.now();
        inner.schedule(&lease, now.boot_ns)
    }

    /// Wakes may have been missed: every waiter asks again. Leases are not poked: their renewals are timed anyway.
    pub(super) fn wake_all(&self) {
        for waiter in lock(&self.inner).waiters.values() {
            waiter.notify_one();
        }
    }

    pub(super) fn push_chore(&self, chore: Chore) {
        lock(&self.inner).chores.push(chore);
    }

    pub(super) fn take_chores(&self) -> Vec<Chore> {
        std::mem::take(&mut lock(&self.inner).chores)
    }

    /// The leases in care.
    pub(crate) fn all(&self) -> Vec<Arc<Shared>> {
        lock(&self.inner).leases.values().cloned().collect()
    }

    /// How many leases are in care.
    pub(crate) fn len(&self) -> usize {
        lock(&self.inner).leases.len()
    }
}

impl Inner {
    fn reschedule(&mut self, lease: &Arc<Shared>, told: &mut Told) -> bool {
        let now = lease.now();
        let (wake, news) = lease.alter(|holder| {
            let transition = holder.tick(now);
            (holder.wake_in(now).map(|wake_in| after(now, wake_in)), transition)
        });
        told.extend(news.map(|news| (lease.clone(), news)));
        match wake {
            // Not on the agenda: released or handed off meanwhile.
            Some(_) if lease.scheduled_ns.load(Ordering::Relaxed) == u64::MAX => false,
            Some(at_ns) => self.schedule(lease, at_ns),
            None => {
                self.unschedule(lease);
                self.leases.remove(&lease.identity().lease_id);
                false
            }
        }
    }

    /// Puts a lease on the agenda. True when that is before the driver's alarm.
    fn schedule(&mut self, lease: &Arc<Shared>, at_ns: u64) -> bool {
        self.unschedule(lease);
        lease.scheduled_ns.store(at_ns, Ordering::Relaxed);
        self.agenda.insert((at_ns, lease.sequence), lease.clone());
        let sooner = at_ns < self.alarm_ns;
        if sooner {
            // Rung once is enough until the driver has set its alarm anew.
            self.alarm_ns = at_ns;
        }
        sooner
    }

    fn unschedule(&mut self, lease: &Shared) {
        let at_ns = lease.scheduled_ns.swap(u64::MAX, Ordering::Relaxed);
        if at_ns != u64::MAX {
            self.agenda.remove(&(at_ns, lease.sequence));
        }
    }
}

/// What is to be told once the registry is unlocked, and of which lease.
type Told = Vec<(Arc<Shared>, News)>;

fn tell(told: &Told) {
    for (lease, news) in told {
        lease.tell(news);
    }
}

impl Shared {
    fn gather(&self) -> Duration {
        self.renew_every / GATHER
    }

    /// Time acts; then a renewal leaves when one is due. Also: when this lease next wants attention, and what is left of its
    /// window.
    fn turn(&self, now: Reading) -> ((Option<Renewal>, Option<Duration>, Duration), Option<News>) {
        let ahead = self.gather();
        self.alter(|holder| {
            let transition = holder.tick(now);
            let renewal = holder.wants_renewal(now, ahead).then(|| holder.begin_renewal(now));
            ((renewal, holder.wake_in(now), holder.window().remaining(now)), transition)
        })
    }
}

fn after(now: Reading, wake_in: Duration) -> u64 {
    now.boot_ns.saturating_add(u64::try_from(wake_in.as_nanos()).unwrap_or(u64::MAX))
}

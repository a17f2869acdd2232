//! A coordinator over an engine that Leasehold has never heard of: a shelf.
//!
//! The engine here is a map behind a mutex; yours is a server, a file, a device. What matters is the same: find the engine's
//! *atomic step*, and let [`leasehold_core::slot`] decide within it ([`Shelf::step`]). An engine that cannot run Rust in its
//! step mirrors the slot in its own language instead. Everything else in this file is translation.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    future::poll_fn,
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Poll, Waker},
    time::{Duration, Instant, SystemTime},
};

use leasehold_core::{
    Call, Coordinator, Error, Kind, LeaseId, Resource, Ttl,
    line::MemoryLine,
    profile::{Capabilities, Guarantee, Profile, Promise, QueueOrder},
    record::{Acquired, Inspection, Page, Prepared, Released, Renewed, Revoked, WaiterInfo, Wake},
    request::{Claim, Listing, Preparation, Release, Renewal, Revocation},
    slot::{Fault, Now, Slot},
    window::ClockRule,
};

/// What this engine can do. The suite holds it to that.
pub const CAPABILITIES: Capabilities =
    Capabilities { queue: QueueOrder::Fifo, wakes: true, once_per: true, history: false, ttl_step_ms: NonZeroU32::MIN };

/// The engine.
#[derive(Debug)]
pub struct Shelf {
    started: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    max_ttl: Option<Ttl>,
    seats: BTreeMap<Resource, (Slot, MemoryLine)>,
    /// Who is to be woken for which claim.
    bells: HashMap<LeaseId, Weak<Bell>>,
}

/// A client of the shelf.
#[derive(Debug)]
pub struct ShelfCoordinator {
    shelf: Arc<Shelf>,
    bell: Arc<Bell>,
    profile: Profile,
}

impl Shelf {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), state: Mutex::default() })
    }

    /// The engine's clocks: one that never goes back and judges, and one that dates.
    fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { clock_us: micros(self.started.elapsed()), unix_us: micros(unix) }
    }

    /// The atomic step: all of it happens, or nothing does.
    fn step<T>(
        &self,
        resource: &Resource,
        change: impl FnOnce(&mut Slot, &mut MemoryLine, Now) -> Result<(T, Vec<LeaseId>), Error>,
    ) -> Result<T, Error> {
        let mut state = lock(&self.state);
        let (mut slot, mut line) = state.seats.get(resource).cloned().unwrap_or_default();
        let (answer, woken) =
            change(&mut slot, &mut line, self.now()).map_err(|error| error.on(resource).at("shelf:"))?;
        state.seats.insert(resource.clone(), (slot, line));
        for lease_id in woken {
            if let Some(bell) = state.bells.get(&lease_id).and_then(Weak::upgrade) {
                bell.ring(lease_id);
            }
        }
        Ok(answer)
    }
}

impl ShelfCoordinator {
    /// Connects another client.
    pub fn new(shelf: Arc<Shelf>) -> Self {
        let max_ttl = lock(&shelf.state).max_ttl.unwrap_or(Ttl::MAX);
        let profile = Profile {
            engine: "shelf",
            place: "shelf:".to_owned(),
            capabilities: CAPABILITIES,
            clock: ClockRule::LargestOfThree,
            max_ttl,
            guarantee: Guarantee {
                windows: Promise::Yes("A1"),
                tokens: Promise::Limited("while the process lives"),
                after_failover: "nothing survives",
                caveat: "an example",
            },
        };
        Self { shelf, bell: Arc::default(), profile }
    }

    fn check_ttl(&self, ttl: Ttl) -> Result<(), Error> {
        let max_ttl = self.profile.max_ttl;
        if ttl <= max_ttl {
            return Ok(());
        }
        Err(Error::new(Kind::Invalid, format!("TTL {ttl} is above the longest allowed ({max_ttl})")))
    }
}

impl Coordinator for ShelfCoordinator {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(async move {
            claim.check()?;
            self.check_ttl(claim.ttl)?;
            // From now on wakes for this claim come here.
            lock(&self.shelf.state).bells.insert(claim.lease_id, Arc::downgrade(&self.bell));
            self.shelf.step(&claim.resource, |slot, line, now| {
                let answer = slot.acquire(line, &claim, None, now).map_err(fault)?;
                let next = slot.wake_after(line, &answer, now).map_err(fault)?;
                Ok((answer, next.into_iter().collect()))
            })
        })
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        Box::pin(async move {
            let answer = |renewal: &Renewal| {
                self.check_ttl(renewal.ttl)?;
                self.shelf.step(&renewal.resource, |slot, _, now| Ok((slot.renew(renewal, now), Vec::new())))
            };
            Ok(renewals.iter().map(answer).collect())
        })
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(async move {
            self.shelf.step(&release.resource, |slot, line, now| {
                let freed = slot.release(line, &release, now).map_err(fault)?;
                Ok((freed.answer, freed.wake.into_iter().collect()))
            })
        })
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        Box::pin(async move {
            self.shelf.step(&revocation.resource, |slot, line, now| {
                let freed = slot.revoke(line, &revocation, now).map_err(fault)?;
                let mut woken: Vec<LeaseId> = freed.wake.into_iter().collect();
                // The holder should stop now, not at its next renewal.
                if let Revoked::Ended { record, .. } = &freed.answer {
                    woken.push(record.lease_id);
                }
                Ok((freed.answer, woken))
            })
        })
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        Box::pin(async move {
            let state = lock(&self.shelf.state);
            let (slot, line) = state.seats.get(&resource).cloned().unwrap_or_default();
            Ok(inspection(resource, &slot, &line, self.shelf.now()))
        })
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(async move {
            if !(1..=Listing::MAX).contains(&listing.limit) {
                return Err(Error::new(Kind::Invalid, "a page has 1 to 1000 resources"));
            }
            let (state, now) = (lock(&self.shelf.state), self.shelf.now());
            let all = state.seats.iter().map(|(resource, (slot, line))| {
                let mut item = inspection(resource.clone(), slot, line, now);
                item.waiters.clear();
                item
            });
            let wanted = |item: &Inspection| {
                item.resource.as_str().starts_with(&listing.prefix)
                    && listing.after.as_ref().is_none_or(|after| item.resource > *after)
                    && (listing.free_too || item.record.is_some() || item.waiting > 0)
            };
            let mut items: Vec<Inspection> = all.filter(wanted).collect();
            let more = items.len() > usize::from(listing.limit);
            items.truncate(usize::from(listing.limit));
            Ok(Page { items, more, quarantine: None })
        })
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        Box::pin(async move {
            if preparation.fresh {
                return Err(Error::new(Kind::Invalid, "a shelf exists as soon as it is connected to"));
            }
            let mut state = lock(&self.shelf.state);
            state.max_ttl = preparation.max_ttl.or(state.max_ttl);
            let max_ttl = state.max_ttl.unwrap_or(Ttl::MAX);
            Ok(Prepared { created: false, max_ttl, quarantine: None, place: self.profile.place.clone() })
        })
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(poll_fn(|context| {
            let mut inner = lock(&self.bell.0);
            if let Some(lease_id) = inner.rung.pop_front() {
                return Poll::Ready(Wake::Lease(lease_id));
            }
            inner.reader = Some(context.waker().clone());
            Poll::Pending
        }))
    }
}

fn inspection(resource: Resource, slot: &Slot, line: &MemoryLine, now: Now) -> Inspection {
    let waited = |joined_us| Duration::from_micros(now.clock_us.saturating_sub(joined_us));
    let waiters: Vec<WaiterInfo> = line
        .entries()
        .filter(|entry| !entry.is_stale(now.clock_us))
        .map(|entry| WaiterInfo {
            lease_id: entry.lease_id,
            label: entry.label.clone(),
            waited: waited(entry.joined_us),
        })
        .collect();
    Inspection {
        resource,
        record: slot.record(now),
        last_token: slot.last_token,
        last_end: slot.previous_end(now),
        last_success_us: slot.last_success_us,
        waiting: u32::try_from(waiters.len()).unwrap_or(u32::MAX),
        waiters: waiters.into_iter().take(Inspection::MAX_WAITERS).collect(),
    }
}

fn fault(fault: Fault<std::convert::Infallible>) -> Error {
    match fault {
        Fault::Line(never) => match never {},
        Fault::Token(none) => Error::new(Kind::Invalid, none.to_string()),
    }
}

/// Wakes of one client, until its driver asks for them.
#[derive(Debug, Default)]
struct Bell(Mutex<Rings>);

#[derive(Debug, Default)]
struct Rings {
    rung: VecDeque<LeaseId>,
    reader: Option<Waker>,
}

impl Bell {
    fn ring(&self, lease_id: LeaseId) {
        let mut inner = lock(&self.0);
        inner.rung.push_back(lease_id);
        if let Some(reader) = inner.reader.take() {
            reader.wake();
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

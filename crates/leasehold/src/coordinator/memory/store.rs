//! The shared state behind memory coordinators: slots, queues, and who is to be woken.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    ops::Bound,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use leasehold_core::{
    Error, Label, LeaseId, Namespace, Resource, Token, Ttl,
    line::{Line, MemoryLine},
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
    slot::{Fault, Freed, Held, Now, Slot},
};

use crate::{
    clock::{self, Clock, SystemClock},
    coordinator::{mailbox::Mailbox, rules},
    sync::lock,
};

/// Resources looked at in one step of forgetting, and beside a claim that makes a new one (twice as many as are made).
const STEP: usize = 1_000;
const STEP_BESIDE_A_CLAIM: usize = 2;

/// A store in memory, shared by its clones.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    spaces: Arc<Mutex<HashMap<Namespace, Space>>>,
}

#[derive(Debug)]
struct Space {
    prepared: bool,
    max_ttl: Ttl,
    quarantine_until_us: u64,
    cells: BTreeMap<Resource, Cell>,
    /// The highest token of a forgotten resource.
    token_floor: Option<Token>,
    /// Where looking for idle resources goes on.
    purged_to: Option<Resource>,
}

/// One resource, its queue, and the mailboxes of those who hold it or wait for it.
#[derive(Debug, Default)]
struct Cell {
    slot: Slot,
    line: MemoryLine,
    mailboxes: HashMap<LeaseId, Weak<Mailbox>>,
    /// The grants that have ended, the latest first.
    past: VecDeque<Past>,
    /// When it was last claimed, renewed or released, µs of the engine's clock.
    touched_us: u64,
}

/// The queue with the coordinators that are gone left out: their waiters will never ask again.
struct LiveLine<'a> {
    line: &'a mut MemoryLine,
    mailboxes: &'a HashMap<LeaseId, Weak<Mailbox>>,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            prepared: false,
            max_ttl: Ttl::LOCAL_MAX,
            quarantine_until_us: 0,
            cells: BTreeMap::new(),
            token_floor: None,
            purged_to: None,
        }
    }
}

impl Space {
    /// What is known of a resource, or `nothing`: asking about an unknown one does not make it known.
    fn known<'a>(&'a mut self, resource: &Resource, nothing: &'a mut Cell) -> &'a mut Cell {
        self.cells.get_mut(resource).unwrap_or(nothing)
    }

    /// The cell of a claim. For each one that is made, two others are looked at and forgotten when they have been idle for
    /// as long as tokens are kept; the namespace remembers the highest token of those.
    fn claimed(&mut self, resource: &Resource, now: Now) -> &mut Cell {
        if !self.cells.contains_key(resource) {
            let purge = Purge { after: self.purged_to.take(), dry_run: false };
            self.purged_to = self.purge(&purge, STEP_BESIDE_A_CLAIM, now).next;
            let slot = Slot { last_token: self.token_floor, ..Slot::default() };
            self.cells.insert(resource.clone(), Cell { slot, ..Cell::default() });
        }
        let cell = self.cells.entry(resource.clone()).or_default();
        cell.touched_us = now.clock_us;
        cell
    }

    /// Looks at so many resources after `after`, and forgets the idle ones unless they are only asked for.
    fn purge(&mut self, purge: &Purge, step: usize, now: Now) -> Purged {
        let from = purge.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let cells = self.cells.range::<Resource, _>((from, Bound::Unbounded));
        let looked_at: Vec<(Resource, bool)> =
            cells.take(step).map(|(resource, cell)| (resource.clone(), cell.is_idle(now))).collect();
        let last = looked_at.last().map(|(resource, _)| resource.clone());
        let mut purged = Purged {
            looked_at: looked_at.len() as u64,
            idle: Vec::new(),
            next: last.filter(|_| looked_at.len() == step),
        };
        for (resource, _) in looked_at.into_iter().filter(|(_, idle)| *idle) {
            if !purge.dry_run
                && let Some(cell) = self.cells.remove(&resource)
            {
                self.token_floor = self.token_floor.max(cell.slot.last_token);
            }
            purged.idle.push(resource);
        }
        purged
    }
}

impl Line for LiveLine<'_> {
    type Error = Infallible;

    fn enter(&mut self, lease_id: LeaseId, label: &Label, now_us: u64) -> Result<(), Infallible> {
        self.line.enter(lease_id, label, now_us)
    }

    fn leave(&mut self, lease_id: LeaseId) -> Result<bool, Infallible> {
        self.line.leave(lease_id)
    }

    fn head(&mut self, now_us: u64) -> Result<Option<LeaseId>, Infallible> {
        while let Some(head) = self.line.head(now_us)? {
            if self.mailboxes.get(&head).is_some_and(|mailbox| mailbox.strong_count() > 0) {
                return Ok(Some(head));
            }
            self.line.leave(head)?;
        }
        Ok(None)
    }

    fn ahead_of(&mut self, lease_id: LeaseId) -> Result<Option<u32>, Infallible> {
        self.line.ahead_of(lease_id)
    }

    fn count(&mut self) -> Result<u32, Infallible> {
        self.line.count()
    }
}

impl Cell {
    /// True when nobody has it, nobody waits for it, and nobody has used it for as long as tokens are kept.
    fn is_idle(&self, now: Now) -> bool {
        self.line.is_empty()
            && self.slot.is_free(now)
            && u128::from(now.clock_us.saturating_sub(self.touched_us)) > Purge::IDLE.as_micros()
    }

    fn parts(&mut self) -> (&mut Slot, LiveLine<'_>) {
        (&mut self.slot, LiveLine { line: &mut self.line, mailboxes: &self.mailboxes })
    }

    /// Notes the grant that stood before a step, if that step ended it.
    fn remember(&mut self, before: Option<&Held>) {
        if let Some(past) = self.slot.ended(before) {
            self.past.push_front(past);
            self.past.truncate(Past::KEPT);
        }
    }

    /// Forgets mailboxes that nobody can be woken through any more.
    fn tidy(&mut self) {
        let held = self.slot.held.as_ref().map(|held| held.lease_id);
        let line = &self.line;
        self.mailboxes.retain(|id, _| Some(*id) == held || line.entries().any(|entry| entry.lease_id == *id));
    }

    fn mailbox(&self, lease_id: Option<LeaseId>) -> Option<(Arc<Mailbox>, Wake)> {
        let lease_id = lease_id?;
        let mailbox = self.mailboxes.get(&lease_id)?.upgrade()?;
        Some((mailbox, Wake::Lease(lease_id)))
    }

    fn inspection(&self, resource: Resource, named: usize, now: Now) -> Inspection {
        let live = || self.line.entries().filter(|entry| !entry.is_stale(now.clock_us));
        let waiters = live().take(named).map(|entry| rules::waiter(entry, now)).collect();
        let waiting = u32::try_from(live().count()).unwrap_or(u32::MAX);
        rules::inspection(resource, &self.slot, waiters, waiting, now)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store on this machine's clocks.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store on a clock of the caller's choice, for tests.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, spaces: Arc::default() }
    }

    /// Forgets every grant of a namespace, as an engine does that loses its memory: it then grants nothing until the
    /// longest forgotten grant must have ended. For tests of that behaviour.
    pub fn forget(&self, namespace: &Namespace) {
        let now = clock::now(&*self.clock);
        let mut spaces = lock(&self.spaces);
        let space = spaces.entry(namespace.clone()).or_default();
        // A running grant may have a longer TTL than a bound that was lowered meanwhile.
        let running = space.cells.values().filter_map(|cell| Some(cell.slot.held.as_ref()?.ttl)).max();
        let longest = running.map_or(space.max_ttl, |ttl| ttl.max(space.max_ttl));
        space.cells.clear();
        space.prepared = false;
        space.quarantine_until_us = now.clock_us.saturating_add(longest.as_micros());
    }

    pub(super) fn max_ttl(&self, namespace: &Namespace) -> Ttl {
        lock(&self.spaces).entry(namespace.clone()).or_default().max_ttl
    }

    /// Runs one atomic step.
    fn step<T>(&self, namespace: &Namespace, act: impl FnOnce(&mut Space, Now) -> T) -> T {
        let mut spaces = lock(&self.spaces);
        // The clock is read under the lock: steps see it in their own order.
        let now = clock::now(&*self.clock);
        act(spaces.entry(namespace.clone()).or_default(), now)
    }

    pub(super) fn acquire(
        &self,
        namespace: &Namespace,
        claim: &Claim,
        mailbox: &Arc<Mailbox>,
    ) -> Result<Acquired, Error> {
        self.step(namespace, |space, now| {
            rules::check_claim(claim, space.max_ttl)?;
            let quarantined = rules::left(space.quarantine_until_us, now);
            space.prepared |= quarantined.is_none();
            let cell = space.claimed(&claim.resource, now);
            cell.mailboxes.insert(claim.lease_id, Arc::downgrade(mailbox));
            let before = cell.slot.clone();
            let (slot, mut line) = cell.parts();
            let freed = slot.acquire(&mut line, claim, quarantined, now).and_then(|answer| {
                let wake = slot.wake_after(&mut line, &answer, now)?;
                Ok(Freed { answer, wake })
            });
            let freed = freed.map_err(refuse).map_err(|error| error.on(&claim.resource));
            match freed {
                Ok(freed) => {
                    cell.remember(before.held.as_ref());
                    Ok(finish(cell, None, freed))
                }
                Err(error) => {
                    // What a slot that failed has become is thrown away.
                    cell.slot = before;
                    cell.tidy();
                    Err(error)
                }
            }
        })
    }

    pub(super) fn renew(&self, namespace: &Namespace, renewals: &[Renewal]) -> Vec<Result<Renewed, Error>> {
        self.step(namespace, |space, now| {
            let max_ttl = space.max_ttl;
            let one = |renewal: &Renewal| {
                let mut nothing = Cell::default();
                let cell = space.known(&renewal.resource, &mut nothing);
                rules::check_renewal(renewal, &cell.slot, max_ttl)?;
                cell.touched_us = now.clock_us;
                Ok(cell.slot.renew(renewal, now))
            };
            renewals.iter().map(one).collect()
        })
    }

    pub(super) fn release(&self, namespace: &Namespace, release: &Release) -> Result<Released, Error> {
        self.step(namespace, |space, now| {
            let mut nothing = Cell::default();
            let cell = space.known(&release.resource, &mut nothing);
            cell.touched_us = now.clock_us;
            let before = cell.slot.held.clone();
            let (slot, mut line) = cell.parts();
            let freed = slot.release(&mut line, release, now).map_err(refuse);
            cell.remember(before.as_ref());
            Ok(finish(cell, None, freed.map_err(|error| error.on(&release.resource))?))
        })
    }

    pub(super) fn revoke(&self, namespace: &Namespace, revocation: &Revocation) -> Result<Revoked, Error> {
        self.step(namespace, |space, now| {
            let mut nothing = Cell::default();
            let cell = space.known(&revocation.resource, &mut nothing);
            let holder = cell.mailbox(cell.slot.held.as_ref().map(|held| held.lease_id));
            let before = cell.slot.held.clone();
            let (slot, mut line) = cell.parts();
            let freed = slot.revoke(&mut line, revocation, now).map_err(refuse);
            cell.remember(before.as_ref());
            let freed = freed.map_err(|error| error.on(&revocation.resource))?;
            let holder = holder.filter(|_| matches!(freed.answer, Revoked::Ended { .. }));
            Ok(finish(cell, holder, freed))
        })
    }

    pub(super) fn inspect(&self, namespace: &Namespace, resource: Resource) -> Inspection {
        self.step(namespace, |space, now| match space.cells.get(&resource) {
            Some(cell) => cell.inspection(resource, Inspection::MAX_WAITERS, now),
            None => Cell::default().inspection(resource, 0, now),
        })
    }

    pub(super) fn history(&self, namespace: &Namespace, resource: &Resource) -> Vec<Past> {
        self.step(namespace, |space, now| {
            let Some(cell) = space.cells.get(resource) else { return Vec::new() };
            cell.slot.lapsed(now).into_iter().chain(cell.past.iter().cloned()).take(Past::KEPT).collect()
        })
    }

    pub(super) fn list(&self, namespace: &Namespace, listing: &Listing) -> Result<Page, Error> {
        rules::check_listing(listing)?;
        let from = listing.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.step(namespace, |space, now| {
            let mut items: Vec<Inspection> = space
                .cells
                .range::<Resource, _>((from, Bound::Unbounded))
                .filter(|(resource, _)| resource.as_str().starts_with(&listing.prefix))
                .map(|(resource, cell)| cell.inspection(resource.clone(), 0, now))
                .filter(|item| listing.free_too || item.record.is_some() || item.waiting > 0)
                .take(usize::from(listing.limit) + 1)
                .collect();
            let more = items.len() > usize::from(listing.limit);
            items.truncate(usize::from(listing.limit));
            Page { items, more, quarantine: rules::left(space.quarantine_until_us, now) }
        }))
    }

    pub(super) fn purge(&self, namespace: &Namespace, purge: &Purge) -> Purged {
        self.step(namespace, |space, now| space.purge(purge, STEP, now))
    }

    /// Removes a throwaway namespace. How many resources it had, and itself.
    pub(crate) fn discard(&self, namespace: &Namespace) -> u64 {
        lock(&self.spaces).remove(namespace).map_or(0, |space| space.cells.len() as u64 + 1)
    }

    pub(super) fn prepare(&self, namespace: &Namespace, preparation: Preparation) -> Result<Prepared, Error> {
        self.step(namespace, |space, now| {
            if space.prepared && preparation.fresh {
                return Err(rules::not_fresh(namespace.as_str()).at("memory:"));
            }
            if preparation.fresh {
                space.quarantine_until_us = 0;
            }
            let created = !std::mem::replace(&mut space.prepared, true);
            space.max_ttl = preparation.max_ttl.unwrap_or(space.max_ttl);
            let quarantine: Option<Duration> = rules::left(space.quarantine_until_us, now);
            Ok(Prepared { created, max_ttl: space.max_ttl, quarantine, place: "memory:".to_owned() })
        })
    }
}

/// Sends the wakes of a step and gives its answer.
fn finish<T>(cell: &mut Cell, holder: Option<(Arc<Mailbox>, Wake)>, freed: Freed<T>) -> T {
    let waiter = cell.mailbox(freed.wake);
    cell.tidy();
    [holder, waiter].into_iter().flatten().for_each(|(mailbox, wake)| mailbox.push(wake));
    freed.answer
}

#[allow(clippy::needless_pass_by_value, reason = "an adapter for map_err")]
fn refuse(fault: Fault<Infallible>) -> Error {
    match fault {
        Fault::Line(never) => match never {},
        Fault::Token(reason) => rules::no_token(reason).at("memory:"),
    }
}

//! What is done to the workers: kills, pauses past the TTL, and cuts of their network. Never to a server, and never to those
//! that are spared, so that there are always some who work.

use std::{io, time::Duration};

use leasehold_testkit::{
    clock::boot_ns,
    proxy::{Direction, Passage, Proxy},
    random::Choices,
};
use serde::Serialize;

use super::{
    crew::Crew,
    plan::nanos,
    tails::{Doing, Tails},
};

/// How many faults of each kind there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) kills: u64,
    pub(crate) pauses: u64,
    pub(crate) cuts: u64,
}

/// A worker that stands still.
#[derive(Debug)]
struct Pause {
    slot: usize,
    due_ns: u64,
    latest_ns: u64,
    /// What it held: it goes on once a later holder has written, so that its own next write is a stale one.
    held: Option<(String, u64)>,
}

#[derive(Debug)]
struct Outage {
    slot: usize,
    due_ns: u64,
}

/// The faults of a run.
#[derive(Debug)]
pub(super) struct Faults {
    choices: Choices,
    ttl: Duration,
    spared: usize,
    next_ns: u64,
    pauses: Vec<Pause>,
    outages: Vec<Outage>,
    pub(super) counts: Counts,
}

/// Tells whether the coordinator still works although this worker stands still; a worker that was stopped in the middle of
/// SQLite's commit stops everybody.
pub(super) type Probe<'a> = &'a dyn Fn() -> bool;

impl Faults {
    pub(super) fn new(seed: u64, ttl: Duration, workers: usize) -> Self {
        let (pauses, outages) = (Vec::new(), Vec::new());
        let spared = spared(workers);
        Self {
            choices: Choices::new(seed),
            ttl,
            spared,
            next_ns: 0,
            pauses,
            outages,
            counts: Counts::default(),
        }
    }

    /// Heals what is due, and breaks something when it is time to.
    pub(super) fn go_on(&mut self, crew: &mut Crew, tails: &Tails, probe: Probe<'_>) -> io::Result<()> {
        self.heal(crew, tails)?;
        if boot_ns() < self.next_ns {
            return Ok(());
        }
        // On average two in a TTL: more, and nearly all that is seen is waiting for the dead.
        let apart = self.choices.below(nanos(self.ttl));
        self.next_ns = boot_ns() + apart;
        let at_once = self.pauses.len() + self.outages.len();
        let Some(slot) = self.victim(crew, tails).filter(|_| at_once * 2 < crew.slots.len()) else {
            return Ok(());
        };
        let can_cut = !crew.slots[slot].links.is_empty() && !self.outages.iter().any(|cut| cut.slot == slot);
        match self.choices.below(10) {
            0..=3 if can_cut => self.cut(crew, slot),
            0..=5 => self.kill(crew, slot)?,
            _ => self.pause(crew, tails, slot, probe)?,
        }
        Ok(())
    }

    /// Two of three times somebody who holds something.
    fn victim(&mut self, crew: &Crew, tails: &Tails) -> Option<usize> {
        let free: Vec<usize> = (self.spared..crew.slots.len())
            .filter(|slot| !self.pauses.iter().any(|pause| pause.slot == *slot))
            .collect();
        let holds = |slot: &usize| *tails.doing(crew.slots[*slot].child.name()) != Doing::Else;
        let holding: Vec<usize> = free.iter().copied().filter(holds).collect();
        let from = if holding.is_empty() || self.choices.one_in(3) { free } else { holding };
        let at = usize::try_from(self.choices.below(from.len() as u64)).ok()?;
        from.get(at).copied()
    }

    fn kill(&mut self, crew: &mut Crew, slot: usize) -> io::Result<()> {
        crew.slots[slot].child.kill()?;
        self.counts.kills += 1;
        crew.replace(slot)
    }

    fn pause(&mut self, crew: &Crew, tails: &Tails, slot: usize, probe: Probe<'_>) -> io::Result<()> {
        let child = &crew.slots[slot].child;
        if child.ended()?.is_some() {
            return Ok(());
        }
        child.stop()?;
        if !probe() {
            return child.resume();
        }
        let now_ns = boot_ns();
        let ttl_ns = nanos(self.ttl);
        let held = match tails.doing(child.name()) {
            Doing::Holding(resource, token) => Some((resource.clone(), *token)),
            Doing::Else => None,
        };
        let due_ns = now_ns + ttl_ns + self.choices.below(ttl_ns);
        self.pauses.push(Pause { slot, due_ns, latest_ns: due_ns + 4 * ttl_ns, held });
        self.counts.pauses += 1;
        Ok(())
    }

    /// Cuts one worker off, in one of four ways.
    fn cut(&mut self, crew: &Crew, slot: usize) {
        let links = &crew.slots[slot].links;
        match self.choices.below(4) {
            0 => links.iter().for_each(|link| link.set_both(Passage::Stalled)),
            // Requests arrive and their answers do not.
            1 => links.iter().for_each(|link| link.set(Direction::ToClient, Passage::Lost)),
            2 => links.iter().for_each(|link| {
                link.refuse(true);
                link.cut();
            }),
            _ => links.iter().for_each(Proxy::cut),
        }
        let lasts = nanos(self.ttl) / 4 + self.choices.below(nanos(self.ttl) * 2);
        self.outages.push(Outage { slot, due_ns: boot_ns() + lasts });
        self.counts.cuts += 1;
    }

    /// True while somebody stands still or is cut off. It ends by itself, as long as [`Faults::heal`] is called.
    pub(super) fn last(&self) -> bool {
        !self.pauses.is_empty() || !self.outages.is_empty()
    }

    /// Heals what is due.
    pub(super) fn heal(&mut self, crew: &Crew, tails: &Tails) -> io::Result<()> {
        let now_ns = boot_ns();
        let is_over = |pause: &Pause| {
            let superseded =
                pause.held.as_ref().is_none_or(|(resource, token)| tails.is_superseded(resource, *token));
            now_ns >= pause.latest_ns || now_ns >= pause.due_ns && superseded
        };
        for pause in self.pauses.extract_if(.., |pause| is_over(pause)) {
            crew.slots[pause.slot].child.resume()?;
        }
        for outage in self.outages.extract_if(.., |outage| now_ns >= outage.due_ns) {
            reconnect(&crew.slots[outage.slot].links);
        }
        Ok(())
    }
}

/// How many of so many workers are left alone.
pub(super) fn spared(workers: usize) -> usize {
    workers / 4
}

/// What was held back is worth nothing any more: a client that connects anew is what people see.
fn reconnect(links: &[Proxy]) {
    for link in links {
        link.refuse(false);
        link.cut();
        link.set_both(Passage::Open);
    }
}

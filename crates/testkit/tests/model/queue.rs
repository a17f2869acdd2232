//! The queue, with the real slot: claimants that wait, ask, hold, release and die in every order. Nobody holds beside another,
//! tokens rise, and nobody is passed by one behind it while the resource is reserved for it.

use std::hash::{Hash, Hasher};

use std::time::Duration;

use leasehold_core::{
    HolderId, Label, LeaseId, Resource, Ttl,
    line::{Line as _, MemoryLine, RESERVATION},
    record::Acquired,
    request::{Claim, Release},
    slot::{Now, Slot},
};
use stateright::{Model, Property};

use crate::{deep, violated};

/// A quarter of a second.
const TICK_US: u64 = 250_000;

#[derive(Clone, Copy, Debug)]
struct Queue {
    claimants: u8,
    ticks: u8,
    grants: u8,
    /// The resource is given to whoever asks first.
    unfair: bool,
}

#[derive(Clone, Debug)]
struct State {
    slot: Slot,
    line: MemoryLine,
    ticks: u8,
    holder: Option<u8>,
    dead: Option<u8>,
    grants: u8,
    passed: bool,
    fell: bool,
    twice: bool,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key().hash(hasher);
    }
}

impl State {
    /// All that matters: times as distances from now.
    fn key(&self) -> impl Hash + PartialEq {
        let now_us = self.now().clock_us;
        let held =
            self.slot.held.as_ref().map(|held| (held.lease_id, held.expires_us.saturating_sub(now_us)));
        let free_us = (now_us - self.slot.free_since_us).min(8 * TICK_US);
        let line: Vec<_> =
            self.line.entries().map(|entry| (entry.lease_id, now_us - entry.refreshed_us)).collect();
        let last = self.slot.last_end.as_ref().map(|end| end.lease_id);
        (
            held,
            free_us,
            line,
            last,
            self.ticks,
            self.holder,
            self.dead,
            self.grants,
            (self.passed, self.fell, self.twice),
        )
    }

    const fn now(&self) -> Now {
        let clock_us = 1_000_000_000 + self.ticks as u64 * TICK_US;
        Now { clock_us, unix_us: clock_us }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Tick,
    Ask(u8),
    Release,
    /// One claimant dies without a word.
    Die(u8),
}

fn id(claimant: u8, grants: u8) -> LeaseId {
    let mut bytes = [claimant; 16];
    bytes[15] = grants;
    LeaseId::from_bytes(bytes)
}

fn claim(claimant: u8, grants: u8) -> Claim {
    Claim {
        resource: Resource::new("r").unwrap(),
        lease_id: id(claimant, grants),
        holder_id: HolderId::from_bytes([claimant; 16]),
        label: Label::default(),
        ttl: Ttl::from_millis(500).unwrap(),
        lock_delay: Duration::ZERO,
        floor: None,
        queue: true,
        once_per: None,
    }
}

impl Queue {
    fn ask(self, state: &mut State, claimant: u8) {
        let now = state.now();
        let reserved_us = u64::try_from(RESERVATION.as_micros()).unwrap();
        let was_free = state.slot.is_free(now);
        // A resource whose TTL ran out has been free since then, though nobody has looked.
        let free_since_us = state.slot.held.as_ref().map_or(state.slot.free_since_us, |held| held.expires_us);
        let head = state.line.head(now.clock_us).unwrap();
        let before = state.slot.last_token;
        if self.unfair {
            state.line = MemoryLine::default();
        }
        let claim = claim(claimant, 0);
        let Ok(answer) = state.slot.acquire(&mut state.line, &claim, None, now) else { return };
        let Acquired::Granted(grant) = answer else { return };
        if grant.adopted {
            return;
        }
        state.twice |= !was_free;
        state.fell |= before.is_some_and(|before| grant.token <= before);
        let reserved = head.is_some_and(|head| head != claim.lease_id)
            && now.clock_us < free_since_us + reserved_us
            && state.grants > 0;
        state.passed |= reserved;
        state.holder = Some(claimant);
        state.grants += 1;
    }
}

impl Model for Queue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            slot: Slot::default(),
            line: MemoryLine::default(),
            ticks: 0,
            holder: None,
            dead: None,
            grants: 0,
            passed: false,
            fell: false,
            twice: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.ticks < self.ticks {
            actions.push(Action::Tick);
        }
        for claimant in 0..self.claimants {
            if state.dead != Some(claimant) && state.holder != Some(claimant) && state.grants < self.grants {
                actions.push(Action::Ask(claimant));
            }
        }
        if state.holder.is_some() && state.holder != state.dead {
            actions.push(Action::Release);
        }
        if state.dead.is_none() {
            actions.extend((0..self.claimants).map(Action::Die));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => {
                state.ticks += 1;
                if state.slot.is_free(state.now()) {
                    state.holder = None;
                }
            }
            Action::Ask(claimant) => self.ask(&mut state, claimant),
            Action::Release => {
                let release = Release {
                    resource: Resource::new("r").unwrap(),
                    lease_id: id(state.holder?, 0),
                    token: state.slot.last_token,
                    succeeded: false,
                };
                let now = state.now();
                state.slot.release(&mut state.line, &release, now).ok()?;
                // The next claim of this claimant bears a new lease id; here the old one is forgotten instead.
                state.slot.last_end = None;
                state.holder = None;
            }
            Action::Die(claimant) => state.dead = Some(claimant),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holder", |_, state: &State| !state.twice),
            Property::always("tokens rise", |_, state: &State| !state.fell),
            Property::always("nobody is passed", |_, state: &State| !state.passed),
            Property::sometimes("a dead one is passed", |_, state: &State| {
                state.grants > 1 && state.dead.is_some() && state.holder.is_some()
            }),
        ]
    }
}

#[test]
fn nobody_is_passed_while_the_resource_is_reserved() {
    let model = Queue { claimants: 3, ticks: 5, grants: 3, unfair: false };
    let model = if deep() { Queue { ticks: 8, grants: 5, ..model } } else { model };
    assert!(violated("queue: the slot", model).is_empty());
}

#[test]
fn a_queue_that_is_forgotten_lets_others_pass() {
    let model = Queue { claimants: 3, ticks: 4, grants: 3, unfair: true };
    assert_eq!(violated("queue: forgotten", model), ["nobody is passed"]);
}

//! A simulated process: what a program with the `leasehold` library does, as a machine without I/O. The real state machines
//! of the core decide; what stands around them in the library, on tokio, is mirrored here file by file.
//!
//! | here | mirrors |
//! | --- | --- |
//! | `acquire` | `crates/leasehold/src/acquisition.rs` |
//! | `keep` | `crates/leasehold/src/driver/{mod,registry,renew}.rs` |
//! | `finish` | `crates/leasehold/src/lease.rs` (the end of a lease), `driver/chore.rs` |
//! | `work` | a careful program: seals, reads, asks, writes |

mod acquire;
mod finish;
mod keep;
mod work;

use std::collections::BTreeMap;

use core::time::Duration;

use leasehold_core::{
    Error, HolderId, Kind, Label, LeaseId, Resource, Token, Ttl,
    holder::Holder,
    policy::Policy,
    request::{Claim, Release},
    waiter::Waiter,
    window::{ClockRule, Reading},
};

use super::{
    Mutant,
    client::{Answer, Call, Client, Order},
    engine::{Reply, Request},
    fence::Verdict,
    schedule::Want,
};
use crate::{check::What, random::Choices};
use acquire::Then;
use work::Work;

/// `leasehold::driver::CALL_LIMIT`.
const CALL_LIMIT: Duration = Duration::from_secs(5);

/// A moment: true time for the history alone, the machine's own clocks for everything else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at_ns: u64,
    pub(super) reading: Reading,
}

/// What happens to a node.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Want(Want),
    Cancel,
    Reply { request: u64, server: usize, reply: Reply },
    Timer(u64),
    Wake(LeaseId),
    Fence { job: u32, verdict: Verdict },
}

/// Which clock a timer runs on: tokio's do not count suspend, the driver's alarm does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timing {
    Runtime,
    Alarm,
}

/// What a node wants done.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Send {
        request: u64,
        server: usize,
        body: Request,
    },
    Timer {
        id: u64,
        timing: Timing,
        after: Duration,
    },
    Seal {
        job: u32,
        resource: usize,
        token: Token,
        lease_id: LeaseId,
    },
    Look {
        job: u32,
        resource: usize,
    },
    Write {
        job: u32,
        resource: usize,
        token: Token,
        lease_id: LeaseId,
        op_seq: u64,
        based_on: u64,
    },
    Note {
        resource: usize,
        lease_id: LeaseId,
        what: What,
    },
    /// The local deadline of a lease is now this.
    Deadline {
        lease_id: LeaseId,
        closes: Reading,
    },
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
enum Timer {
    Turn,
    Deadline(u64),
    Alarm(u64),
    Sleep(u32),
    Write(u32),
    HoldOver(u32),
    Retry(u32),
    ChoreRetry(u32),
    ChoreOver(u32),
}

/// What a call is for.
#[derive(Clone, Debug)]
enum Purpose {
    Claim(u32),
    TakeBack(u32),
    Renew(Vec<(u32, Moment)>),
    Release(u32),
    Chore(u32),
}

/// One thing the program wants to do under a lease.
struct Job {
    want: Want,
    claim: Claim,
    policy: Policy,
    waiter: Waiter,
    owing: bool,
    /// Attempts under this lease id that ended without an answer.
    unanswered: u32,
    sent: Moment,
    /// The timer it sleeps on.
    asleep: Option<u64>,
    /// A wake came while it was not asleep.
    rung: bool,
    then: Then,
    lease: Option<Kept>,
}

/// A lease, and the work under it.
struct Kept {
    holder: Holder,
    work: Work,
    releasing: u32,
}

/// A release in the background.
struct Chore {
    release: Release,
    attempt: u32,
}

/// See the [module](self).
pub(super) struct Node {
    number: u8,
    rule: ClockRule,
    mutant: Option<Mutant>,
    client: Box<dyn Client>,
    resources: Vec<Resource>,
    /// The engine keeps a queue and sends wakes.
    evented: bool,
    label: Label,
    holder_id: HolderId,
    floors: BTreeMap<usize, Token>,
    jobs: BTreeMap<u32, Job>,
    chores: BTreeMap<u32, Chore>,
    calls: BTreeMap<u64, Purpose>,
    requests: BTreeMap<u64, u64>,
    timers: BTreeMap<u64, Timer>,
    /// The timer of the next turn, and when it is due on BOOTTIME.
    turn: Option<(u64, u64)>,
    serial: u64,
    choices: Choices,
    /// What it wants done, to be taken after every input.
    pub(super) effects: Vec<Effect>,
}

impl Node {
    #[allow(clippy::too_many_arguments, reason = "what a process is given when it starts")]
    pub(super) fn new(
        number: u8,
        rule: ClockRule,
        mutant: Option<Mutant>,
        client: Box<dyn Client>,
        resources: Vec<Resource>,
        seed: u64,
        evented: bool,
    ) -> Self {
        let mut choices = Choices::new(seed);
        let mut id = [number; 16];
        id[8..].copy_from_slice(&choices.next().to_le_bytes());
        Self {
            number,
            rule,
            mutant,
            client,
            resources,
            evented,
            label: Label::default(),
            holder_id: HolderId::from_bytes(id),
            floors: BTreeMap::new(),
            jobs: BTreeMap::new(),
            chores: BTreeMap::new(),
            calls: BTreeMap::new(),
            requests: BTreeMap::new(),
            timers: BTreeMap::new(),
            turn: None,
            serial: 0,
            choices,
            effects: Vec::new(),
        }
    }

    /// Everything that can happen to it comes in here.
    pub(super) fn on(&mut self, input: Input, now: Moment) {
        match input {
            Input::Want(want) => self.begin(want, now),
            Input::Cancel => self.cancel(now),
            Input::Reply { request, server, reply } => {
                if let Some(call) = self.requests.remove(&request) {
                    let mut orders = Vec::new();
                    let answer = self.client.replied(call, server, reply, now.reading, &mut orders);
                    self.carry_out(call, orders);
                    self.answered(call, answer, now);
                }
            }
            Input::Timer(id) => {
                if let Some(timer) = self.timers.remove(&id) {
                    self.rings(timer, id, now);
                }
            }
            Input::Wake(lease_id) => self.woken(lease_id, now),
            Input::Fence { job, verdict } => self.fenced(job, verdict, now),
        }
        self.plan_turn(now);
    }

    fn rings(&mut self, timer: Timer, id: u64, now: Moment) {
        match timer {
            Timer::Turn => {
                self.turn = None;
                self.take_turn(now);
            }
            Timer::Deadline(call) => self.time_out(call, now),
            Timer::Alarm(call) => {
                let mut orders = Vec::new();
                let answer = self.client.alarm(call, now.reading, &mut orders);
                self.carry_out(call, orders);
                self.answered(call, answer, now);
            }
            Timer::Sleep(job) => {
                if self
                    .jobs
                    .get_mut(&job)
                    .is_some_and(|job| job.asleep.take_if(|asleep| *asleep == id).is_some())
                {
                    self.ask(job, now);
                }
            }
            Timer::Write(job) => self.write(job, now),
            Timer::HoldOver(job) => self.hold_over(job, now),
            Timer::Retry(job) => self.release(job, now),
            Timer::ChoreRetry(chore) => self.work_off(chore),
            Timer::ChoreOver(chore) => {
                self.chores.remove(&chore);
            }
        }
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn timer(&mut self, timer: Timer, timing: Timing, after: Duration) -> u64 {
        let id = self.serial();
        self.timers.insert(id, timer);
        self.effects.push(Effect::Timer { id, timing, after });
        id
    }

    /// Starts a call that is given up after `limit`.
    fn call(&mut self, purpose: Purpose, call: &Call, limit: Duration, now: Moment) {
        let id = self.serial();
        self.calls.insert(id, purpose);
        let mut orders = Vec::new();
        let answer = self.client.begin(id, call, now.reading, &mut orders);
        self.carry_out(id, orders);
        self.timer(Timer::Deadline(id), Timing::Runtime, limit);
        self.answered(id, answer, now);
    }

    fn carry_out(&mut self, call: u64, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Send(server, body) => {
                    let request = self.serial();
                    self.requests.insert(request, call);
                    self.effects.push(Effect::Send { request, server, body });
                }
                Order::Alarm(after) => {
                    self.timer(Timer::Alarm(call), Timing::Runtime, after);
                }
            }
        }
    }

    /// Nobody waits for this call any more.
    fn time_out(&mut self, call: u64, now: Moment) {
        if self.calls.contains_key(&call) {
            self.client.dropped(call);
            self.answered(call, Some(Answer::Failed(Error::new(Kind::Unknown, ""))), now);
        }
    }

    fn answered(&mut self, call: u64, answer: Option<Answer>, now: Moment) {
        let Some(answer) = answer else { return };
        let Some(purpose) = self.calls.remove(&call) else { return };
        self.client.dropped(call);
        self.requests.retain(|_, of| *of != call);
        match purpose {
            Purpose::Claim(job) => self.claim_answered(job, answer, now),
            Purpose::TakeBack(job) => self.taken_back(job, &answer, now),
            Purpose::Renew(batch) => self.renewed(&batch, answer, now),
            Purpose::Release(job) => self.release_answered(job, &answer, now),
            Purpose::Chore(chore) => self.chore_answered(chore, &answer),
        }
    }

    fn note(&mut self, job: &Job, what: What) {
        let (resource, lease_id) = (usize::from(job.want.resource), job.claim.lease_id);
        self.effects.push(Effect::Note { resource, lease_id, what });
    }

    fn lease_id(&mut self) -> LeaseId {
        let mut id = [self.number; 16];
        id[4..8].copy_from_slice(&self.holder_id.as_bytes()[8..12]);
        id[8..].copy_from_slice(&self.choices.next().to_le_bytes());
        LeaseId::from_bytes(id)
    }
}

fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(u64::from(ms)).unwrap_or(Ttl::MIN)
}

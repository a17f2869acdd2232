//! What happens in a run, as data: a setup and a list of timed actions. The seed makes the list; the list makes the run.
//! Any action can be left out without making the others meaningless, which is what lets a failure be shrunk.

use core::time::Duration;

use leasehold_core::waiter::Wait;

use super::{client::Kindred, clock::Which, engine::Memory};

/// A run to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The name of the scenario that made it.
    pub scenario: &'static str,
    /// The seed that made it; it also feeds what chance decides during the run.
    pub seed: u64,
    /// What there is.
    pub setup: Setup,
    /// What happens, by time.
    pub steps: Vec<Step>,
}

/// What there is in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The engine.
    pub kindred: Kindred,
    /// Rate errors of each node's machine: BOOTTIME, `MONOTONIC_RAW`, REALTIME, in ppm.
    pub nodes: Vec<[i32; 3]>,
    /// Rate errors and wall clock offset in milliseconds of each server's machine.
    pub servers: Vec<([i32; 3], i32)>,
    /// How many resources.
    pub resources: u8,
    /// The longest TTL of the namespace.
    pub max_ttl_ms: u32,
    /// Every start of an engine counts as a loss of memory.
    pub doubts_every_start: bool,
    /// The network while it storms.
    pub net: Net,
    /// When nothing is broken any more.
    pub calm_ms: u32,
    /// When the run ends.
    pub end_ms: u32,
}

/// How a network behaves by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Net {
    /// Least delay of a message.
    pub least_us: u32,
    /// Usual most.
    pub most_us: u32,
    /// One message in so many is lost; 0 for none.
    pub loss: u32,
    /// One request in so many arrives twice; 0 for none.
    pub twice: u32,
    /// One message in so many takes up to so many milliseconds; 0 for none.
    pub slow: u32,
    /// See above.
    pub slow_ms: u32,
}

/// A timed action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// When, in milliseconds of true time.
    pub at_ms: u32,
    /// What.
    pub action: Action,
}

/// How a program is done with a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// It releases and waits for the answer.
    Release,
    /// It drops the guard.
    Drop,
    /// It never does; a hold limit must end it.
    Never,
}

/// What a program wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Which resource.
    pub resource: u8,
    /// The TTL.
    pub ttl_ms: u32,
    /// The lock-delay.
    pub lock_delay_ms: u32,
    /// How long it waits: 0 tries once, `None` waits for ever.
    pub wait_ms: Option<u32>,
    /// For how long it works under the lease.
    pub hold_ms: u32,
    /// How it ends.
    pub finish: Finish,
    /// Its hold limit.
    pub max_hold_ms: Option<u32>,
    /// The time between two writes.
    pub write_every_ms: u32,
}

impl Want {
    pub(super) fn wait(&self) -> Wait {
        match self.wait_ms {
            None => Wait::Forever,
            Some(0) => Wait::No,
            Some(ms) => Wait::For(Duration::from_millis(u64::from(ms))),
        }
    }
}

/// Where in its work a process is caught.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundary {
    /// Wherever it is.
    Now,
    /// After it decided to write, before the write left.
    BeforeWrite,
    /// After it decided to send a request (and read its clock), before the request left.
    BeforeSend,
    /// After a reply has arrived, before it was looked at.
    BeforeReply,
}

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To the server.
    There,
    /// Back.
    Back,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A program wants a resource.
    Want(u8, Want),
    /// It drops the acquire that is under way.
    Cancel(u8),
    /// A process is stopped for so long (SIGSTOP), at its next such moment.
    Pause(u8, Boundary, u32),
    /// A process is killed at its next such moment, and started again after so long.
    Crash(u8, Boundary, u32),
    /// A node's machine sleeps for so long.
    Suspend(u8, u32),
    /// A node's virtual machine is stopped for so long: no clock of it moves.
    Freeze(u8, u32),
    /// A node's wall clock steps.
    StepWall(u8, i32),
    /// A node's clock changes its rate.
    Rate(u8, Which, i32),
    /// Messages between a node and a server wait for so long, and then arrive.
    Stall(u8, u8, Way, u32),
    /// Messages between a node and a server are lost for so long.
    Cut(u8, u8, Way, u32),
    /// A server's state is copied.
    Snapshot(u8),
    /// A server is down for so long and comes back with this memory.
    Restart(u8, u32, Memory),
    /// A server's wall clock steps.
    StepServer(u8, i32),
    /// A server's clocks run at this rate.
    RateServer(u8, i32),
    /// Another member leads; nobody answers for so long.
    LeaderChange(u8, u32),
    /// The last snapshot becomes a second master beside the first for so long; nodes with a bit set go there at once.
    Split(u8, u32),
    /// An operator revokes whatever stands; `true` frees it at once.
    Revoke(u8, bool),
}

//! One run: the event heap, the nodes, the servers, the network and the fence, and the history that is written down in true
//! time. Nothing here judges.

mod calm;
mod hosts;
mod record;
mod servers;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    time::Duration,
};

use leasehold_core::{
    LeaseId, Resource, Ttl,
    slot::Now,
    window::{ClockRule, Reading},
};

use super::{
    Mutant,
    client::Kindred,
    clock::{Machine, Which},
    engine::{self, FakeEngine, Fault, Request},
    fence::Register,
    network::Link,
    node::{Effect, Input, Moment, Node, Timing},
    schedule::{Action, Boundary, Net, Schedule},
};
use crate::{
    check::{Event, What},
    random::Choices,
};

const MS: u64 = 1_000_000;
/// How often the engine's record is looked at.
const LOOK_NS: u64 = 250 * MS;
/// The way to the fence, which nothing ever breaks: least, usual most, and now and then.
const FENCE: Net = Net { least_us: 100, most_us: 2_000, loss: 0, twice: 0, slow: 40, slow_ms: 3_000 };
/// The network once it is calm.
const CALM: Net = Net { least_us: 100, most_us: 3_000, loss: 0, twice: 0, slow: 0, slow_ms: 0 };

enum Occurrence {
    Step(usize),
    ToServer { node: usize, life: u32, request: u64, server: usize, body: Request },
    ToNode { node: usize, life: u32, input: Input },
    Timer { node: usize, life: u32, id: u64, timing: Timing, due_ns: u64 },
    Fence { node: usize, life: u32, ask: Effect },
    Resume(usize, u64),
    Restart(usize, u32),
    Awake { node: usize, frozen: bool },
    ServerUp(usize, Fault),
    Unite,
    Calm,
    Look,
}

struct Entry(u64, u64, Occurrence);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// A node and what surrounds it.
struct Host {
    machine: Machine,
    node: Option<Node>,
    life: u32,
    paused_until_ns: u64,
    /// Its machine sleeps, or is stopped, until then.
    asleep_until_ns: u64,
    backlog: VecDeque<Input>,
    held: Vec<Effect>,
    trap: Option<(Boundary, bool, u32)>,
    links: Vec<[Link; 2]>,
    /// When the last message to and from the engine arrives, where messages keep their order.
    last_ns: [u64; 2],
    name: String,
}

struct Server {
    engine: Box<dyn FakeEngine>,
    machine: Machine,
    up: bool,
}

/// A window that a node believes in.
struct Belief {
    host: usize,
    events: Vec<usize>,
    closes: Reading,
}

/// See the [module](self).
pub(super) struct World<'a> {
    schedule: &'a Schedule,
    mutant: Option<Mutant>,
    heap: BinaryHeap<Reverse<Entry>>,
    serial: u64,
    now_ns: u64,
    hosts: Vec<Host>,
    servers: Vec<Server>,
    registers: Vec<Register>,
    resources: Vec<Resource>,
    choices: Choices,
    net: Net,
    calm: bool,
    split: Option<u8>,
    beliefs: BTreeMap<LeaseId, Belief>,
    /// Who made each claim, and whether it is still waiting: which resource.
    claimants: BTreeMap<LeaseId, (usize, Option<usize>)>,
    free: Vec<bool>,
    standing: Vec<Option<LeaseId>>,
    events: Vec<Event>,
}

/// Runs a schedule to its end.
pub(super) fn run(schedule: &Schedule, mutant: Option<Mutant>) -> Vec<Event> {
    let mut world = World::new(schedule, mutant);
    let end_ns = u64::from(schedule.setup.end_ms) * MS;
    while let Some(Reverse(Entry(at_ns, _, occurrence))) = world.heap.pop() {
        if at_ns > end_ns {
            break;
        }
        world.now_ns = at_ns;
        world.happen(occurrence);
    }
    world.now_ns = end_ns;
    world.events
}

impl<'a> World<'a> {
    fn new(schedule: &'a Schedule, mutant: Option<Mutant>) -> Self {
        let setup = &schedule.setup;
        let engine_setup = engine::Setup {
            max_ttl: Ttl::from_millis(u64::from(setup.max_ttl_ms)).unwrap_or(Ttl::MIN),
            doubts_every_start: setup.doubts_every_start,
            sets_tokens_aside: setup.kindred == Kindred::Local,
            refreshes_after: Duration::ZERO,
            lines_vanish_after: None,
            refused_claims_tell: false,
            mutant,
        };
        let servers = setup.servers.iter().map(|&(ppm, offset_ms)| {
            let engine = setup.kindred.server(engine_setup);
            let mut machine = Machine::new(5_000_000 * MS, ppm[0], ppm[1], ppm[2]);
            machine.step_wall(0, i64::from(offset_ms) * 1_000_000);
            Server { engine, machine, up: true }
        });
        let resources: Vec<Resource> =
            (0..setup.resources).filter_map(|at| Resource::new(&format!("r{at}")).ok()).collect();
        let mut world = Self {
            schedule,
            mutant,
            heap: BinaryHeap::new(),
            serial: 0,
            now_ns: 0,
            hosts: Vec::new(),
            servers: servers.collect(),
            registers: vec![Register::default(); resources.len()],
            free: vec![true; resources.len()],
            standing: vec![None; resources.len()],
            resources,
            choices: Choices::new(schedule.seed ^ 0x5EED),
            net: setup.net,
            calm: false,
            split: None,
            beliefs: BTreeMap::new(),
            claimants: BTreeMap::new(),
            events: Vec::new(),
        };
        for (at, ppm) in setup.nodes.iter().enumerate() {
            let machine = match setup.kindred {
                // Nodes and engine share one machine.
                Kindred::Local => world.servers[0].machine,
                _ => Machine::new((1_000 + at as u64) * 1_000 * MS, ppm[0], ppm[1], ppm[2]),
            };
            world.hosts.push(Host {
                machine,
                node: None,
                life: 0,
                paused_until_ns: 0,
                asleep_until_ns: 0,
                backlog: VecDeque::new(),
                held: Vec::new(),
                trap: None,
                links: vec![[Link::default(); 2]; world.servers.len() + 1],
                last_ns: [0; 2],
                name: String::new(),
            });
            world.start(at);
        }
        for (at, step) in schedule.steps.iter().enumerate() {
            world.at(u64::from(step.at_ms) * MS, Occurrence::Step(at));
        }
        world.at(u64::from(setup.calm_ms) * MS, Occurrence::Calm);
        world.at(LOOK_NS, Occurrence::Look);
        world
    }

    fn at(&mut self, at_ns: u64, occurrence: Occurrence) {
        self.serial += 1;
        self.heap.push(Reverse(Entry(at_ns, self.serial, occurrence)));
    }

    fn rule(&self) -> ClockRule {
        match self.schedule.setup.kindred {
            Kindred::Local => ClockRule::Boot,
            _ => ClockRule::LargestOfThree,
        }
    }

    /// Starts a node's process anew.
    fn start(&mut self, at: usize) {
        let kindred = self.schedule.setup.kindred;
        let client = kindred.client(0, self.mutant);
        let seed = self.choices.next();
        let (rule, mutant, resources) = (self.rule(), self.mutant, self.resources.clone());
        let host = &mut self.hosts[at];
        host.life += 1;
        host.name = format!("n{at}.{}", host.life);
        let number = u8::try_from(at).unwrap_or_default();
        let evented = matches!(kindred, Kindred::Local | Kindred::Server);
        host.node = Some(Node::new(number, rule, mutant, client, resources, seed, evented));
        host.backlog.clear();
        host.held.clear();
        host.trap = None;
        // A process that starts on a machine that sleeps starts when it wakes.
        let until_ns = host.asleep_until_ns;
        host.paused_until_ns = until_ns;
        if until_ns > self.now_ns {
            self.at(until_ns, Occurrence::Resume(at, until_ns));
        }
    }

    fn moment(&self, host: usize) -> Moment {
        Moment { at_ns: self.now_ns, reading: self.hosts[host].machine.read(self.now_ns) }
    }

    /// The engine's clocks now.
    fn engine_now(&self, server: usize) -> Now {
        let machine = &self.servers[server].machine;
        let which = match self.schedule.setup.kindred {
            Kindred::Local | Kindred::Etcd => Which::Boot,
            Kindred::Server | Kindred::Quorum(_) | Kindred::Observed => Which::Real,
        };
        Now {
            clock_us: machine.clock(which).read(self.now_ns) / 1_000,
            unix_us: machine.clock(Which::Real).read(self.now_ns) / 1_000,
        }
    }

    fn happen(&mut self, occurrence: Occurrence) {
        match occurrence {
            Occurrence::Step(at) => self.step(self.schedule.steps[at].action),
            Occurrence::ToServer { node, life, request, server, body } => {
                self.serve(node, life, request, server, &body);
            }
            Occurrence::ToNode { node, life, input } => {
                if self.hosts[node].life == life {
                    self.give(node, input);
                }
            }
            Occurrence::Timer { node, life, id, timing, due_ns } => self.ring(node, life, id, timing, due_ns),
            Occurrence::Fence { node, life, ask } => self.fence(node, life, &ask),
            Occurrence::Resume(node, until_ns) => {
                if self.hosts[node].paused_until_ns == until_ns {
                    self.resume(node);
                }
            }
            Occurrence::Restart(node, life) => {
                if self.hosts[node].life == life {
                    self.start(node);
                }
            }
            Occurrence::Awake { node, frozen } => self.sleep_machine(node, frozen, false),
            Occurrence::ServerUp(server, fault) => self.server_up(server, fault),
            Occurrence::Unite => self.split = Some(u8::MAX),
            Occurrence::Calm => self.calm_down(),
            Occurrence::Look => {
                self.look();
                self.at(self.now_ns + LOOK_NS, Occurrence::Look);
            }
        }
    }

    fn later(&self, ms: u32) -> u64 {
        self.now_ns + u64::from(ms) * MS
    }

    fn step(&mut self, action: Action) {
        let now_ns = self.now_ns;
        match action {
            Action::Want(node, want) => self.give(usize::from(node), Input::Want(want)),
            Action::Cancel(node) => self.give(usize::from(node), Input::Cancel),
            Action::Pause(node, Boundary::Now, ms) => self.pause(usize::from(node), ms),
            Action::Crash(node, Boundary::Now, ms) => self.crash(usize::from(node), ms),
            Action::Pause(node, boundary, ms) => {
                self.hosts[usize::from(node)].trap = Some((boundary, false, ms));
            }
            Action::Crash(node, boundary, ms) => {
                self.hosts[usize::from(node)].trap = Some((boundary, true, ms));
            }
            Action::Suspend(node, ms) => self.sleep_for(usize::from(node), false, ms),
            Action::Freeze(node, ms) => self.sleep_for(usize::from(node), true, ms),
            Action::StepWall(node, ms) => {
                let by_ns = i64::from(ms) * 1_000_000;
                self.change_clocks(usize::from(node), |machine| machine.step_wall(now_ns, by_ns));
            }
            Action::Rate(node, which, ppm) => {
                self.change_clocks(usize::from(node), |machine| machine.set_rate(now_ns, which, ppm));
            }
            Action::Stall(node, server, way, ms) => {
                let until_ns = self.later(ms);
                self.hosts[usize::from(node)].links[usize::from(server)][way as usize].stall(until_ns);
            }
            Action::Cut(node, server, way, ms) => {
                let until_ns = self.later(ms);
                self.hosts[usize::from(node)].links[usize::from(server)][way as usize].cut(until_ns);
            }
            Action::Snapshot(server) => {
                let now = self.engine_now(usize::from(server));
                self.servers[usize::from(server)].engine.fault(now, Fault::Snapshot);
            }
            Action::Restart(server, ms, memory) => {
                self.servers[usize::from(server)].up = false;
                self.at(self.later(ms), Occurrence::ServerUp(usize::from(server), Fault::Restart(memory)));
            }
            Action::LeaderChange(server, ms) => {
                self.servers[usize::from(server)].up = false;
                self.at(self.later(ms), Occurrence::ServerUp(usize::from(server), Fault::LeaderChange));
            }
            Action::StepServer(server, ms) => {
                let by_ns = i64::from(ms) * 1_000_000;
                self.servers[usize::from(server)].machine.step_wall(now_ns, by_ns);
            }
            Action::RateServer(server, ppm) => {
                let machine = &mut self.servers[usize::from(server)].machine;
                for which in [Which::Boot, Which::Raw, Which::Real] {
                    machine.set_rate(now_ns, which, ppm);
                }
            }
            Action::Split(nodes, ms) => self.divide(nodes, ms),
            Action::Revoke(resource, at_once) => self.revoke(usize::from(resource), at_once),
        }
    }
}

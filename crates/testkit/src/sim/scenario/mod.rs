//! Scenarios: an engine, and what storms over it. A seed makes one schedule of a scenario.

mod storms;

use super::{
    claims::Assumption,
    client::Kindred,
    schedule::{Action, Finish, Net, Schedule, Setup, Step, Want},
};
use crate::random::Choices;

/// A kind of trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storm {
    /// Processes are stopped, killed, and change their minds.
    Processes,
    /// Messages are late, lost, doubled, and held up one way.
    Network,
    /// Machines sleep, wall clocks of holders step, rates change within the margin.
    Clocks,
    /// Rates leave the margin.
    FastClocks,
    /// Virtual machines stop with all their clocks.
    Frozen,
    /// Engines start again with all, part or none of their memory.
    Restarts,
    /// The engine's wall clock steps.
    EngineClock,
    /// A second master beside the first.
    Split,
    /// Another leader.
    Leaders,
    /// A backup is restored, unannounced.
    Restore,
    /// An operator revokes, and waits for the old end.
    Revocations,
    /// An operator frees what is held.
    Force,
}

impl Storm {
    /// Which assumptions it breaks on this engine.
    pub fn breaks(self, kindred: Kindred) -> &'static [Assumption] {
        match self {
            Self::FastClocks => &[Assumption::Rates],
            Self::Frozen => &[Assumption::ClocksRun],
            // The others do not judge by a wall clock.
            Self::EngineClock if matches!(kindred, Kindred::Server | Kindred::Quorum(_)) => {
                &[Assumption::NoStep]
            }
            Self::Split => &[Assumption::OneStore],
            Self::Restore => &[Assumption::Remembers],
            Self::Force => &[Assumption::NoForce],
            _ => &[],
        }
    }
}

/// A scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Its name, as the command line takes it.
    pub name: &'static str,
    /// The engine.
    pub kindred: Kindred,
    /// What happens to it.
    pub storms: &'static [Storm],
}

use Storm::{
    Clocks, EngineClock, FastClocks, Force, Frozen, Leaders, Network, Processes, Restarts, Restore,
    Revocations, Split,
};

/// All scenarios. A run picks one by its seed.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "local", kindred: Kindred::Local, storms: &[Processes, Network, Clocks] },
    Scenario { name: "local-restarts", kindred: Kindred::Local, storms: &[Processes, Restarts] },
    Scenario { name: "server", kindred: Kindred::Server, storms: &[Processes, Network, Clocks] },
    Scenario {
        name: "server-restarts",
        kindred: Kindred::Server,
        storms: &[Processes, Network, Clocks, Restarts],
    },
    Scenario { name: "server-clock", kindred: Kindred::Server, storms: &[Processes, Network, EngineClock] },
    Scenario { name: "server-split", kindred: Kindred::Server, storms: &[Processes, Network, Split] },
    Scenario { name: "operator", kindred: Kindred::Server, storms: &[Processes, Network, Revocations] },
    Scenario { name: "force", kindred: Kindred::Server, storms: &[Processes, Network, Force] },
    Scenario { name: "fast-clocks", kindred: Kindred::Server, storms: &[Processes, FastClocks] },
    Scenario { name: "frozen", kindred: Kindred::Server, storms: &[Processes, Frozen] },
    Scenario { name: "quorum3", kindred: Kindred::Quorum(3), storms: &[Processes, Network, Clocks] },
    Scenario {
        name: "quorum3-restarts",
        kindred: Kindred::Quorum(3),
        storms: &[Processes, Network, Clocks, Restarts],
    },
    Scenario {
        name: "quorum5-restarts",
        kindred: Kindred::Quorum(5),
        storms: &[Processes, Network, Restarts],
    },
    Scenario {
        name: "quorum3-clock",
        kindred: Kindred::Quorum(3),
        storms: &[Processes, Network, EngineClock],
    },
    Scenario {
        name: "etcd",
        kindred: Kindred::Etcd,
        storms: &[Processes, Network, Clocks, Leaders, EngineClock],
    },
    Scenario { name: "etcd-restore", kindred: Kindred::Etcd, storms: &[Processes, Network, Restore] },
    Scenario {
        name: "observed",
        kindred: Kindred::Observed,
        storms: &[Processes, Network, Clocks, EngineClock],
    },
    Scenario {
        name: "observed-restarts",
        kindred: Kindred::Observed,
        storms: &[Processes, Network, Restarts],
    },
];

/// The scenario of this name.
pub fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

pub(super) fn storms_of(name: &str) -> &'static [Storm] {
    find(name).map_or(&[], |scenario| scenario.storms)
}

/// The scenario that a seed picks when none is named.
pub fn of_seed(seed: u64) -> &'static Scenario {
    let at = Choices::new(seed ^ 0xA5).below(SCENARIOS.len() as u64);
    &SCENARIOS[usize::try_from(at).unwrap_or_default()]
}

/// How long it is calm at the end, for everything to come to rest: the longest TTL and quarantine, and a turn for everybody
/// who may still wait, one after another.
fn rest(steps: &[Step]) -> u32 {
    let turns = steps.iter().filter_map(|step| match step.action {
        Action::Want(_, want) => Some(want.hold_ms + TURN_MS),
        _ => None,
    });
    REST_MS + turns.sum::<u32>()
}

/// Two longest TTLs with their lock-delays and some seconds.
pub(super) const REST_MS: u32 = 15_000;
/// A re-check by the front of a queue, or a dead one's reservation.
const TURN_MS: u32 = 600;

struct Draw {
    choices: Choices,
    kindred: Kindred,
    nodes: u8,
    servers: u8,
    resources: u8,
    calm_ms: u32,
    steps: Vec<Step>,
}

impl Scenario {
    /// The schedule that this seed makes.
    pub fn schedule(&self, seed: u64) -> Schedule {
        let mut choices = Choices::new(seed);
        let servers: u8 = match self.kindred {
            Kindred::Quorum(members) => u8::try_from(members).unwrap_or(3),
            _ => 1,
        };
        let nodes = 2 + u8::try_from(choices.below(3)).unwrap_or(0);
        let resources = 1 + u8::from(choices.one_in(3));
        let calm_ms = 3_000 + below(&mut choices, 5_000);
        let mut draw =
            Draw { choices, kindred: self.kindred, nodes, servers, resources, calm_ms, steps: Vec::new() };
        let setup = draw.setup(self.storms);
        draw.wants();
        for storm in self.storms {
            draw.storm(*storm);
        }
        let mut steps = draw.steps;
        steps.sort_by_key(|step| step.at_ms);
        let setup = Setup { end_ms: setup.calm_ms + rest(&steps), ..setup };
        Schedule { scenario: self.name, seed, setup, steps }
    }
}

fn below(choices: &mut Choices, bound: u32) -> u32 {
    u32::try_from(choices.below(u64::from(bound))).unwrap_or(0)
}

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        below(&mut self.choices, bound)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let at = usize::try_from(self.choices.below(from.len() as u64)).unwrap_or(0);
        from[at]
    }

    fn node(&mut self) -> u8 {
        u8::try_from(self.choices.below(u64::from(self.nodes))).unwrap_or(0)
    }

    fn server(&mut self) -> u8 {
        u8::try_from(self.choices.below(u64::from(self.servers))).unwrap_or(0)
    }

    fn ppm(&mut self, most: u32) -> i32 {
        let drawn = self.below(2 * most + 1);
        i32::try_from(drawn).unwrap_or(0) - i32::try_from(most).unwrap_or(0)
    }

    fn rates(&mut self, most: u32) -> [i32; 3] {
        [self.ppm(most), self.ppm(most), self.ppm(most)]
    }

    fn push(&mut self, at_ms: u32, action: Action) {
        self.steps.push(Step { at_ms, action });
    }

    fn snapshot_before(&mut self, at_ms: u32, within_ms: u32, server: u8) {
        let before_ms = self.below(within_ms);
        self.push(at_ms.saturating_sub(before_ms), Action::Snapshot(server));
    }

    /// A moment of the storm, and how long something that begins then may last at most.
    fn moment(&mut self, longest_ms: u32) -> (u32, u32) {
        let at_ms = self.below(self.calm_ms - 200);
        let for_ms = 1 + self.below(longest_ms);
        (at_ms, for_ms.min(self.calm_ms - at_ms - 1))
    }

    fn setup(&mut self, storms: &[Storm]) -> Setup {
        let quorum = matches!(self.kindred, Kindred::Quorum(_));
        // Within the margin of 5,000 ppm, all of it used.
        let most = if storms.contains(&FastClocks) { 90_000 } else { 4_990 };
        let nodes = (0..self.nodes).map(|_| self.rates(most)).collect();
        let servers = (0..self.servers)
            .map(|_| {
                let same = self.ppm(most);
                let offset = if quorum { self.ppm(400) } else { 0 };
                ([same; 3], offset)
            })
            .collect();
        let mut net = if storms.contains(&Network) { self.net(quorum) } else { CLEAR };
        if self.kindred == Kindred::Local {
            // Within one machine messages wait, but none is lost or doubled.
            (net.loss, net.twice) = (0, 0);
        }
        Setup {
            kindred: self.kindred,
            nodes,
            servers,
            resources: self.resources,
            max_ttl_ms: if self.kindred == Kindred::Etcd { 4_000 } else { 2_000 },
            doubts_every_start: self.choices.one_in(3),
            net,
            calm_ms: self.calm_ms,
            end_ms: self.calm_ms,
        }
    }

    fn net(&mut self, quorum: bool) -> Net {
        Net {
            least_us: 100,
            most_us: if quorum {
                self.pick(&[1_000, 5_000, 15_000])
            } else {
                self.pick(&[1_000, 10_000, 60_000])
            },
            loss: self.pick(&[0, 0, 100, 20, 7]),
            twice: self.pick(&[0, 20, 5]),
            slow: self.pick(&[0, 30, 8]),
            slow_ms: self.pick(&[300, 1_500, 5_000]),
        }
    }

    fn want(&mut self) -> Want {
        let shortest = if matches!(self.kindred, Kindred::Quorum(_)) { 800 } else { 150 };
        let finish = self.pick(&[Finish::Release, Finish::Release, Finish::Drop, Finish::Never]);
        let limit = (finish == Finish::Never || self.choices.one_in(6)).then(|| 200 + self.below(2_500));
        Want {
            resource: u8::try_from(self.choices.below(u64::from(self.resources))).unwrap_or(0),
            ttl_ms: shortest + self.below(2_001 - shortest),
            lock_delay_ms: if self.choices.one_in(4) { self.below(500) } else { 0 },
            wait_ms: self.pick(&[Some(0), Some(1_500), Some(4_000), None]),
            hold_ms: self.pick(&[20, 300, 1_200, 3_000]),
            finish,
            max_hold_ms: limit,
            write_every_ms: self.pick(&[40, 150, 400]),
        }
    }

    fn wants(&mut self) {
        for node in 0..self.nodes {
            let mut at_ms = self.below(500);
            while at_ms < self.calm_ms {
                let want = self.want();
                self.push(at_ms, Action::Want(node, want));
                at_ms += 200 + self.below(1_500);
            }
            // In the calm everybody gets its turn.
            for _ in 0..2 {
                let at_ms = self.calm_ms + self.below(4_000);
                let want = self.want();
                let calm = Want {
                    wait_ms: None,
                    hold_ms: want.hold_ms.min(1_200),
                    finish: if want.finish == Finish::Never { Finish::Drop } else { want.finish },
                    ..want
                };
                self.push(at_ms, Action::Want(node, calm));
            }
        }
    }
}

/// A network that nothing is wrong with.
const CLEAR: Net = Net { least_us: 100, most_us: 5_000, loss: 0, twice: 0, slow: 0, slow_ms: 0 };

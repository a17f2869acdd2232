//! Processes and their machines: what reaches them, what they do, and what stops them.

use leasehold_core::LeaseId;

use super::{CALM, Effect, FENCE, Kindred, MS, Machine, Occurrence, Timing, What, Which, World};
use crate::sim::{clock::Clock, network::Link, node::Input, schedule::Boundary};

impl World<'_> {
    /// Something reaches a process; one that is stopped will find it when it goes on.
    pub(super) fn give(&mut self, node: usize, input: Input) {
        let caught = matches!(input, Input::Reply { .. }) && self.springs(node, Boundary::BeforeReply);
        let host = &mut self.hosts[node];
        if host.node.is_none() {
            return;
        }
        if caught || host.paused_until_ns > self.now_ns {
            host.backlog.push_back(input);
            return;
        }
        self.run_node(node, input);
    }

    pub(super) fn run_node(&mut self, at: usize, input: Input) {
        let moment = self.moment(at);
        let Some(node) = &mut self.hosts[at].node else { return };
        node.on(input, moment);
        let effects = std::mem::take(&mut node.effects);
        self.perform(at, effects);
    }

    pub(super) fn perform(&mut self, at: usize, effects: Vec<Effect>) {
        for effect in effects {
            let caught = match effect {
                Effect::Write { .. } => self.springs(at, Boundary::BeforeWrite),
                Effect::Send { .. } => self.springs(at, Boundary::BeforeSend),
                _ => false,
            };
            let stopped = caught || self.hosts[at].paused_until_ns > self.now_ns;
            if self.hosts[at].node.is_none() {
                return;
            }
            match effect {
                // What was believed is known at once, and a timer counts from when it was asked for: only acts wait.
                Effect::Note { .. } | Effect::Deadline { .. } | Effect::Timer { .. } => self.act(at, effect),
                effect if stopped => self.hosts[at].held.push(effect),
                effect => self.act(at, effect),
            }
        }
    }

    /// A trap that waits for this moment snaps: the process is stopped or killed.
    pub(super) fn springs(&mut self, at: usize, boundary: Boundary) -> bool {
        let Some((_, kills, ms)) = self.hosts[at].trap.take_if(|(waits, _, _)| *waits == boundary) else {
            return false;
        };
        if kills {
            self.crash(at, ms);
        } else {
            self.pause(at, ms);
        }
        true
    }

    pub(super) fn act(&mut self, at: usize, effect: Effect) {
        let life = self.hosts[at].life;
        match effect {
            Effect::Send { request, server, body } => self.send(at, request, server, &body),
            Effect::Timer { id, timing, after } => {
                let clock = self.clock_of(at, timing);
                let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
                let due_ns = clock.read(self.now_ns) + after_ns;
                let at_ns = self.then(clock, due_ns);
                self.at(at_ns, Occurrence::Timer { node: at, life, id, timing, due_ns });
            }
            ask @ (Effect::Seal { .. } | Effect::Look { .. } | Effect::Write { .. }) => {
                let net = if self.calm { CALM } else { FENCE };
                if let Some(at_ns) = Link::default().carry(&net, self.now_ns, &mut self.choices) {
                    self.at(at_ns, Occurrence::Fence { node: at, life, ask });
                }
            }
            Effect::Note { resource, lease_id, what } => self.note(at, resource, lease_id, what),
            Effect::Deadline { lease_id, closes } => {
                if let Some(belief) = self.beliefs.get_mut(&lease_id) {
                    belief.closes = closes;
                }
                self.predict(lease_id);
            }
        }
    }

    /// When to look whether a clock shows a value: when it will, as it runs now; soon, while it stands.
    pub(super) const fn then(&self, clock: Clock, due_ns: u64) -> u64 {
        match clock.when(due_ns) {
            u64::MAX => self.now_ns + 20 * MS,
            at_ns if at_ns < self.now_ns => self.now_ns,
            at_ns => at_ns,
        }
    }

    pub(super) fn clock_of(&self, at: usize, timing: Timing) -> Clock {
        self.hosts[at].machine.clock(match timing {
            Timing::Runtime => Which::Raw,
            Timing::Alarm => Which::Boot,
        })
    }

    pub(super) fn ring(&mut self, node: usize, life: u32, id: u64, timing: Timing, due_ns: u64) {
        if self.hosts[node].life != life {
            return;
        }
        let clock = self.clock_of(node, timing);
        if clock.read(self.now_ns) < due_ns {
            // The clock was slowed down or stopped meanwhile.
            let at_ns = self.then(clock, due_ns);
            return self.at(at_ns, Occurrence::Timer { node, life, id, timing, due_ns });
        }
        self.give(node, Input::Timer(id));
    }

    pub(super) fn pause(&mut self, at: usize, ms: u32) {
        let until_ns = self.later(ms).max(self.hosts[at].paused_until_ns);
        self.hosts[at].paused_until_ns = until_ns;
        self.at(until_ns, Occurrence::Resume(at, until_ns));
    }

    pub(super) fn resume(&mut self, at: usize) {
        for effect in std::mem::take(&mut self.hosts[at].held) {
            self.act(at, effect);
        }
        while self.hosts[at].paused_until_ns <= self.now_ns {
            let Some(input) = self.hosts[at].backlog.pop_front() else { break };
            self.run_node(at, input);
        }
    }

    pub(super) fn crash(&mut self, at: usize, ms: u32) {
        let host = &mut self.hosts[at];
        if host.node.take().is_none() {
            return;
        }
        host.life += 1;
        let life = host.life;
        // Its windows stand as they were: whoever comes after it must not rely on its death being known.
        self.beliefs.retain(|_, belief| belief.host != at);
        let died: Vec<(LeaseId, usize)> = (self.claimants.iter())
            .filter_map(|(&lease_id, &(host, waits))| Some((lease_id, waits.filter(|_| host == at)?)))
            .collect();
        for (lease_id, resource) in died {
            self.note(at, resource, lease_id, What::GaveUp);
        }
        self.at(self.later(ms), Occurrence::Restart(at, life));
    }

    pub(super) fn change_clocks(&mut self, at: usize, change: impl Fn(&mut Machine)) {
        if self.schedule.setup.kindred == Kindred::Local {
            // One machine: all processes and the engine with it.
            self.hosts.iter_mut().for_each(|host| change(&mut host.machine));
            self.servers.iter_mut().for_each(|server| change(&mut server.machine));
        } else {
            change(&mut self.hosts[at].machine);
        }
        let believed: Vec<LeaseId> = self.beliefs.keys().copied().collect();
        for lease_id in believed {
            self.predict(lease_id);
        }
    }

    pub(super) fn sleep_for(&mut self, at: usize, frozen: bool, ms: u32) {
        self.sleep_machine(at, frozen, true);
        let until_ns = self.later(ms);
        for host in self.sharing(at) {
            self.pause(host, ms);
            self.hosts[host].asleep_until_ns = self.hosts[host].asleep_until_ns.max(until_ns);
        }
        self.at(self.later(ms), Occurrence::Awake { node: at, frozen });
    }

    pub(super) fn sleep_machine(&mut self, at: usize, frozen: bool, asleep: bool) {
        let now_ns = self.now_ns;
        self.change_clocks(at, |machine| {
            if frozen {
                machine.freeze(now_ns, asleep);
            } else {
                machine.suspend(now_ns, asleep);
            }
        });
    }

    pub(super) fn sharing(&self, at: usize) -> Vec<usize> {
        match self.schedule.setup.kindred {
            Kindred::Local => (0..self.hosts.len()).collect(),
            _ => vec![at],
        }
    }
}

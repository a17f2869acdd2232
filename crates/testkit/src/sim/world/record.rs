//! What is written down: belief in true time, what the engine says of itself, what the fence saw.

use leasehold_core::{
    LeaseId, Token,
    record::{Released, Renewed},
    window::Reading,
};

use super::{Belief, Kindred, MS, Occurrence, What, World};
use crate::{
    check::Event,
    sim::{
        engine::{Reply, Request},
        fence::Verdict,
        node::{Effect, Input},
    },
};

impl World<'_> {
    pub(super) fn note(&mut self, at: usize, resource: usize, lease_id: LeaseId, mut what: What) {
        if let What::Granted { open_ns, .. } = &mut what {
            *open_ns = self.now_ns;
        }
        let index = self.events.len();
        self.events.push(Event {
            at_ns: self.now_ns,
            process: self.hosts[at].name.clone(),
            resource: self.resources[resource].as_str().to_owned(),
            lease_id,
            what,
        });
        match what {
            What::Attempt => {
                self.claimants.insert(lease_id, (at, Some(resource)));
            }
            What::GaveUp => {
                self.claimants.insert(lease_id, (at, None));
            }
            What::Granted { .. } => {
                self.claimants.insert(lease_id, (at, None));
                let belief = Belief { host: at, events: vec![index], closes: Reading::default() };
                self.beliefs.insert(lease_id, belief);
            }
            What::Extended { .. } => {
                let new = || Belief { host: at, events: Vec::new(), closes: Reading::default() };
                self.beliefs.entry(lease_id).or_insert_with(new).events.push(index);
            }
            What::Released { .. } | What::Lost { .. } => {
                self.beliefs.remove(&lease_id);
            }
            _ => {}
        }
    }

    /// Writes down when a window will be closed in true time, as its machine's clocks run now.
    pub(super) fn predict(&mut self, lease_id: LeaseId) {
        let rule = self.rule();
        let Some(belief) = self.beliefs.get(&lease_id) else { return };
        let until_ns = self.hosts[belief.host].machine.closes_at(belief.closes, rule);
        let Some((last, earlier)) = belief.events.split_last() else { return };
        // What has closed stays closed, unless the clock that closed it was set back before anybody looked.
        if until_ns <= self.now_ns
            && closes_of(&self.events[*last]).is_some_and(|ns| ns != 0 && ns <= until_ns)
        {
            return;
        }
        for &index in earlier {
            if closes_of(&self.events[index]).is_some_and(|ns| ns > until_ns) {
                set_close(&mut self.events[index], until_ns);
            }
        }
        set_close(&mut self.events[*last], until_ns);
    }

    pub(super) fn note_all(&mut self, what: What) {
        self.write_down("world", "", LeaseId::from_bytes([0; 16]), what);
    }

    pub(super) fn write_down(&mut self, process: &str, resource: &str, lease_id: LeaseId, what: What) {
        self.events.push(Event {
            at_ns: self.now_ns,
            process: process.to_owned(),
            resource: resource.to_owned(),
            lease_id,
            what,
        });
    }

    /// Writes down what a renewal or a release changed, and what had stood.
    pub(super) fn note_change(
        &mut self,
        node: usize,
        body: &Request,
        reply: &Reply,
        before: Option<(LeaseId, Token)>,
    ) {
        let Some((stood, stood_token)) = before else { return };
        let (resource, lease_id, asked) = match (body, reply) {
            (Request::Renew(renewals), Reply::Renewed(answers)) => match (&renewals[..], &answers[..]) {
                ([renewal], [Renewed::Extended { .. }]) => {
                    (renewal.resource.clone(), renewal.lease_id, Some(renewal.token.get()))
                }
                _ => return,
            },
            (Request::Release(release), Reply::Released(Released::Ended)) => {
                (release.resource.clone(), release.lease_id, release.token.map(Token::get))
            }
            _ => return,
        };
        let process = self.hosts[node].name.clone();
        let what = What::Changed { asked, stood, stood_token: stood_token.get() };
        self.write_down(&process, resource.as_str(), lease_id, what);
    }

    /// The engine that is asked now.
    pub(super) fn authority(&self) -> usize {
        usize::from(self.split == Some(u8::MAX))
    }

    pub(super) fn look(&mut self) {
        if self.split.is_some_and(|nodes| nodes != u8::MAX) {
            return;
        }
        let server = self.authority();
        let now = self.engine_now(server);
        for at in 0..self.resources.len() {
            let standing = self.servers[server].engine.standing(now, &self.resources[at]);
            if let Some((lease_id, token)) = standing {
                let resource = self.resources[at].as_str().to_owned();
                self.write_down("engine", &resource, lease_id, What::Stands { token });
            }
        }
        self.look_at_free();
    }

    /// Writes down when a resource has become free at an engine that grants.
    pub(super) fn look_at_free(&mut self) {
        if matches!(self.schedule.setup.kindred, Kindred::Quorum(_) | Kindred::Observed) {
            return;
        }
        let server = self.authority();
        let now = self.engine_now(server);
        let grants = self.servers[server].up && self.servers[server].engine.grants(now);
        for at in 0..self.resources.len() {
            let standing = self.servers[server].engine.standing(now, &self.resources[at]);
            let free = grants && standing.is_none();
            if free && !self.free[at] {
                let lease_id = self.standing[at].unwrap_or(LeaseId::from_bytes([0; 16]));
                let resource = self.resources[at].as_str().to_owned();
                self.write_down("engine", &resource, lease_id, What::Free);
            }
            self.free[at] = free;
            self.standing[at] = standing.map(|(lease_id, _)| lease_id).or(self.standing[at]);
        }
    }

    pub(super) fn fence(&mut self, node: usize, life: u32, ask: &Effect) {
        let mutant = self.mutant;
        let (job, resource, verdict, noted) = match *ask {
            Effect::Look { job, resource } => {
                let version = self.registers[resource].version();
                (job, resource, Verdict::Admitted { version }, None)
            }
            Effect::Seal { job, resource, token, lease_id } => {
                let verdict = self.registers[resource].seal(token, lease_id, mutant);
                let admitted = matches!(verdict, Verdict::Admitted { .. });
                let version = self.registers[resource].version();
                (job, resource, verdict, Some((lease_id, What::Sealed { token, admitted, version })))
            }
            Effect::Write { job, resource, token, lease_id, op_seq, based_on } => {
                let verdict = self.registers[resource].write(token, lease_id, op_seq, mutant);
                let admitted = matches!(verdict, Verdict::Admitted { .. });
                let version = self.registers[resource].version();
                let (op_seq, based_on) = (Some(op_seq), Some(based_on));
                let what = What::Write { token, admitted, version, op_seq, based_on };
                (job, resource, verdict, Some((lease_id, what)))
            }
            _ => return,
        };
        if let Some((lease_id, what)) = noted {
            let name = self.resources[resource].as_str().to_owned();
            self.write_down("fence", &name, lease_id, what);
        }
        if self.hosts[node].life == life {
            let at_ns = self.now_ns + 200_000 + self.choices.below(2 * MS);
            self.at(at_ns, Occurrence::ToNode { node, life, input: Input::Fence { job, verdict } });
        }
    }
}

fn closes_of(event: &Event) -> Option<u64> {
    match event.what {
        What::Granted { close_ns, .. } | What::Extended { close_ns, .. } => Some(close_ns),
        _ => None,
    }
}

fn set_close(event: &mut Event, until_ns: u64) {
    if let What::Granted { close_ns, .. } | What::Extended { close_ns, .. } = &mut event.what {
        *close_ns = until_ns;
    }
}

//! Servers and the way to them.

use leasehold_core::{Kind, Label, LeaseId, Resource, request::Revocation};

use super::{Kindred, Occurrence, Server, What, World};
use crate::sim::{
    engine::{Fault, Reply, Request},
    node::Input,
    schedule::Way,
};

impl World<'_> {
    pub(super) fn route(&self, node: usize, server: usize) -> usize {
        match self.split {
            Some(nodes) if nodes == u8::MAX || nodes >> node & 1 == 1 => 1,
            _ => server,
        }
    }

    pub(super) fn send(&mut self, node: usize, request: u64, server: usize, body: &Request) {
        let server = self.route(node, server);
        let life = self.hosts[node].life;
        let twice = self.net.twice > 0 && self.choices.one_in(u64::from(self.net.twice));
        for _ in 0..=u8::from(twice) {
            if let Some(at_ns) = self.carry(node, server, Way::There) {
                let body = body.clone();
                self.at(at_ns, Occurrence::ToServer { node, life, request, server, body });
            }
        }
    }

    /// When a message between a node and a server arrives, if it does.
    pub(super) fn carry(&mut self, node: usize, server: usize, way: Way) -> Option<u64> {
        let link = self.hosts[node].links[server][way as usize];
        let at_ns = link.carry(&self.net, self.now_ns, &mut self.choices)?;
        if self.schedule.setup.kindred != Kindred::Local {
            return Some(at_ns);
        }
        // Within one machine nothing overtakes.
        let last_ns = &mut self.hosts[node].last_ns[way as usize];
        *last_ns = at_ns.max(*last_ns + 1);
        Some(*last_ns)
    }

    pub(super) fn serve(&mut self, node: usize, life: u32, request: u64, server: usize, body: &Request) {
        if !self.servers[server].up {
            if self.choices.one_in(2) {
                let reply = Reply::Failed(Kind::Unavailable);
                self.reply(node, life, request, server, reply);
            }
            return;
        }
        let now = self.engine_now(server);
        let before = subject(body).and_then(|at| self.servers[server].engine.standing(now, &at));
        let answer = self.servers[server].engine.handle(now, body);
        self.note_change(node, body, &answer.reply, before);
        for lease_id in answer.wakes {
            self.wake(lease_id, server);
        }
        self.look_at_free();
        self.reply(node, life, request, server, answer.reply);
    }

    pub(super) fn reply(&mut self, node: usize, life: u32, request: u64, server: usize, reply: Reply) {
        if self.hosts[node].life != life {
            return;
        }
        if let Some(at_ns) = self.carry(node, server, Way::Back) {
            let input = Input::Reply { request, server, reply };
            self.at(at_ns, Occurrence::ToNode { node, life, input });
        }
    }

    /// A wake is a hint: it may be lost, and is, in a storm.
    pub(super) fn wake(&mut self, lease_id: LeaseId, server: usize) {
        let Some(&(node, _)) = self.claimants.get(&lease_id) else { return };
        if !self.calm && self.choices.one_in(8) {
            return;
        }
        let life = self.hosts[node].life;
        if let Some(at_ns) = self.carry(node, server, Way::Back) {
            self.at(at_ns, Occurrence::ToNode { node, life, input: Input::Wake(lease_id) });
        }
    }

    pub(super) fn server_up(&mut self, server: usize, fault: Fault) {
        let now = self.engine_now(server);
        let forgot = self.servers[server].engine.fault(now, fault);
        self.servers[server].up = true;
        if forgot {
            // A clock that runs fast by the drift makes a quarantine shorter in true time.
            let for_ms = u64::from(self.schedule.setup.max_ttl_ms) * 994 / 1_000;
            self.note_all(What::Forgot { for_ms });
        }
        self.look_at_free();
    }

    pub(super) fn divide(&mut self, nodes: u8, ms: u32) {
        if self.servers.len() != 1 {
            return;
        }
        let now = self.engine_now(0);
        let Some(engine) = self.servers[0].engine.promoted(now) else { return };
        self.servers.push(Server { engine, machine: self.servers[0].machine, up: true });
        self.split = Some(nodes & 0x7F);
        self.at(self.later(ms), Occurrence::Unite);
    }

    pub(super) fn revoke(&mut self, resource: usize, at_once: bool) {
        let now = self.engine_now(0);
        let Some((_, token)) = self.servers[0].engine.standing(now, &self.resources[resource]) else {
            return;
        };
        let revocation = Revocation {
            resource: self.resources[resource].clone(),
            token,
            by: Label::default(),
            reason: Label::default(),
            now: at_once,
        };
        for lease_id in self.servers[0].engine.handle(now, &Request::Revoke(revocation)).wakes {
            self.wake(lease_id, 0);
        }
    }
}

/// The one resource that a request is about.
fn subject(body: &Request) -> Option<Resource> {
    match body {
        Request::Renew(renewals) if renewals.len() == 1 => Some(renewals[0].resource.clone()),
        Request::Release(release) => Some(release.resource.clone()),
        _ => None,
    }
}

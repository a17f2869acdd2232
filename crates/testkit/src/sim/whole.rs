//! A client and its servers in one hand, on a network that loses nothing and takes no time. What the simulator's protocols
//! answer where nothing breaks, so that they can be held against a real coordinator on real servers.

use std::{collections::VecDeque, fmt};

use leasehold_core::{Kind, slot::Now, window::Reading};

use super::{
    Kindred,
    client::{Answer, Call, Client, Order},
    engine::{FakeEngine, Reply, Request, Setup},
};

/// One deployment.
pub struct Whole {
    client: Box<dyn Client>,
    servers: Vec<Box<dyn FakeEngine>>,
    calls: u64,
}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Whole").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}

impl Whole {
    /// A deployment that was prepared and remembers nothing yet.
    pub fn new(kindred: Kindred, setup: Setup) -> Self {
        let servers = (0..kindred.servers()).map(|_| kindred.server(setup)).collect();
        Self { client: kindred.client(0, setup.mutant), servers, calls: 0 }
    }

    /// Asks for a grant, a renewal or a release, all clocks showing `now`.
    pub fn ask(&mut self, now: Now, request: &Request) -> Reply {
        match request {
            Request::Acquire(claim) => self.call(now, &Call::Acquire(claim.clone())),
            Request::Release(release) => self.call(now, &Call::Release(release.clone())),
            Request::Renew(renewals) => {
                let mut all = Vec::new();
                for some in renewals.chunks(self.client.batch()) {
                    match self.call(now, &Call::Renew(some.to_vec())) {
                        Reply::Renewed(renewed) => all.extend(renewed),
                        other => return other,
                    }
                }
                Reply::Renewed(all)
            }
            _ => Reply::Failed(Kind::Unsupported),
        }
    }

    fn call(&mut self, now: Now, call: &Call) -> Reply {
        let reading = Reading {
            boot_ns: now.clock_us.saturating_mul(1_000),
            raw_ns: now.clock_us.saturating_mul(1_000),
            real_ns: now.unix_us.saturating_mul(1_000),
        };
        self.calls += 1;
        let (id, mut orders) = (self.calls, Vec::new());
        let mut answer = self.client.begin(id, call, reading, &mut orders);
        let mut under_way: VecDeque<Order> = orders.drain(..).collect();
        loop {
            let heard = match under_way.pop_front() {
                Some(Order::Send(server, body)) => {
                    let reply = self.servers[server].handle(now, &body).reply;
                    self.client.replied(id, server, reply, reading, &mut orders)
                }
                // Nobody is late.
                Some(Order::Alarm(_)) => None,
                None => break,
            };
            answer = answer.or(heard);
            under_way.extend(orders.drain(..));
        }
        answer
            .or_else(|| self.client.alarm(id, reading, &mut orders))
            .map_or(Reply::Failed(Kind::Unknown), told)
    }
}

fn told(answer: Answer) -> Reply {
    match answer {
        Answer::Acquired(acquired) => Reply::Acquired(acquired),
        Answer::Released(released) => Reply::Released(released),
        Answer::Failed(error) => Reply::Failed(error.kind()),
        Answer::Renewed(renewed) => {
            let all: Result<Vec<_>, _> = renewed.into_iter().collect();
            all.map_or_else(|error| Reply::Failed(error.kind()), Reply::Renewed)
        }
    }
}

//! Speaks to the coordinator from inside the guard, when the front cannot: to release after the front was killed, and to
//! renew while it is suspended.

use leasehold::{
    ConnectBuilder,
    blocking::{self, Leases},
    core::{
        policy::Policy,
        record::Renewed,
        request::{Release, Renewal as Ask},
        window::Window,
    },
};

use super::handoff;
use crate::supervise::{Caretaker, Keeper, Process, Renewal};

/// Made before the fork, used after it: holds settings and nothing that a fork would break.
pub(super) struct LeaseCaretaker {
    pub(super) connect: ConnectBuilder,
    pub(super) policy: Policy,
}

impl LeaseCaretaker {
    fn connect(&self) -> Option<Leases> {
        Leases::connect_with(self.connect.clone()).ok()
    }
}

impl Caretaker for LeaseCaretaker {
    fn release(&self, bytes: &[u8]) {
        let Some(belief) = handoff::decode(bytes) else { return };
        let Some(leases) = self.connect() else { return };
        let identity = belief.identity;
        let release = Release {
            resource: identity.resource,
            lease_id: identity.lease_id,
            token: Some(identity.token),
            succeeded: false,
        };
        // Nobody is left to tell; what is not released runs out by itself.
        let _ = blocking::block_on(leases.inner().release_once(release));
    }

    fn keep_alive(&self, bytes: &[u8]) -> Box<dyn Keeper> {
        let belief = handoff::decode(bytes);
        let leases = self.connect();
        match (belief, leases) {
            (Some(belief), Some(leases)) => {
                let rule = leases.inner().profile().clock;
                let window = Window::new(belief.sent, belief.ttl, self.policy.margin(), rule);
                let ask = Ask {
                    resource: belief.identity.resource,
                    lease_id: belief.identity.lease_id,
                    token: belief.identity.token,
                    ttl: belief.ttl,
                    lock_delay: self.policy.lock_delay(),
                };
                // What max-hold leaves is in the front's deadline already; the guard never goes beyond it.
                let end_ns =
                    self.policy.max_hold().map_or(u64::MAX, |limit| belief.opened.plus(limit).boot_ns);
                Box::new(LeaseKeeper { leases, policy: self.policy, ask, window, end_ns })
            }
            _ => Box::new(Nobody),
        }
    }

    fn unkillable(&self, _: &[u8], left: &[Process]) {
        super::say::unkillable(left);
    }
}

struct LeaseKeeper {
    leases: Leases,
    policy: Policy,
    ask: Ask,
    window: Window,
    end_ns: u64,
}

impl Keeper for LeaseKeeper {
    fn renew(&mut self) -> Renewal {
        let rule = self.leases.inner().profile().clock;
        let sent = leasehold::clock::read(rule);
        let answer = blocking::block_on(self.leases.inner().renew_once(self.ask.clone()));
        let now = leasehold::clock::read(rule);
        let wait = match answer {
            Ok(Renewed::Extended { ttl }) => {
                let extended = Window::new(sent, ttl, self.policy.margin(), rule);
                self.window = self.window.widest(extended, now);
                self.policy.renew_every()
            }
            Ok(_) => return Renewal::Lost,
            Err(_) => self.policy.retry_delay(0, u64::MAX),
        };
        let deadline_ns = self.window.closes().boot_ns.min(self.end_ns);
        Renewal::Held { deadline_ns, next_ns: now.plus(wait).boot_ns }
    }
}

/// Cannot renew: the deadline stands, and ends the command in time.
struct Nobody;

impl Keeper for Nobody {
    fn renew(&mut self) -> Renewal {
        Renewal::Held { deadline_ns: 0, next_ns: u64::MAX }
    }
}

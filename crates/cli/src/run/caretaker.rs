//! Speaks to the coordinator from inside the guard, when the front cannot: to release after the front was killed, and to
//! renew while it is suspended.

use leasehold::{
    Belief, ConnectBuilder, Leases, blocking,
    core::{
        policy::Policy,
        record::Renewed,
        request::{Release, Renewal as Ask},
        window::Window,
    },
};

use super::{handoff, nanos};
use crate::{
    interrupt::run_for,
    patience::CONNECT_LIMIT,
    supervise::{Caretaker, Keeper, Process, Renewal, boottime_ns},
};

/// Made before the fork, used after it: holds settings and nothing that a fork would break.
pub(super) struct LeaseCaretaker {
    pub(super) connect: ConnectBuilder,
    pub(super) policy: Policy,
}

/// Connects, within the limit. The deadline does not wait for it: another thread keeps that.
fn connect(builder: &ConnectBuilder) -> Option<Leases> {
    run_for(CONNECT_LIMIT, builder.clone().connect())?.ok()
}

impl Caretaker for LeaseCaretaker {
    fn release(&self, bytes: &[u8]) -> bool {
        let Some((belief, _)) = handoff::decode(bytes) else { return false };
        let Some(leases) = connect(&self.connect) else { return false };
        let identity = belief.identity;
        let release = Release {
            resource: identity.resource,
            lease_id: identity.lease_id,
            token: Some(identity.token),
            succeeded: false,
        };
        // What is not released runs out by itself.
        blocking::block_on(leases.release_once(release)).is_ok()
    }

    fn keep_alive(&self, bytes: &[u8]) -> Box<dyn Keeper> {
        let Some((belief, max_hold)) = handoff::decode(bytes) else { return Box::new(Nobody) };
        // What max-hold leaves is in the front's deadline already; the guard never goes beyond it.
        let end_ns = max_hold.map_or(u64::MAX, |limit| belief.opened.plus(limit).boot_ns);
        // The TTL may have become another since the fork, and the time between renewals with it.
        let policy = self.policy.with_ttl(belief.ttl).unwrap_or(self.policy);
        let connect = self.connect.clone();
        Box::new(LeaseKeeper { connect, link: None, policy, belief, end_ns, failures: 0 })
    }

    fn unkillable(&self, _: &[u8], left: &[Process]) {
        super::say::unkillable(left);
    }
}

struct LeaseKeeper {
    connect: ConnectBuilder,
    /// The client and the window, once there is a connection.
    link: Option<(Leases, Window)>,
    policy: Policy,
    belief: Belief,
    end_ns: u64,
    /// Attempts in a row that came to nothing.
    failures: u32,
}

impl LeaseKeeper {
    /// The client; connects if there is none yet. A suspension may last for days, and the first attempt fall into a bad
    /// moment: each renewal tries anew.
    fn link(&mut self) -> Option<(Leases, Window)> {
        if self.link.is_none() {
            let leases = connect(&self.connect)?;
            let rule = leases.profile().clock;
            let window = Window::new(self.belief.sent, self.belief.ttl, self.policy.margin(), rule);
            self.link = Some((leases, window));
        }
        self.link.clone()
    }

    /// Nothing is known that was not known before: the deadline stands.
    fn again(&mut self, deadline_ns: u64) -> Renewal {
        let wait = self.policy.retry_delay(self.failures, u64::MAX);
        self.failures = self.failures.saturating_add(1);
        Renewal::Held { deadline_ns, next_ns: boottime_ns().saturating_add(nanos(wait)) }
    }
}

impl Keeper for LeaseKeeper {
    fn renew(&mut self) -> Renewal {
        let Some((leases, window)) = self.link() else { return self.again(0) };
        let rule = leases.profile().clock;
        let ask = Ask {
            resource: self.belief.identity.resource.clone(),
            lease_id: self.belief.identity.lease_id,
            token: self.belief.identity.token,
            ttl: self.belief.ttl,
            lock_delay: self.policy.lock_delay(),
        };
        let sent = leasehold::clock::read(rule);
        match blocking::block_on(leases.renew_once(ask)) {
            Ok(Renewed::Extended { ttl }) => {
                self.failures = 0;
                let now = leasehold::clock::read(rule);
                let window = window.widest(Window::new(sent, ttl, self.policy.margin(), rule), now);
                self.link = Some((leases, window));
                let deadline_ns = window.closes().boot_ns.min(self.end_ns);
                Renewal::Held { deadline_ns, next_ns: now.plus(self.policy.renew_every()).boot_ns }
            }
            Ok(_) => Renewal::Lost,
            Err(_) => self.again(window.closes().boot_ns.min(self.end_ns)),
        }
    }
}

/// Cannot renew: the deadline stands, and ends the command in time.
struct Nobody;

impl Keeper for Nobody {
    fn renew(&mut self) -> Renewal {
        Renewal::Held { deadline_ns: 0, next_ns: u64::MAX }
    }
}

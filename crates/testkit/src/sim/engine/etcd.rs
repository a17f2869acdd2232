//! A store of keys and leases, as etcd is: a grant is a key that did not exist, attached to a lease; its revision is the
//! token. TTLs are whole seconds of at least two, and a lease that ran out is found up to half a second late. A new leader
//! gives every lease its full TTL again. A restored backup takes revisions back, and says nothing.

use std::collections::BTreeMap;

use leasehold_core::{Kind, LeaseId, Resource, Token, slot::Now};

use super::{Answer, FakeEngine, Fault, Memory, Reply, Request, Setup};

const SECOND_US: u64 = 1_000_000;
/// Ran-out leases are looked for this often.
const ROUND_US: u64 = SECOND_US / 2;
/// A leader is elected within this; leases then last so much longer.
const ELECTION_US: u64 = SECOND_US;
/// 1.5 election time-outs, rounded up.
const MIN_TTL_S: u64 = 2;
/// Where tokens begin, so that they compare with those of engines that floor them by time.
const BASE: u64 = 1_800_000_000_000_000;

/// What it is asked.
#[derive(Clone, Debug)]
pub enum EtcdAsk {
    /// Makes a lease.
    Grant {
        /// Which: chosen by the claimant.
        id: LeaseId,
        /// For how many seconds.
        ttl_s: u64,
    },
    /// Makes the key of a resource, if it does not exist.
    Create {
        /// Which.
        resource: Resource,
        /// The lease that it lives with: one for each attempt of a claim.
        id: LeaseId,
        /// The claim.
        value: LeaseId,
    },
    /// Extends a lease.
    KeepAlive(LeaseId),
    /// Ends a lease and its key.
    Revoke(LeaseId),
    /// Deletes the key of a resource, if it was made for this claim.
    Delete {
        /// Which.
        resource: Resource,
        /// The claim.
        value: LeaseId,
    },
}

/// What it answers.
#[derive(Clone, Copy, Debug)]
pub enum EtcdAnswer {
    /// The lease runs for so many seconds; zero when it is gone.
    Ttl(u64),
    /// There is such a lease already.
    Exists,
    /// The key is there.
    Key {
        /// For which claim.
        value: LeaseId,
        /// The lease that it lives with.
        id: LeaseId,
        /// Base and revision of its making.
        token: Token,
        /// The TTL of its lease in seconds.
        ttl_s: u64,
        /// True when it was made by this very request.
        made: bool,
    },
    /// No such lease: nothing was made.
    NoLease,
    /// Done, or there was nothing to do.
    Done {
        /// True when there was something.
        was: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ttl_s: u64,
    expires_us: u64,
}

#[derive(Clone, Debug, Default)]
struct Store {
    revision: u64,
    leases: BTreeMap<LeaseId, Lease>,
    /// Claim, lease and revision of each key.
    keys: BTreeMap<Resource, (LeaseId, LeaseId, u64)>,
}

/// Keys and leases, judged by the store.
#[derive(Debug)]
pub struct Etcd {
    store: Store,
    snapshot: Store,
}

impl Etcd {
    /// An empty store.
    pub fn new(_setup: Setup) -> Self {
        Self { store: Store::default(), snapshot: Store::default() }
    }

    /// Takes away what ran out before the last round.
    fn sweep(&mut self, now: Now) {
        let round_us = now.clock_us / ROUND_US * ROUND_US;
        self.store.leases.retain(|_, lease| lease.expires_us > round_us);
        let leases = &self.store.leases;
        let before = self.store.keys.len();
        self.store.keys.retain(|_, (_, id, _)| leases.contains_key(id));
        self.store.revision += u64::from(self.store.keys.len() < before);
    }

    fn grant(&mut self, now: Now, id: LeaseId, ttl_s: u64) -> EtcdAnswer {
        if self.store.leases.contains_key(&id) {
            return EtcdAnswer::Exists;
        }
        let ttl_s = ttl_s.max(MIN_TTL_S);
        self.store.leases.insert(id, Lease { ttl_s, expires_us: now.clock_us + ttl_s * SECOND_US });
        EtcdAnswer::Ttl(ttl_s)
    }

    fn create(&mut self, resource: &Resource, id: LeaseId, value: LeaseId) -> EtcdAnswer {
        // Whose key is there already is told also to one whose own lease is gone: nothing is put.
        let made = !self.store.keys.contains_key(resource);
        if made && !self.store.leases.contains_key(&id) {
            return EtcdAnswer::NoLease;
        }
        if made {
            self.store.revision += 1;
            self.store.keys.insert(resource.clone(), (value, id, self.store.revision));
        }
        let Some(&(value, id, revision)) = self.store.keys.get(resource) else { return EtcdAnswer::NoLease };
        let ttl_s = self.store.leases.get(&id).map_or(MIN_TTL_S, |lease| lease.ttl_s);
        match Token::new(BASE + revision) {
            Ok(token) => EtcdAnswer::Key { value, id, token, ttl_s, made },
            Err(_) => EtcdAnswer::NoLease,
        }
    }

    fn keep_alive(&mut self, now: Now, id: LeaseId) -> EtcdAnswer {
        match self.store.leases.get_mut(&id).filter(|lease| lease.expires_us > now.clock_us) {
            Some(lease) => {
                lease.expires_us = now.clock_us + lease.ttl_s * SECOND_US;
                EtcdAnswer::Ttl(lease.ttl_s)
            }
            // Gone, or about to be found: the raw answer is "fine", with no TTL in it.
            None => EtcdAnswer::Ttl(0),
        }
    }

    fn revoke(&mut self, id: LeaseId) -> EtcdAnswer {
        let was = self.store.keys.values().any(|(_, holder, _)| *holder == id);
        self.store.keys.retain(|_, (_, holder, _)| *holder != id);
        self.store.leases.remove(&id);
        // Revisions count changes of keys; a lease is none.
        self.store.revision += u64::from(was);
        EtcdAnswer::Done { was }
    }

    fn delete(&mut self, resource: &Resource, value: LeaseId) -> EtcdAnswer {
        match self.store.keys.get(resource) {
            Some(&(holder, id, _)) if holder == value => self.revoke(id),
            _ => EtcdAnswer::Done { was: false },
        }
    }
}

impl FakeEngine for Etcd {
    fn handle(&mut self, now: Now, request: &Request) -> Answer {
        let Request::Etcd(ask) = request else { return Reply::Failed(Kind::Unsupported).into() };
        self.sweep(now);
        Reply::Etcd(match ask {
            EtcdAsk::Grant { id, ttl_s } => self.grant(now, *id, *ttl_s),
            EtcdAsk::Create { resource, id, value } => self.create(resource, *id, *value),
            EtcdAsk::KeepAlive(id) => self.keep_alive(now, *id),
            EtcdAsk::Revoke(id) => self.revoke(*id),
            EtcdAsk::Delete { resource, value } => self.delete(resource, *value),
        })
        .into()
    }

    fn fault(&mut self, now: Now, fault: Fault) -> bool {
        match fault {
            Fault::Snapshot => {
                self.snapshot = self.store.clone();
                return false;
            }
            Fault::Restart(Memory::Lost) => self.store = Store::default(),
            Fault::Restart(Memory::Stale) => self.store = self.snapshot.clone(),
            Fault::LeaderChange | Fault::Restart(Memory::Kept) => {}
        }
        for lease in self.store.leases.values_mut() {
            lease.expires_us = now.clock_us + lease.ttl_s * SECOND_US + ELECTION_US;
        }
        // It cannot tell that it forgot, and so makes no promise about it.
        false
    }

    fn standing(&self, now: Now, resource: &Resource) -> Option<(LeaseId, Token)> {
        let &(value, id, revision) = self.store.keys.get(resource)?;
        let round_us = now.clock_us / ROUND_US * ROUND_US;
        self.store.leases.get(&id).filter(|lease| lease.expires_us > round_us)?;
        Some((value, Token::new(BASE + revision).ok()?))
    }

    fn grants(&self, _now: Now) -> bool {
        true
    }
}

//! A small correct coordinator in memory, built over [`leasehold_core::slot`] and nothing else.
//!
//! It exists so that the suite has something to pass against, and something to break: every rule it follows is one method
//! of [`Rules`], and a [broken coordinator](crate::broken) overrides one of them. It is not for use: it keeps everything
//! for ever, in one map, under one mutex.
//!
//! Its futures need no runtime. Each of them yields once before and once after its atomic step, so that dropping one
//! leaves a request that was never applied, or an answer that nobody heard, as on a real engine.

mod client;
mod engine;
mod mailbox;
mod rules;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    LeaseId, Namespace, Resource, Ttl, line::MemoryLine, record::Past, slot::Now, slot::Slot,
};

use crate::lock;

pub use client::Client;
pub use rules::{Rules, Sound};

use crate::clock::{Clock, SystemClock};
use mailbox::Mailbox;

/// One resource's record and queue.
#[derive(Clone, Debug, Default)]
pub struct Seat {
    /// The record.
    pub slot: Slot,
    /// The queue.
    pub line: MemoryLine,
    /// The grants that have ended, the latest first.
    pub past: Vec<Past>,
}

/// A reply path that loses something, for trying what a caller is told then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The request never reaches the engine.
    Request,
    /// The request is applied and its answer is lost.
    Answer,
}

/// The engine: namespaces in memory.
#[derive(Clone, Debug)]
pub struct Reference {
    name: &'static str,
    clock: Arc<dyn Clock>,
    rules: Arc<dyn Rules>,
    spaces: Arc<Mutex<HashMap<Namespace, Arc<Space>>>>,
}

/// One namespace.
#[derive(Debug)]
pub(crate) struct Space {
    clock: Arc<dyn Clock>,
    rules: Arc<dyn Rules>,
    skipped_us: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seats: BTreeMap<Resource, Seat>,
    max_ttl: Ttl,
    quarantine_until_us: u64,
    mail: HashMap<LeaseId, Weak<Mailbox>>,
}

/// The longest TTL of a namespace that asks for no other (a minute: as on engines reached over a network, so that the
/// bound can be tested).
const DEFAULT_MAX_TTL: Duration = Duration::from_secs(60);

impl Reference {
    /// A correct engine on this machine's clocks.
    pub fn new() -> Self {
        Self::with_rules("reference", Arc::new(Sound))
    }

    /// An engine that follows `rules`.
    pub fn with_rules(name: &'static str, rules: Arc<dyn Rules>) -> Self {
        Self { name, clock: Arc::new(SystemClock), rules, spaces: Arc::default() }
    }

    /// The same on another clock.
    #[must_use]
    pub fn on_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects a client to a namespace, which is made if it does not exist.
    pub fn client(&self, namespace: &Namespace) -> Client {
        Client::new(self.space(namespace, None), None)
    }

    fn space(&self, namespace: &Namespace, max_ttl: Option<Ttl>) -> Arc<Space> {
        let namespace = self.rules.file_under(namespace);
        let mut spaces = lock(&self.spaces);
        let make = || {
            let state = State {
                seats: BTreeMap::new(),
                max_ttl: max_ttl.or_else(|| Ttl::new(DEFAULT_MAX_TTL).ok()).unwrap_or_default(),
                quarantine_until_us: 0,
                mail: HashMap::new(),
            };
            let (clock, rules) = (Arc::clone(&self.clock), Arc::clone(&self.rules));
            Arc::new(Space { clock, rules, skipped_us: AtomicU64::new(0), state: Mutex::new(state) })
        };
        Arc::clone(spaces.entry(namespace).or_insert_with(make))
    }
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Space {
    fn now(&self) -> Now {
        let skipped = self.skipped_us.load(Ordering::SeqCst);
        let now = self.clock.now();
        self.rules.clock(Now {
            clock_us: now.clock_us.saturating_add(skipped),
            unix_us: now.unix_us.saturating_add(skipped),
        })
    }
}

impl State {
    fn quarantine(&self, rules: &dyn Rules, now: Now) -> Option<Duration> {
        let left = Duration::from_micros(self.quarantine_until_us.saturating_sub(now.clock_us));
        rules.quarantine(Some(left).filter(|left| !left.is_zero()))
    }

    fn deliver(&mut self, woken: Vec<LeaseId>) {
        for lease_id in woken {
            if let Some(mailbox) = self.mail.get(&lease_id).and_then(Weak::upgrade) {
                mailbox.put(lease_id);
            }
        }
    }
}

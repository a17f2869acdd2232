//! Stores of their own for namespaces, so that the time of each can pass alone.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::clock::{Clock, SystemClock};
use leasehold_core::{Namespace, window::Reading};

/// This machine's clocks, ahead by what was skipped.
#[derive(Debug, Default)]
pub(crate) struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn read(&self) -> Reading {
        SystemClock.read().plus(Duration::from_micros(self.0.load(Ordering::SeqCst)))
    }
}

impl Ahead {
    pub(crate) fn skip(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

/// What an engine keeps per namespace; a namespace has a store of its own, so that its time can pass alone.
pub(crate) struct Spaces<T>(Mutex<Vec<(Namespace, Arc<Ahead>, T)>>);

impl<T: Clone> Spaces<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(crate) fn get(&self, namespace: &Namespace, make: impl FnOnce(Arc<Ahead>) -> T) -> (Arc<Ahead>, T) {
        let mut spaces = self.0.lock().unwrap();
        if let Some((_, clock, space)) = spaces.iter().find(|(name, _, _)| name == namespace) {
            return (Arc::clone(clock), space.clone());
        }
        let clock = Arc::new(Ahead::default());
        let space = make(Arc::clone(&clock));
        spaces.push((namespace.clone(), Arc::clone(&clock), space.clone()));
        (clock, space)
    }
}

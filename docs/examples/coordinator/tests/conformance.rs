//! The proof: the conformance suite, run from outside Leasehold's repository.

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::{Arc, Mutex},
};

use leasehold_core::{Coordinator, Namespace, profile::Capabilities};
use leasehold_testkit::suite::{self, Connecting, Engine};
use shelf::{CAPABILITIES, Shelf, ShelfCoordinator};

/// A shelf for each namespace.
#[derive(Default)]
struct Shelves(Mutex<HashMap<Namespace, Arc<Shelf>>>);

impl Engine for Shelves {
    fn name(&self) -> &str {
        "shelf"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        let shelf = Arc::clone(self.0.lock().unwrap().entry(namespace.clone()).or_insert_with(Shelf::new));
        Box::pin(async move { Ok(Arc::new(ShelfCoordinator::new(shelf)) as Arc<dyn Coordinator>) })
    }
}

fn main() -> ExitCode {
    suite::run(vec![Box::new(Shelves::default())])
}

//! The end of a client that follows settings which its caller has: to make it look at once, and to ask what came of it.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::sync::lock;

/// Makes a client that follows a file, or the coordinator, look at once. Cheap to clone; dropping it changes nothing.
#[derive(Clone, Default, Debug)]
pub struct Follower(Arc<Inside>);

#[derive(Default, Debug)]
struct Inside {
    bell: Notify,
    problem: Mutex<Option<String>>,
}

impl Follower {
    /// Looks now, and not only in a moment: for whoever is told by a signal.
    pub fn look(&self) {
        self.0.bell.notify_one();
    }

    /// Why what is there now does not count, if it does not; what counted before still does.
    pub fn problem(&self) -> Option<String> {
        lock(&self.0.problem).clone()
    }

    pub(super) async fn rung(&self) {
        self.0.bell.notified().await;
    }

    pub(super) fn tell(&self, problem: Option<String>) {
        *lock(&self.0.problem) = problem;
    }
}

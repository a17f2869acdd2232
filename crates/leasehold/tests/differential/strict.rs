//! Engines whose clock is ours: every answer and every record is the same, to the microsecond.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Ttl,
    clock::{Clock as _, ManualClock},
};
use leasehold_core::{Coordinator, record::Inspection, slot::Now, window::Reading};
use leasehold_testkit::sim::engine::{FakeEngine as _, Reply, Request, Setup, SlotEngine};
use tokio::runtime::Runtime;

use crate::script::{Known, Step, name};

/// How an engine is set up, as the simulator's sees it.
pub(crate) const SETUP: Setup = Setup {
    max_ttl: Ttl::LOCAL_MAX,
    doubts_every_start: false,
    sets_tokens_aside: false,
    refreshes_after: Duration::ZERO,
    lines_vanish_after: None,
    refused_claims_tell: false,
    mutant: None,
};

/// A coordinator, its clock, and the engine of the simulator.
pub(crate) struct Pair<'a> {
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) clock: &'a ManualClock,
    /// Tells the engine the time; the engine's own clocks are then these.
    pub(crate) tell: &'a dyn Fn(Reading) -> Now,
    pub(crate) setup: Setup,
    /// Waits for an answer.
    pub(crate) runtime: &'a dyn Asks,
}

/// Whatever the futures of a coordinator are polled by.
pub(crate) trait Asks {
    fn ask(&self, coordinator: &dyn Coordinator, request: &Request) -> Reply;
    fn look(&self, coordinator: &dyn Coordinator, resource: usize) -> Inspection;
}

/// On the calling thread, without a runtime.
pub(crate) struct Here;

impl Asks for Here {
    fn ask(&self, coordinator: &dyn Coordinator, request: &Request) -> Reply {
        leasehold::blocking::block_on(ask(coordinator, request))
    }

    fn look(&self, coordinator: &dyn Coordinator, resource: usize) -> Inspection {
        leasehold::blocking::block_on(coordinator.inspect(name(resource))).unwrap()
    }
}

/// On a runtime that carries the connections.
pub(crate) struct On(pub(crate) Runtime);

impl On {
    pub(crate) fn new() -> Self {
        Self(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap())
    }
}

impl Asks for On {
    fn ask(&self, coordinator: &dyn Coordinator, request: &Request) -> Reply {
        self.0.block_on(ask(coordinator, request))
    }

    fn look(&self, coordinator: &dyn Coordinator, resource: usize) -> Inspection {
        self.0.block_on(coordinator.inspect(name(resource))).unwrap()
    }
}

/// Asks, and puts the answer as the simulator's engines do. How an error is worded does not count.
async fn ask(coordinator: &dyn Coordinator, request: &Request) -> Reply {
    let reply = match request.clone() {
        Request::Acquire(claim) => coordinator.acquire(claim).await.map(Reply::Acquired),
        Request::Renew(renewals) => {
            let each = coordinator.renew(renewals).await;
            each.and_then(|each| each.into_iter().collect::<Result<_, _>>().map(Reply::Renewed))
        }
        Request::Release(release) => coordinator.release(release).await.map(Reply::Released),
        Request::Revoke(revocation) => coordinator.revoke(revocation).await.map(Reply::Revoked),
        other => panic!("{other:?} is for other engines"),
    };
    reply.unwrap_or_else(|error| Reply::Failed(error.kind()))
}
impl Pair<'_> {
    /// Runs the steps on both. The first difference, if any.
    pub(crate) fn difference(&self, steps: &[Step]) -> Option<String> {
        let mut fake = SlotEngine::new(self.setup);
        let mut known = Known::default();
        for step in steps {
            if let Step::Pass(ms) = step {
                self.clock.advance(Duration::from_millis(*ms));
            }
            let now = (self.tell)(self.clock.read());
            let Some(request) = step.request(&known, now.unix_us) else { continue };
            let expected = format!("{:?}", fake.handle(now, &request).reply);
            let answer = format!("{:?}", self.runtime.ask(&*self.coordinator, &request));
            if answer != expected {
                return Some(format!("{request:?}\n  expected {expected}\n  answered {answer}"));
            }
            for (at, token) in known.tokens.iter_mut().enumerate() {
                let expected = fake.inspect(now, &name(at));
                *token = expected.last_token.or(*token);
                let expected = format!("{expected:?}");
                let seen = format!("{:?}", self.runtime.look(&*self.coordinator, at));
                if seen != expected {
                    return Some(format!("after {request:?}\n  expected {expected}\n  there is {seen}"));
                }
            }
        }
        None
    }
}

//! One conformance suite for every coordinator.
//!
//! An engine plugs in by implementing [`Engine`]; a test target without the standard harness then is
//!
//! ```no_run
//! use leasehold_testkit::{reference::Reference, suite};
//!
//! fn main() -> std::process::ExitCode {
//!     suite::run(vec![Box::new(Reference::new())])
//! }
//! ```
//!
//! Every case runs in a namespace of its own and knows nothing of the engine but its [`Coordinator`] and what it claims to
//! be able to do. Cases named `clause_NN_…` hold the clause of that number of [`leasehold_core::coordinator`]. What an
//! engine says it cannot do is not skipped: the case then holds it to refusing, or to the documented absence. A case that
//! needs help from outside (a crash, a lost answer) asks a [`Hook`]; where the engine has none, the case still checks what
//! it can, and the matrix says `partly`, with the reason, or `n/a` where there is nothing that could happen.
//!
//! No case asserts that something is quick. Bounds from above are generous; bounds from below (a grant lasts *at least* its
//! TTL) compare moments in an order that delays can only stretch; and a case that found itself too slow for what it wanted
//! to see starts again with longer TTLs.

mod cases;
mod context;
mod failure;
mod matrix;
mod run;
mod shape;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use leasehold_core::{Coordinator, Namespace, Ttl, profile::Capabilities};

pub use cases::{CASES, Case, case_names};
pub use context::Context;
pub use failure::{Failure, Verdict};
pub use matrix::{Cell, Matrix};
pub use run::{judge, run, run_case};

pub use crate::reference::Loss;

/// A connection under way.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Coordinator>, Failure>> + Send + 'a>>;

/// Help that an engine may or may not be able to give to a test.
#[derive(Debug)]
pub enum Hook<T> {
    /// It can, and this is it.
    Here(T),
    /// It cannot, and this is why. The matrix prints it.
    Absent(&'static str),
    /// There is nothing on this engine that it could happen to, and this is why. The matrix prints it.
    Inapplicable(&'static str),
}

/// An engine that can be put through the suite.
///
/// One value stands for one engine (a server, a folder of database files); namespaces on it are independent.
pub trait Engine: Send + Sync + 'static {
    /// One word, unique among the engines of a run: test names start with it.
    fn name(&self) -> &str;

    /// What the engine is supposed to be able to do. The suite holds its profile to it, so that an engine cannot lose an
    /// ability unnoticed.
    fn capabilities(&self) -> Capabilities;

    /// Connects another client to `namespace`, as another process would. The first connection makes the namespace, ready
    /// to grant (as `init --fresh` does where the engine quarantines new namespaces).
    fn connect<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a>;

    /// As [`Engine::connect`], for a case that will crash the engine: an engine whose servers are shared by the cases puts such a
    /// namespace on servers of its own, and everything that concerns it goes there from then on.
    fn connect_alone<'a>(&'a self, namespace: &'a Namespace) -> Connecting<'a> {
        self.connect(namespace)
    }

    /// The shortest TTL with which this engine can be tested sensibly: several round trips. Cases that wait for an expiry
    /// use it, and more when the machine is slow.
    fn short_ttl(&self) -> Duration {
        Duration::from_millis(300)
    }

    /// From now on the engine may have forgotten grants of `namespace`, which it makes with `max_ttl` if it does not exist:
    /// a restart without durable memory, a lost meta record, a new incarnation. Connects a client to it.
    fn forget<'a>(&'a self, namespace: &'a Namespace, max_ttl: Ttl) -> Hook<Connecting<'a>> {
        let _ = (namespace, max_ttl);
        Hook::Absent("the engine cannot be made to forget")
    }

    /// True where leases are told to outlive the engine. Where they end with it, the suite holds a crash to that instead:
    /// what was held is given to the next one who asks, with a higher token.
    fn leases_survive(&self) -> bool {
        true
    }

    /// Crashes the engine as harshly as can be arranged (for an embedded engine: every process that has the store open),
    /// starts it again and connects a client. Clients from before may be dead. Must not disturb other namespaces.
    fn crash<'a>(&'a self, namespace: &'a Namespace) -> Hook<Connecting<'a>> {
        let _ = namespace;
        Hook::Absent("the engine cannot be crashed by the test")
    }

    /// Connects a client all of whose calls lose their request, or their answer.
    fn lossy<'a>(&'a self, namespace: &'a Namespace, loss: Loss) -> Hook<Connecting<'a>> {
        let _ = (namespace, loss);
        Hook::Absent("nothing can be lost on the way to the engine")
    }

    /// Lets `by` pass on the engine's clocks, for this namespace, without waiting. Never used to test a TTL.
    fn pass_time<'a>(&'a self, namespace: &'a Namespace, by: Duration) -> Hook<()> {
        let _ = (namespace, by);
        Hook::Absent("the engine's clock cannot be moved")
    }
}

//! The same, for programs without an async runtime: every call blocks its thread, no runtime is needed, and renewals go on
//! in the background all the same.
//!
//! ```
//! use std::time::Duration;
//!
//! let leases = leasehold::blocking::Leases::connect("memory:")?;
//! let lease = leases.lease("nightly", |lease| lease.wait(Duration::from_secs(5))).acquire()?;
//! lease.check()?;
//! lease.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    cell::Cell,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use crate::fence::{Fence, NotAdmitted};
use crate::{ConnectBuilder, Ended, Error, LeaseHandle, LeaseRequest, NotAcquired, Outcome};

thread_local! {
    /// How many times over this thread has said that it may block.
    static MAY_BLOCK: Cell<u32> = const { Cell::new(0) };
}

/// True while this thread may block: a coordinator may then do on it what it would else hand to a thread of its own.
#[cfg(feature = "sqlite")]
pub(crate) fn may_block() -> bool {
    MAY_BLOCK.get() > 0
}

/// Says, for as long as `work` runs, that this thread may block for as long as a disk takes. [`block_on`] does so itself;
/// this is for an event loop of one's own that polls a future of this crate.
pub fn allowed<T>(work: impl FnOnce() -> T) -> T {
    struct Count;
    impl Drop for Count {
        fn drop(&mut self) {
            MAY_BLOCK.set(MAY_BLOCK.get() - 1);
        }
    }
    MAY_BLOCK.set(MAY_BLOCK.get() + 1);
    let _count = Count;
    work()
}

/// Runs a future of this crate on the calling thread. They need no runtime: timers and I/O are the driver's.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match allowed(|| future.as_mut().poll(&mut context)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// [`crate::Leases`] for blocking code.
#[derive(Clone, Debug)]
pub struct Leases(crate::Leases);

impl Leases {
    /// As [`crate::Leases::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &str) -> Result<Self, Error> {
        block_on(crate::Leases::connect(url)).map(Self)
    }

    /// Connects with settings of your own.
    ///
    /// # Errors
    /// As [`crate::Leases::connect`].
    pub fn connect_with(builder: ConnectBuilder) -> Result<Self, Error> {
        block_on(builder.connect()).map(Self)
    }

    /// A lease on `resource` with the settings that `configure` makes.
    pub fn lease(&self, resource: &str, configure: impl FnOnce(LeaseRequest) -> LeaseRequest) -> Request {
        Request(configure(self.0.lease(resource)))
    }

    /// The async client, for what has no blocking form: run it with [`block_on`].
    pub fn inner(&self) -> &crate::Leases {
        &self.0
    }

    /// As [`crate::Leases::close`].
    pub fn close(self, patience: Duration) {
        block_on(self.0.close(patience));
    }
}

/// A lease to be acquired by blocking code.
#[derive(Debug)]
#[must_use = "nothing is asked before acquire or attempt"]
pub struct Request(LeaseRequest);

impl Request {
    /// As [`LeaseRequest::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(self) -> Result<Lease, NotAcquired> {
        block_on(self.0.acquire()).map(Lease)
    }

    /// As [`LeaseRequest::attempt`].
    ///
    /// # Errors
    /// As there.
    pub fn attempt(self) -> Result<Outcome, Error> {
        block_on(self.0.attempt())
    }
}

/// [`crate::Lease`] for blocking code.
#[derive(Debug)]
#[must_use = "dropping a lease releases it"]
pub struct Lease(crate::Lease);

impl std::ops::Deref for Lease {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.0
    }
}

impl From<crate::Lease> for Lease {
    fn from(lease: crate::Lease) -> Self {
        Self(lease)
    }
}

impl Lease {
    /// As [`crate::Lease::seal`].
    ///
    /// # Errors
    /// As there.
    pub fn seal(&self, fence: &Fence) -> Result<(), NotAdmitted> {
        block_on(self.0.seal(fence))
    }

    /// As [`crate::Lease::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Ended, Error> {
        block_on(self.0.release())
    }

    /// As [`crate::Lease::complete`].
    ///
    /// # Errors
    /// As there.
    pub fn complete(self) -> Result<Ended, Error> {
        block_on(self.0.complete())
    }

    /// Blocks until the lease is lost or released.
    pub fn wait_until_lost(&self) -> crate::Loss {
        block_on(self.lost())
    }

    /// The async guard.
    pub fn into_inner(self) -> crate::Lease {
        self.0
    }
}

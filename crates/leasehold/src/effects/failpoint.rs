//! Where tests of this package may stop an operation, or end it as a crash would. Compiled with the feature `failpoints`, which
//! nothing but those tests switches on.

/// A moment of an operation.
#[cfg_attr(not(feature = "failpoints"), allow(unreachable_pub, reason = "only tests can name it"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Point {
    /// The key was looked up, the lease not asked for.
    BeforeAcquire,
    /// The lease is there.
    Acquired,
    /// The resource is sealed.
    Sealed,
    /// The transaction has begun; the fence was not asked yet.
    BeforeCheck,
    /// In the transaction: the key is in, the effect is not. Not in Redis, where nothing is between the two.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(dead_code, reason = "what is in Redis never reaches it")
    )]
    Inserted,
    /// In the transaction: all is in.
    BeforeCommit,
    /// The transaction is committed.
    Committed,
    /// An external effect: `started` is committed, the far end was not called.
    Started,
    /// An external effect: the far end has answered, nothing of that is stored.
    Called,
    /// The relay: an event was published, and not marked yet.
    Published,
}

#[cfg(feature = "failpoints")]
mod hook {
    use std::{fmt, pin::Pin, sync::Arc};

    use super::Point;

    type Reached = dyn Fn(Point) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

    /// What a test does at a point: it waits, or it panics.
    #[derive(Clone, Default)]
    pub struct Hook(Option<Arc<Reached>>);

    impl Hook {
        /// Does `reached` at every point.
        pub fn new(
            reached: impl Fn(Point) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static,
        ) -> Self {
            Self(Some(Arc::new(reached)))
        }

        pub(crate) async fn reach(&self, point: Point) {
            if let Some(reached) = &self.0 {
                reached(point).await;
            }
        }

        /// The same where nothing can be awaited.
        #[cfg(feature = "sqlite")]
        pub(crate) fn reach_blocking(&self, point: Point) {
            if let Some(reached) = &self.0 {
                crate::blocking::block_on(reached(point));
            }
        }
    }

    impl fmt::Debug for Hook {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(if self.0.is_some() { "Hook(set)" } else { "Hook" })
        }
    }
}

#[cfg(not(feature = "failpoints"))]
mod hook {
    use super::Point;

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Hook(());

    impl Hook {
        #[allow(clippy::unused_self, clippy::unused_async, reason = "it does something in tests")]
        pub(crate) async fn reach(&self, _: Point) {}

        #[cfg(feature = "sqlite")]
        #[allow(clippy::unused_self, reason = "it does something in tests")]
        pub(crate) fn reach_blocking(&self, _: Point) {}
    }
}

#[cfg(feature = "failpoints")]
pub use hook::Hook;
#[cfg(not(feature = "failpoints"))]
pub(crate) use hook::Hook;

//! A thread with a runtime of its own, for the stores behind a network: their connections live there, and callers may be polled
//! from anywhere.

use std::thread;

use leasehold_core::{Error, Kind};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    handle: Handle,
    /// Dropped with the room: that is what the thread waits for.
    _open: oneshot::Sender<()>,
}

impl Room {
    /// Starts it.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] when the operating system gives no thread or no runtime.
    pub(crate) fn open() -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::new(
                Kind::Unavailable,
                format!("the operating system gave no thread for the fence: {error}"),
            )
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (open, closed) = oneshot::channel::<()>();
        let main = move || {
            // What was spawned runs meanwhile.
            let _ = runtime.block_on(closed);
        };
        thread::Builder::new().name("leasehold-fence".to_owned()).spawn(main).map_err(failed)?;
        Ok(Self { handle, _open: open })
    }

    /// Runs `work` there to its end, whether or not the caller still waits for it.
    ///
    /// # Errors
    /// What `work` gives; [`Kind::Unknown`] when the thread has ended in the middle of it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let ended = self.handle.spawn(work).await;
        ended.unwrap_or_else(|_| Err(Error::new(Kind::Unknown, "the thread of the fence has ended")))
    }
}

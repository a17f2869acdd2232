//! Work on a thread of its own, with a runtime that has I/O: engines behind a network need one, and callers may have none.

use std::{io, thread};

use leasehold_core::{Error, Kind};
use tokio::sync::oneshot;

/// Runs `work` there to its end, whether or not the caller still waits for it. `early`: what is said should the thread end before.
///
/// # Errors
/// What `work` gives; [`Kind::Unavailable`] when the operating system gives no thread or no runtime.
pub(crate) async fn run<T, F>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
    early: impl FnOnce() -> Error,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>>,
{
    let (tell, told) = oneshot::channel();
    let main = move || {
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answer = match built {
            Ok(runtime) => runtime.block_on(work()),
            Err(reason) => Err(not_started(&reason)),
        };
        // Whoever asked may have gone.
        let _ = tell.send(answer);
    };
    thread::Builder::new().name(name.to_owned()).spawn(main).map_err(|reason| not_started(&reason))?;
    told.await.unwrap_or_else(|_| Err(early()))
}

fn not_started(reason: &io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("a thread for it could not be started: {reason}"))
}

//! A thread that starts servers and never ends.
//!
//! The kernel ends a server when the *thread* that started it ends. Tests run on threads that come and go; this one stays
//! until the process is gone, however that happens.

use std::{
    io,
    sync::{
        OnceLock,
        mpsc::{Sender, channel},
    },
    thread,
};

type Job = Box<dyn FnOnce() + Send>;

/// Runs `work` on the keeper's thread and waits for what it gives.
///
/// # Errors
/// When the thread cannot be had.
pub(super) fn on_keeper<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    static KEEPER: OnceLock<Option<Sender<Job>>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts servers is gone");
    let keeper = KEEPER.get_or_init(|| {
        let (give, take) = channel::<Job>();
        let keep = move || take.into_iter().for_each(|job| job());
        thread::Builder::new().name("server-keeper".to_owned()).spawn(keep).ok().map(|_| give)
    });
    let (tell, told) = channel();
    let job = Box::new(move || drop(tell.send(work())));
    keeper.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
    told.recv().map_err(|_| gone())
}

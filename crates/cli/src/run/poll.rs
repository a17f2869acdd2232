//! Joins the library's futures to the front's event loop: the main thread waits for signals, the guard and a lease at once,
//! without a runtime.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake},
};

use leasehold::blocking::allowed;

use crate::supervise::Waker;

struct Ring(Waker);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// Polls `future` once; when it becomes ready later, the front is woken. Nothing else runs on the main thread, and the
/// guard keeps the deadline: it may block for as long as a disk takes.
pub(super) fn poll_once<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>, waker: &Waker) -> Option<T> {
    let waker = std::task::Waker::from(Arc::new(Ring(waker.clone())));
    match allowed(|| future.poll(&mut Context::from_waker(&waker))) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

//! Wakes for one client: a list, and whoever waits for it.

use std::{
    collections::VecDeque,
    sync::Mutex,
    task::{Context, Poll, Waker},
};

use leasehold_core::{LeaseId, record::Wake};

use super::lock;

#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    letters: VecDeque<LeaseId>,
    reader: Option<Waker>,
}

impl Mailbox {
    pub(crate) fn put(&self, lease_id: LeaseId) {
        let reader = {
            let mut inner = lock(&self.0);
            inner.letters.push_back(lease_id);
            inner.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// The oldest letter. Reading and leaving is one step, so a reader who goes away loses nothing.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Wake> {
        let mut inner = lock(&self.0);
        if let Some(lease_id) = inner.letters.pop_front() {
            return Poll::Ready(Wake::Lease(lease_id));
        }
        inner.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

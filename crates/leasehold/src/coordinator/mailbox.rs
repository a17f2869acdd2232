//! Where wakes wait until the driver asks for them.
//!
//! A wake is a hint, so losing the difference between many of them is harmless and keeping an unbounded heap of them is
//! not: a mailbox that overflows says "look at everything" instead.

use std::{collections::VecDeque, sync::Mutex};

use leasehold_core::record::Wake;
use tokio::sync::Notify;

use crate::sync::lock;

/// More unread wakes than this are folded into one [`Wake::All`] (ours: far more than one process has waiters).
const MAX_UNREAD: usize = 4_096;

/// The unread wakes of one coordinator.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    unread: Mutex<VecDeque<Wake>>,
    arrived: Notify,
}

impl Mailbox {
    /// Leaves a wake.
    pub(crate) fn push(&self, wake: Wake) {
        let mut unread = lock(&self.unread);
        if unread.len() >= MAX_UNREAD {
            unread.clear();
            unread.push_back(Wake::All);
        } else if unread.back() != Some(&wake) {
            unread.push_back(wake);
        }
        drop(unread);
        self.arrived.notify_one();
    }

    /// Takes the oldest wake, waiting for one. Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> Wake {
        loop {
            let wake = lock(&self.unread).pop_front();
            if let Some(wake) = wake {
                return wake;
            }
            self.arrived.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::LeaseId;

    fn wake(n: u64) -> Wake {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        Wake::Lease(LeaseId::from_bytes(bytes))
    }

    #[tokio::test]
    async fn wakes_come_out_in_order_and_a_flood_becomes_one() {
        let mailbox = Mailbox::default();
        mailbox.push(wake(1));
        mailbox.push(wake(1));
        mailbox.push(wake(2));
        assert_eq!((mailbox.next().await, mailbox.next().await), (wake(1), wake(2)));
        (0..=MAX_UNREAD as u64).for_each(|n| mailbox.push(wake(n)));
        assert_eq!(mailbox.next().await, Wake::All);
    }
}

//! What the guard asks of whoever knows the lease, when the front cannot act.
//!
//! Supervision knows processes and deadlines, not leases. In three moments somebody must speak to the
//! coordinator although the front is dead or suspended; the guard then calls these.

use super::event::Process;

/// Speaks for the lease inside the guard.
///
/// It is made before the fork and used after it, in the copy: it must hold no thread, no connection and no
/// runtime, only what is needed to open them. The `handoff` is what the front last sent.
pub trait Caretaker: Send + Sync {
    /// The front is gone (or suspended) and nothing of the tree is left alive: give the lease back, so that the next
    /// waiter gets in at once. May block, within bounds of its own; its failure costs no more than the rest of the TTL.
    /// True: the coordinator has confirmed it.
    fn release(&self, handoff: &[u8]) -> bool;

    /// The front is being suspended by Ctrl-Z: renew from now on. Called on a thread of its own, and may
    /// block: the deadline is kept by another thread.
    fn keep_alive(&self, handoff: &[u8]) -> Box<dyn Keeper>;

    /// These could not be killed (another user's, or stuck in the kernel) and the front is not there to say so. The
    /// lease will not be released.
    fn unkillable(&self, handoff: &[u8], left: &[Process]);
}

/// Renews while the front is suspended; lives on a thread of its own and is dropped when the front is back.
pub trait Keeper {
    /// Renews once, now. May block.
    fn renew(&mut self) -> Renewal;
}

/// What a [`Keeper`] learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Still held until `deadline_ns`; ask again at `next_ns` (both BOOTTIME). A failed attempt is this too,
    /// with the old deadline and an early `next_ns`.
    Held {
        /// When everything must be dead.
        deadline_ns: u64,
        /// When to renew next.
        next_ns: u64,
    },
    /// The lease is certainly lost: stop the tree.
    Lost,
}

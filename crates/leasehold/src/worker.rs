//! A worker that takes pieces of work in under a lease, and stops in order: it closes its intake, finishes what is inside,
//! writes down how far it came, and releases. Only then can the successor begin, and it finds everything finished.
//!
//! ```text
//!   intake open ──drain──▶ intake shut ──all pieces out──▶ checkpoint ──▶ released
//!                                │ limit is over: pieces are told to stop, within a grace
//!                                └─ they do not: the lease is left to its TTL, never released under running work
//! ```
//!
//! The checkpoint is written wherever the successor looks, with the fencing token: beside the data; or, where a line of text is
//! enough, [at the coordinator](crate::Leases::leave_checkpoint).

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Error,
    holder::{Loss, State},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Ended, Lease, LeaseHandle, preempt::Preemptions};

/// How long pieces may take to stop once they are told to, unless said otherwise.
const GRACE: Duration = Duration::from_secs(5);

/// A lease, and the work that is done under it.
///
/// Dropping it shuts the intake and tells the pieces inside to stop. With none inside the lease is released in the
/// background; with some it is left to its TTL, because nobody may take over under running work.
#[derive(Debug)]
#[must_use = "dropping a worker ends its lease"]
pub struct Worker {
    /// `None` once it is concluded.
    lease: Option<Lease>,
    intake: Intake,
    grace: Duration,
}

/// The gate through which pieces of work come in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Intake {
    lease: LeaseHandle,
    inside: watch::Sender<Inside>,
    stop: CancellationToken,
}

#[derive(Clone, Copy, Debug, Default)]
struct Inside {
    shut: bool,
    pieces: usize,
}

/// Why nothing is let in.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Shut {
    /// No renewal has succeeded for half the TTL: what is inside may go on, nothing new may begin. It may open again.
    Uncertain,
    /// The worker is draining.
    Draining,
    /// The lease is not held any more.
    Lost(Loss),
}

/// A piece of work that is inside. Dropping it says that it has ended, and that the worker makes progress.
#[derive(Debug)]
#[must_use = "a piece that is dropped has ended"]
pub struct Piece {
    intake: Arc<Intake>,
}

/// How a drain ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Drained<C> {
    /// Everything inside was finished, the checkpoint written, the lease released.
    Complete {
        /// What the checkpoint gave.
        checkpoint: C,
        /// How the lease ended.
        ended: Ended,
    },
    /// The limit was over; what was inside stopped when it was told to. The checkpoint was written and the lease released.
    Stopped {
        /// What the checkpoint gave.
        checkpoint: C,
        /// How the lease ended.
        ended: Ended,
    },
    /// So many pieces did not stop. There is no checkpoint, and the lease runs out by itself. What they still do is to be
    /// reconciled.
    Abandoned {
        /// How many.
        pieces: usize,
    },
    /// The lease was lost first. What was inside was told to stop.
    Lost {
        /// Why.
        loss: Loss,
        /// How many pieces have not stopped.
        pieces: usize,
    },
}

impl Worker {
    /// A worker under this lease, its intake open.
    pub fn new(lease: Lease) -> Self {
        let intake = Intake {
            lease: lease.handle(),
            inside: watch::Sender::new(Inside::default()),
            stop: CancellationToken::new(),
        };
        Self { lease: Some(lease), intake, grace: GRACE }
    }

    /// How long pieces may take to stop once they are told to; default 5 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The gate, for whoever brings work.
    pub fn intake(&self) -> Intake {
        self.intake.clone()
    }

    /// Hears of those who ask for the lease; `None` once it is concluded. Whoever accepts then [drains](Worker::drain) within
    /// what the preemption leaves.
    pub fn preemptions(&self) -> Option<Preemptions> {
        self.lease.as_ref().map(Lease::preemptions)
    }

    /// The lease, until it is concluded.
    pub(crate) fn guard(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Stops in order: shuts the intake, waits until what is inside has ended (at most `limit`; twice the TTL is usual),
    /// writes the checkpoint, releases. Renewals go on until the release. `checkpoint` is dropped if the lease is lost
    /// meanwhile.
    ///
    /// **Cancel safety.** Dropping the future ends the worker as dropping the worker does.
    ///
    /// # Errors
    /// As [`Lease::release`]: everything before it was done.
    pub async fn drain<C, W: Future<Output = C>>(
        mut self,
        limit: Duration,
        checkpoint: impl FnOnce(LeaseHandle) -> W,
    ) -> Result<Drained<C>, Error> {
        self.intake.shut();
        let Some(lease) = &self.lease else { return Ok(Drained::Abandoned { pieces: 0 }) };
        lease.drain();
        let in_time = tokio::select! {
            biased;
            loss = lease.lost() => return Ok(self.lose(loss).await),
            () = self.intake.emptied() => true,
            () = lease.sleep(limit) => false,
        };
        if !in_time {
            self.intake.stop.cancel();
            tokio::select! {
                biased;
                loss = lease.lost() => return Ok(self.lose(loss).await),
                () = self.intake.emptied() => {}
                // Dropped with pieces inside, the worker lets the lease run out.
                () = lease.sleep(self.grace) => return Ok(Drained::Abandoned { pieces: self.intake.pieces() }),
            }
        }
        let checkpoint = match lease.run(checkpoint(lease.handle())).await {
            Ok(checkpoint) => checkpoint,
            Err(loss) => return Ok(self.lose(loss).await),
        };
        let Some(lease) = self.lease.take() else { return Ok(Drained::Abandoned { pieces: 0 }) };
        let ended = lease.release().await?;
        Ok(if in_time {
            Drained::Complete { checkpoint, ended }
        } else {
            Drained::Stopped { checkpoint, ended }
        })
    }

    /// The lease is lost: gives what is inside its grace to stop.
    async fn lose<C>(&self, loss: Loss) -> Drained<C> {
        self.intake.stop.cancel();
        if let Some(lease) = &self.lease {
            tokio::select! {
                () = self.intake.emptied() => {}
                () = lease.sleep(self.grace) => {}
            }
        }
        Drained::Lost { loss, pieces: self.intake.pieces() }
    }
}

impl std::ops::Deref for Worker {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.intake.lease
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.intake.shut();
        self.intake.stop.cancel();
        if let Some(lease) = self.lease.take().filter(|_| self.intake.pieces() > 0) {
            let _ = lease.forsake();
        }
    }
}

impl Intake {
    /// Lets a piece of work in, or says why not. A piece counts as inside until it is dropped.
    ///
    /// # Errors
    /// [`Shut`]: nothing new may begin.
    pub fn admit(&self) -> Result<Piece, Shut> {
        match self.lease.state() {
            State::Held => {}
            State::Uncertain => return Err(Shut::Uncertain),
            State::Draining => return Err(Shut::Draining),
            State::Lost(loss) => return Err(Shut::Lost(loss)),
            State::Releasing | State::Released => return Err(Shut::Lost(Loss::Released)),
        }
        // Counted and let in at once: a drain sees either a shut gate refused or the piece inside.
        let let_in = self.inside.send_if_modified(|inside| {
            inside.pieces += usize::from(!inside.shut);
            !inside.shut
        });
        if let_in { Ok(Piece { intake: Arc::new(self.clone()) }) } else { Err(Shut::Draining) }
    }

    /// How many pieces are inside.
    pub fn pieces(&self) -> usize {
        self.inside.borrow().pieces
    }

    /// Ready when nothing more is let in for good: the worker drains, or its lease is lost.
    ///
    /// **Cancel safety.** May be dropped and called again at any time.
    pub async fn closed(&self) {
        self.lease.draining().await;
    }

    fn shut(&self) {
        self.inside.send_modify(|inside| inside.shut = true);
    }

    async fn emptied(&self) {
        let mut inside = self.inside.subscribe();
        // The sender is ours: it does not go away meanwhile.
        let _ = inside.wait_for(|inside| inside.pieces == 0).await;
    }
}

impl Piece {
    /// The lease it is done under: for its token, and to ask before each write.
    pub fn lease(&self) -> &LeaseHandle {
        &self.intake.lease
    }

    /// Ready when the piece must stop where it is: the drain has taken too long, or the lease is lost.
    ///
    /// **Cancel safety.** May be dropped and called again at any time.
    pub async fn stopped(&self) {
        tokio::select! {
            () = self.intake.stop.cancelled() => {}
            _ = self.intake.lease.lost() => {}
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.intake.lease.progress();
        self.intake.inside.send_modify(|inside| inside.pieces -= 1);
    }
}

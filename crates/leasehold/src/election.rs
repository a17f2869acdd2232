//! Elections: a campaign that goes from term to term, through any number of losses.
//!
//! ```text
//!            ┌───────────── rest (jittered, longer after short terms) ◀─────────┐
//!            ▼                                                                  │ Again
//!        WAITING ──granted──▶ LEADING ──lost, or told to stop──▶ ENDING ──work has ended──▶ released
//!            │                   └──────────work has ended───────────────────────┘        │ Resign
//!            └── told to stop, or asking can never help ──▶ OVER ◀─────────────────────────┘
//! ```
//!
//! Somebody who asks for the lease ([`crate::Leases::preempt`]) asks the leader to step down: the term drains as if it had been told
//! to stop, and after it the campaign rests for a moment, so that another has its turn first.
//!
//! The lease is released when the work has *ended*, and not when it was told to: a successor never begins beside it. And
//! a lost term is no end: the campaign waits for the next one, unless the work says otherwise.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
    time::Duration,
};

use leasehold_core::{
    Error, Kind, Label, Token,
    backoff::{Backoff, Shape},
    window::{ClockRule, Reading},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Lease, LeaseHandle, LeaseRequest, NotAcquired, NotEnough, clock, driver::since};

/// The first and the longest rest after terms that were over at once, or claims that failed (ours: a loop of them asks
/// twice a minute).
const REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// The least rest of a leader that has stepped down (ours: whoever waits and cannot be woken asks every two seconds).
const AFTER_STEPPING_DOWN: Duration = Duration::from_secs(5);
/// A term that took less is short.
const SHORT_TERM: Duration = Duration::from_secs(10);

/// A campaign to lead, term after term. Made by [`Campaign::new`]; nothing is asked before [`Campaign::run`].
#[derive(Debug)]
#[must_use = "nothing is asked before run"]
pub struct Campaign {
    request: LeaseRequest,
    stop: CancellationToken,
    standing: watch::Sender<Standing>,
    /// What those are told who ask for the lease; `None`: the leader steps down.
    refusal: Option<String>,
}

/// Where a campaign is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Standing {
    /// It waits for its turn, or rests before it asks again.
    Waiting,
    /// It leads, under this fencing token.
    Leading(Token),
    /// The term under this token is lost, or shall end, and the work has not ended yet.
    Ending(Token),
    /// It is over, and will not lead again.
    Over,
}

/// A view of a campaign for health probes. Cheap to clone; outlives the campaign.
#[derive(Clone, Debug)]
pub struct Health(watch::Receiver<Standing>);

/// One term: the lease while it is held. Asks the questions of a [`LeaseHandle`].
#[derive(Clone, Debug)]
pub struct Term {
    lease: LeaseHandle,
    number: u64,
    asked: Arc<OnceLock<StepDown>>,
}

/// Why a leader steps down: somebody asked for its lease.
#[derive(Clone, Debug)]
pub struct StepDown {
    by: Label,
    reason: Label,
    heard: Reading,
    left: Duration,
}

/// What comes after a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After<T> {
    /// The next term, when it is this campaign's turn again.
    Again,
    /// The same, but not before this much time is over: let another have it.
    AgainIn(Duration),
    /// The campaign is over, with this.
    Resign(T),
}

/// How a campaign ended.
#[derive(Debug)]
#[must_use]
pub enum Outcome<T> {
    /// The work said so.
    Resigned(T),
    /// It was told to stop.
    Stopped,
    /// Asking again can never help.
    GaveUp(Error),
}

impl Campaign {
    /// A campaign for this lease. Its wait does not count: a campaign waits until it leads or is stopped.
    pub fn new(request: LeaseRequest) -> Self {
        let standing = watch::Sender::new(Standing::Waiting);
        Self { request: request.wait_forever(), stop: CancellationToken::new(), standing, refusal: None }
    }

    /// Whoever asks for the lease is told no, for this reason. Without it the leader steps down.
    pub fn refuse_preemptions(mut self, why: &str) -> Self {
        self.refusal = Some(why.to_owned());
        self
    }

    /// Cancelling this token ends the campaign: at once while it waits; while it leads, the term drains and the campaign ends
    /// when the work has ended.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// A view for health probes.
    pub fn health(&self) -> Health {
        Health(self.standing.subscribe())
    }

    /// Campaigns, and calls `lead` for each term. The work must end when [`LeaseHandle::draining`] or
    /// [`LeaseHandle::lost`] is ready ([`Term::stepping_down`] says whether somebody asked for it); until it has, the lease is not given to anybody by this process.
    ///
    /// **Cancel safety.** Dropping the future drops the work and ends the campaign; the lease is released in the background.
    pub async fn run<T, W: Future<Output = After<T>>>(self, mut lead: impl FnMut(Term) -> W) -> Outcome<T> {
        // Whatever way this ends, a panic of the work included, the health says so.
        let over = Over(&self.standing);
        let mut short_terms = 0;
        for number in 1.. {
            over.0.send_replace(Standing::Waiting);
            let lease = match self.elected().await {
                Ok(lease) => lease,
                Err(outcome) => return outcome,
            };
            let began = clock::read(ClockRule::Boot);
            let term = Term { lease: lease.handle(), number, asked: Arc::default() };
            let asked = Arc::clone(&term.asked);
            let after = self.lead(&lease, &asked, lead(term)).await;
            // The work has ended. What is not released now is tried in the background, and runs out at the latest.
            let _ = lease.release().await;
            short_terms = if since(began) < SHORT_TERM { short_terms + 1 } else { 0 };
            let rest = match after {
                After::Resign(value) => return Outcome::Resigned(value),
                After::AgainIn(rest) => rest,
                After::Again if asked.get().is_some() => self.rest(short_terms).max(AFTER_STEPPING_DOWN),
                After::Again => self.rest(short_terms),
            };
            over.0.send_replace(Standing::Waiting);
            if self.stopped_within(rest).await {
                break;
            }
        }
        Outcome::Stopped
    }

    /// Waits until it leads.
    async fn elected<T>(&self) -> Result<Lease, Outcome<T>> {
        for failures in 1.. {
            let answer = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Outcome::Stopped),
                answer = self.request.clone().acquire() => answer,
            };
            let rest = match answer {
                Ok(lease) => return Ok(lease),
                Err(NotAcquired::AlreadyDone(done)) => done.due_in,
                Err(NotAcquired::Failed(error)) if is_for_ever(&error) => return Err(Outcome::GaveUp(error)),
                // A password may be mended, a coordinator come back.
                Err(_) => self.rest(failures),
            };
            if self.stopped_within(rest).await {
                break;
            }
        }
        Err(Outcome::Stopped)
    }

    /// Lets the work lead to its end.
    async fn lead<T>(
        &self,
        lease: &Lease,
        asked: &OnceLock<StepDown>,
        work: impl Future<Output = After<T>>,
    ) -> After<T> {
        self.standing.send_replace(Standing::Leading(lease.token()));
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            after = &mut work => return after,
            _ = lease.lost() => {}
            () = self.stop.cancelled() => lease.drain(),
            () = self.heed(lease, asked) => {}
        }
        self.standing.send_replace(Standing::Ending(lease.token()));
        work.await
    }

    /// Ready once somebody has asked for the lease and is told that it is handed over: it drains then. Never where the answer is no.
    async fn heed(&self, lease: &Lease, asked: &OnceLock<StepDown>) {
        let mut preemptions = lease.preemptions();
        while let Some(wish) = preemptions.next().await {
            if let Some(why) = &self.refusal {
                wish.refuse(why);
                continue;
            }
            let (by, reason) = (wish.by().clone(), wish.reason().clone());
            let heard = clock::read(ClockRule::Boot);
            // Before it drains: the work that is woken by that finds out why.
            let _ = asked.set(StepDown { by, reason, heard, left: wish.remaining() });
            wish.accept();
            return;
        }
        // Lost: whoever waits for that is told.
        std::future::pending::<()>().await;
    }

    /// Full jitter, so that those who lost together do not come back together.
    fn rest(&self, times: u32) -> Duration {
        let backoff = Backoff::new(REST.0, REST.1, Shape::FullJitter).unwrap_or_default();
        times
            .checked_sub(1)
            .map_or(Duration::ZERO, |times| backoff.delay(times, self.request.client().draw()))
    }

    /// Rests. True when the campaign shall stop.
    async fn stopped_within(&self, rest: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => true,
            () = self.request.client().driver.sleep(rest) => false,
        }
    }
}

/// True for what no later attempt of the same program can get past.
fn is_for_ever(error: &Error) -> bool {
    matches!(error.kind(), Kind::Invalid | Kind::Unsupported | Kind::Corrupt)
}

/// Says that the campaign is over when it is dropped.
struct Over<'a>(&'a watch::Sender<Standing>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.send_replace(Standing::Over);
    }
}

impl Health {
    /// Where the campaign is.
    pub fn standing(&self) -> Standing {
        // A campaign that was never run, and is gone, is over too.
        if self.0.has_changed().is_err() { Standing::Over } else { *self.0.borrow() }
    }

    /// True while it may lead now or later. False: this process takes part no more; restart it.
    pub fn is_electable(&self) -> bool {
        self.standing() != Standing::Over
    }

    /// Ready at the next change.
    ///
    /// **Cancel safety.** Dropping the future loses nothing: the present is always at [`Health::standing`].
    pub async fn changed(&mut self) -> Standing {
        let _ = self.0.changed().await;
        self.standing()
    }
}

impl Term {
    /// The first term of a campaign is 1. The fencing token, and not this, orders terms of several processes.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Does it still lead, and certainly for at least `duration`? Ask before each step that only a leader may take.
    ///
    /// # Errors
    /// [`NotEnough`]: the term is lost, or what is certain is shorter.
    pub fn ensure(&self, duration: Duration) -> Result<(), NotEnough> {
        self.lease.require(duration)
    }

    /// Who asked this leader to step down and why, if that is what it does: the work has what is left of the time that it was given
    /// to end in order. Whoever asked may revoke after that.
    pub fn stepping_down(&self) -> Option<&StepDown> {
        self.asked.get()
    }

    /// The lease, to be kept or cloned.
    pub fn lease(&self) -> &LeaseHandle {
        &self.lease
    }
}

impl StepDown {
    /// Who asked.
    pub fn by(&self) -> &Label {
        &self.by
    }

    /// Why.
    pub fn reason(&self) -> &Label {
        &self.reason
    }

    /// What is left of the time to hand over.
    pub fn remaining(&self) -> Duration {
        self.left.saturating_sub(since(self.heard))
    }
}

impl Deref for Term {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.lease
    }
}

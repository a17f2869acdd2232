//! The guard: what a program has while it holds a resource.

use std::{ops::Deref, sync::Arc, time::Duration};

use leasehold_core::{
    Error, HolderId, Label, LeaseId, Resource, Token, Ttl,
    backoff::Backoff,
    holder::{Belief, Loss, State},
    record::{Gone, Grant, Notice, Released},
    request::{Release, Revocation},
    window::Reading,
};
use tokio_util::sync::CancellationToken;

use crate::{
    coordinator,
    driver::{CALL_LIMIT, Chore},
    fence::{Fence, NotAdmitted, Pass, Refusal},
    leases::Client,
    outcome::{Ended, NotEnough},
    preempt,
    shared::Shared,
};

/// How often a release is tried while its caller waits for it.
const RELEASE_ATTEMPTS: u32 = 3;

/// A held resource. Renewed in the background until it is released, dropped or lost.
///
/// It is `Send` and may be moved between tasks and threads; [`Lease::handle`] gives workers a view that asks the same
/// questions. Consumed by [`release`](Lease::release) and [`complete`](Lease::complete). Dropping it releases in the
/// background at best effort: it never blocks, never panics, and needs no runtime.
///
/// **Guarantee.** While [`check`](LeaseHandle::check) answers yes, the coordinator grants the resource to nobody else, as
/// long as clocks run within the margin's drift and the coordinator keeps what it acknowledged. A process that is paused
/// *between* the check and the write is beyond any lease: send the [`token`](LeaseHandle::token) along and let the
/// resource refuse an older one.
#[derive(Debug)]
#[must_use = "dropping a lease releases it"]
pub struct Lease {
    handle: LeaseHandle,
    client: Arc<Client>,
    granted_us: u64,
    after_lapse: bool,
    /// True once there is nothing for `drop` to do.
    concluded: bool,
}

/// A view of a lease that asks questions and cannot end it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LeaseHandle(Arc<Shared>);

impl LeaseHandle {
    /// The held thing.
    pub fn resource(&self) -> &Resource {
        &self.0.identity().resource
    }

    /// The fencing token: constant through renewals, higher at every later grant of the resource.
    pub fn token(&self) -> Token {
        self.0.identity().token
    }

    /// The grant's lease id.
    pub fn lease_id(&self) -> LeaseId {
        self.0.identity().lease_id
    }

    /// The span of this lease in `tracing`, with its resource, namespace, lease id, holder id, label and fencing token. Work that
    /// is done inside it ([`tracing::Instrument`]) belongs to this grant in whatever collects spans, OpenTelemetry for one; and what
    /// happens to the lease from then on, its loss above all, is told inside it.
    ///
    /// It is made at the first call, inside the span in which that is made, and is one and the same for all views of the lease. It
    /// ends when all of them, and the work inside it, are gone. A lease whose span nobody asks for has none.
    pub fn span(&self) -> tracing::Span {
        self.0.span().clone()
    }

    /// Is it still mine, at this moment? Reads this machine's clocks each time; no I/O, no lock, no allocation.
    ///
    /// **Guarantee.** Once it has said no it never says yes again.
    ///
    /// # Errors
    /// [`Loss`]: why it is not held any more.
    pub fn check(&self) -> Result<(), Loss> {
        self.0.check()
    }

    /// How long it is certain without a further renewal; `None` when it is not held.
    pub fn remaining(&self) -> Option<Duration> {
        if self.0.is_forked() {
            return None;
        }
        self.0.look(|holder, now| holder.state().may_work().then(|| holder.window().remaining(now)))
    }

    /// Is it still mine, and certain for at least `duration`? Ask before an external call, and give that call a deadline
    /// within `duration`.
    ///
    /// # Errors
    /// [`NotEnough`]: it is lost, or what is left is shorter.
    pub fn require(&self, duration: Duration) -> Result<(), NotEnough> {
        self.check().map_err(NotEnough::Lost)?;
        match self.remaining() {
            Some(remaining) if remaining >= duration => Ok(()),
            Some(remaining) => Err(NotEnough::Short { remaining }),
            None => Err(NotEnough::Lost(self.check().err().unwrap_or(Loss::WindowClosed))),
        }
    }

    /// Where it is now.
    pub fn state(&self) -> State {
        self.0.look(|holder, _| holder.state().clone())
    }

    /// The next change of state, as it happens; `None` once nothing can change.
    ///
    /// **Cancel safety.** Dropping the future loses nothing: the present state is always at [`LeaseHandle::state`].
    pub async fn changed(&self) -> Option<State> {
        let mut states = self.0.watch();
        if states.borrow_and_update().is_final() {
            return None;
        }
        states.changed().await.ok()?;
        Some(states.borrow().clone())
    }

    /// Ready when the lease is not held any more, with the reason ([`Loss::Released`] after a release). Driven by time on
    /// the driver's thread, not by answers: it fires at the local deadline although the coordinator is silent.
    ///
    /// **Cancel safety.** May be dropped and called again at any time.
    pub async fn lost(&self) -> Loss {
        let mut states = self.0.watch();
        match states.wait_for(State::is_final).await.as_deref() {
            Ok(State::Lost(loss)) => loss.clone(),
            _ => Loss::Released,
        }
    }

    /// A token that is cancelled when the lease is lost.
    pub fn cancellation(&self) -> CancellationToken {
        self.0.cancellation().clone()
    }

    /// Ready when the work should end: the lease is draining, or is not held any more.
    pub async fn draining(&self) {
        let mut states = self.0.watch();
        let _ = states.wait_for(|state| !matches!(state, State::Held | State::Uncertain)).await;
    }

    /// Runs `work` while the lease is held; drops it unfinished at the moment of loss.
    ///
    /// **Cancel safety.** Dropping the future drops the work with it; the lease stays.
    ///
    /// # Errors
    /// [`Loss`]: the work was not finished. What it had sent may still arrive: that is what the token is for.
    pub async fn run<W: Future>(&self, work: W) -> Result<W::Output, Loss> {
        self.check()?;
        tokio::select! {
            biased;
            loss = self.lost() => Err(loss),
            output = work => Ok(output),
        }
    }

    /// Asks the work to end: the state becomes draining and renewals go on. Release when it has ended.
    pub fn drain(&self) {
        let now = self.0.now();
        self.0.change(|holder| ((), holder.drain(now)));
    }

    /// Shows that the worker makes progress; needed only with `progress_timeout`.
    pub fn progress(&self) {
        let now = self.0.now();
        self.0.change(|holder| {
            holder.progress(now);
            ((), None)
        });
    }

    /// What a write under this lease shows at a [fence](crate::fence). Asks nothing and promises nothing: whether the write
    /// counts is for the fence to say.
    pub fn pass(&self) -> Pass {
        self.0.pass()
    }

    /// The same with a number, higher at each call: for writes that are sent before the one before them was answered, so
    /// that they cannot overtake each other. The numbers of a lease that was handed to another process begin anew there;
    /// only one of the two may number.
    pub fn numbered_pass(&self) -> Pass {
        self.0.numbered_pass()
    }

    /// What another process of this machine needs to act for this lease: who holds what, and since when its window counts.
    /// The lease stays in this process's care; see [`Lease::hand_off`].
    pub fn belief(&self) -> Belief {
        self.0.look(|holder, _| holder.belief())
    }

    /// The local deadline on this machine's clocks, as it stands now. A later renewal moves it on.
    pub fn closes(&self) -> Reading {
        self.0.look(|holder, _| holder.window().closes())
    }

    /// Ready when a renewal has moved the local deadline beyond `known`, with the new one; `None` once it can move no
    /// more. For whoever enforces the deadline outside this process.
    ///
    /// **Cancel safety.** Dropping the future loses nothing: the next call answers at once.
    pub async fn closes_after(&self, known: Reading) -> Option<Reading> {
        self.0.moved_beyond(known).await
    }
}

impl LeaseHandle {
    pub(crate) fn holder_id(&self) -> HolderId {
        self.0.holder_id()
    }

    /// The lease is handed over by somebody's wish: its release will say so.
    pub(crate) fn yield_to(&self, by: &Label, reason: &Label) {
        // The first wish that was agreed to is the one that counts.
        let _ = self.0.yields_to.set(Notice { by: by.clone(), reason: reason.clone() });
    }
}

impl Deref for Lease {
    type Target = LeaseHandle;

    fn deref(&self) -> &LeaseHandle {
        &self.handle
    }
}

impl Lease {
    pub(crate) fn new(shared: Arc<Shared>, client: Arc<Client>, grant: &Grant) -> Self {
        Self {
            handle: LeaseHandle(shared),
            client,
            granted_us: grant.granted_us,
            after_lapse: grant.after_lapse,
            concluded: false,
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The TTL that runs.
    pub(crate) fn ttl(&self) -> Duration {
        self.handle.0.look(|holder, _| holder.policy().ttl().as_duration())
    }

    /// Sleeps on the client's timers, whatever executor polls this.
    pub(crate) fn sleep(&self, duration: Duration) -> tokio::time::Sleep {
        self.client.driver.sleep(duration)
    }

    /// A view for workers.
    pub fn handle(&self) -> LeaseHandle {
        self.handle.clone()
    }

    /// When it was granted, µs since 1970 by the engine's clock. For people; never compared.
    pub fn granted_us(&self) -> u64 {
        self.granted_us
    }

    /// True when the previous holder ended uncleanly: it may have left work half done.
    pub fn after_lapse(&self) -> bool {
        self.after_lapse
    }

    /// Shuts every older holder of this resource out of `fence`. Call it once, **before** reading anything that the work will
    /// write by; a fence in a database has a `seal` of its own for its connection.
    ///
    /// **Cancel safety.** Dropping the future leaves a seal that may or may not have been set; set it again.
    ///
    /// # Errors
    /// [`NotAdmitted`]: do not read, do not write. Where the fence has seen a higher token than this lease's, the client
    /// remembers that token, so that its next grant is above it.
    pub async fn seal(&self, fence: &Fence) -> Result<(), NotAdmitted> {
        let sealed = fence.seal(&self.pass()).await;
        if let Some(stored) = sealed.as_ref().err().and_then(NotAdmitted::refusal).and_then(Refusal::stored) {
            self.client.floors.raise(self.resource(), stored.token);
        }
        sealed
    }

    /// Another TTL from the next renewal on, without letting go. It never shortens what was granted: a shorter one counts from
    /// where it ends later. The interval between renewals follows.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Invalid`]: it is longer than the namespace allows, or does not go with the rest of the policy;
    /// the old TTL stays.
    pub fn set_ttl(&self, ttl: Ttl) -> Result<(), Error> {
        let longest = self.client.coordinator().profile().max_ttl;
        if ttl > longest {
            return Err(coordinator::too_long(ttl, longest).on(self.resource()));
        }
        self.handle
            .0
            .change(|holder| (holder.set_ttl(ttl), None))
            .map_err(|invalid| Error::from(invalid).on(self.resource()))
    }

    /// Ends the lease. Call it when the work has really ended.
    ///
    /// It takes the guard, so that what was released cannot be released again, or asked:
    ///
    /// ```compile_fail,E0382
    /// # async fn example(lease: leasehold::Lease) {
    /// let _ = lease.release().await;
    /// let _ = lease.release().await;
    /// # }
    /// ```
    ///
    /// **Cancel safety.** Dropping the future leaves the release to the background, as dropping the lease would.
    ///
    /// # Errors
    /// [`leasehold_core::Kind::Unknown`] when nobody knows whether the release arrived: the resource may stay busy until the TTL runs
    /// out. Other kinds as they are; the background keeps trying.
    pub async fn release(self) -> Result<Ended, Error> {
        self.end(false).await
    }

    /// Ends the lease and records, in the same step, that the work succeeded: what `once_per` of later claims looks at.
    ///
    /// **Cancel safety.** Dropping the future may lose the record of success; the lease itself ends in the background.
    ///
    /// # Errors
    /// As [`Lease::release`]; it is then unknown whether the success was recorded.
    pub async fn complete(self) -> Result<Ended, Error> {
        self.end(true).await
    }

    async fn end(mut self, succeeded: bool) -> Result<Ended, Error> {
        let lost = self.stop_renewing();
        let release = self.release_request(succeeded && lost.is_none());
        if lost.as_ref().is_some_and(|loss| !may_stand(loss)) {
            self.concluded = true;
            return Ok(lost.map_or(Ended::Released, Ended::Lost));
        }
        if lost.is_none() {
            self.tell_by_whose_wish().await;
        }
        let mut failures = 0;
        loop {
            let call = self.client.coordinator().release(release.clone());
            match self.client.driver.bounded(CALL_LIMIT, "release", call).await {
                Ok(answer) => {
                    self.concluded = true;
                    self.handle.0.change(|holder| ((), holder.released()));
                    return Ok(lost.map_or_else(|| how_it_ended(answer), Ended::Lost));
                }
                Err(error) => {
                    failures += 1;
                    if failures == RELEASE_ATTEMPTS || !error.is_transient() {
                        let ttl = self.handle.0.look(|holder, _| holder.policy().ttl());
                        return Err(error
                            .on(self.resource())
                            .advise(format!("the resource may stay busy for up to {ttl}; releasing is still tried in the background")));
                    }
                    self.client.driver.sleep(Backoff::default().delay(failures, self.client.draw())).await;
                }
            }
        }
    }

    /// Takes the lease out of the driver's care without ending it at the coordinator, for a process of this machine that
    /// goes on with it ([`crate::LeaseRequest::resume`]), or to let it run out by itself. Views of it answer
    /// [`Loss::HandedOff`] from now on.
    ///
    /// # Errors
    /// [`Loss`]: it is not held any more; the lease is released as if it had been dropped.
    pub fn hand_off(self) -> Result<Belief, Loss> {
        self.check()?;
        Ok(self.forsake())
    }

    /// Lets go of the lease, held or lost, without ending it at the coordinator: whatever stands there runs out by itself.
    /// For whoever cannot end the work that runs under it, and must not let another begin.
    pub fn forsake(mut self) -> Belief {
        self.client.driver.core.registry.deregister(&self.handle.0);
        self.concluded = true;
        self.handle.0.change(|holder| {
            let belief = holder.belief();
            (belief, holder.lose(Loss::HandedOff))
        })
    }

    /// A holder that was asked to hand over marks its grant so just before it ends it. The release then ends it as it would
    /// any other, and the history says by whose wish. A mark that could not be set is no reason to hold on.
    async fn tell_by_whose_wish(&self) {
        let Some(Notice { by, reason }) = self.handle.0.yields_to.get().cloned() else { return };
        let mark = Revocation {
            resource: self.resource().clone(),
            token: self.token(),
            by,
            reason: preempt::reason(&reason),
            now: false,
        };
        let call = self.client.coordinator().revoke(mark);
        let _ = self.client.driver.bounded(CALL_LIMIT, "revocation", call).await;
    }

    fn release_request(&self, succeeded: bool) -> Release {
        self.handle.0.look(|holder, _| holder.release_request(succeeded))
    }

    /// Leaves the driver's care; why the lease was lost, if it was.
    fn stop_renewing(&self) -> Option<Loss> {
        let now = self.handle.0.now();
        let lost = self.handle.0.change(|holder| {
            let transition = holder.begin_release(now);
            let lost = match holder.state() {
                State::Lost(loss) => Some(loss.clone()),
                _ => None,
            };
            (lost, transition)
        });
        self.client.driver.core.registry.deregister(&self.handle.0);
        lost
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A forked child has a copy of the guard; the lease is its parent's.
        if self.concluded || self.handle.0.is_forked() {
            return;
        }
        let lost = self.stop_renewing();
        if lost.is_some_and(|loss| !may_stand(&loss)) {
            return;
        }
        let give_up = self.handle.0.look(|holder, _| {
            let policy = holder.policy();
            policy.ttl().as_duration() + policy.lock_delay()
        });
        self.client.driver.chore(Chore { release: self.release_request(false), give_up });
    }
}

/// True when the coordinator may still have the grant of a lease that was lost for this reason. Its holder is done with
/// it, so it is ended there too; the request names lease id and token and can hit no successor.
fn may_stand(loss: &Loss) -> bool {
    matches!(loss, Loss::WindowClosed | Loss::MaxHold | Loss::NoProgress | Loss::Revoked { .. })
}

fn how_it_ended(answer: Released) -> Ended {
    match answer {
        // Not held because released: an earlier attempt arrived and its answer was lost.
        Released::NotHeld(gone) if gone != Gone::Released => Ended::Lost(gone.into()),
        _ => Ended::Released,
    }
}

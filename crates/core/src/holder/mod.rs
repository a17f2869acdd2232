//! The holder's state machine: from the grant to the end of belief.
//!
//! ```text
//!                  granted, in time, token above every known one
//!                        │
//!                        ▼        no good renewal sent within T/2
//!        ┌────────────▶ HELD ───────────────────────────────────▶ UNCERTAIN
//!        │               │ ▲ ◀────── a renewal's own good answer ───┘  │
//!        │         drain │                                       drain │
//!        │               ▼                                             │
//!        │            DRAINING ◀───────────────────────────────────────┘
//!        │               │
//!        │    work ended ▼  (also straight from HELD and UNCERTAIN)
//!        │            RELEASING ──── answered, or nobody knows ──▶ RELEASED
//!        │
//!        └─ HELD, UNCERTAIN, DRAINING ── window closed, or the engine says gone ──▶ LOST(reason)
//! ```
//!
//! LOST and RELEASED are final: nothing leads out of them, whatever arrives late. Renewals go on while draining, stop when
//! releasing, and never widen a window beyond what their own send time allows. A failed renewal by itself changes nothing
//! but the time of the next attempt; only time, or a clear answer, ends a lease.
//!
//! The machine owns no clock: every method takes the [`Reading`] at which it happens, and looks at time first, so that a
//! good answer that arrives after the close finds the lease lost.

mod identity;
mod state;

use alloc::sync::Arc;
use core::time::Duration;

use crate::{
    error::{Invalid, Kind},
    policy::Policy,
    record::{Grant, Renewed},
    request::{Release, Renewal},
    token::Token,
    ttl::Ttl,
    window::{ClockRule, Reading, Window, nanos},
};

pub use identity::{Belief, Identity};
pub use state::{Loss, State, Transition};

/// Why a grant that arrived gives no lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// Its window had closed, or nearly, when the answer arrived.
    TooLate,
    /// Its token is not above one already known for the resource.
    Regression {
        /// The token granted.
        token: Token,
        /// The token known before.
        known: Token,
    },
}

/// One lease, seen by its holder.
#[derive(Clone, Debug)]
pub struct Holder {
    identity: Identity,
    /// In force. Shared: a process may hold very many leases of one policy.
    policy: Arc<Policy>,
    /// What the next renewal asks for, until an answer makes it the policy in force.
    wanted: Arc<Policy>,
    /// What the renewal under way has asked for.
    asked: Arc<Policy>,
    rule: ClockRule,
    state: State,
    window: Window,
    /// When the grant arrived: `max_hold` counts from here.
    opened: Reading,
    /// When the last request with a good answer was sent.
    last_good: Reading,
    /// When the next renewal is due, on BOOTTIME.
    due_ns: u64,
    /// The send time of the renewal under way.
    in_flight: Option<Reading>,
    failures: u32,
    progress_at: Reading,
    /// True while renewals are withheld for want of progress.
    stalled: bool,
    /// True when a wake came while a renewal was under way, which may have been answered before what the wake is about.
    poked: bool,
}

impl Holder {
    /// Takes a grant that was asked for at `sent` and arrived at `now`. `known` is the highest token known for the resource
    /// before, from other grants than this.
    ///
    /// # Errors
    /// [`Unusable`]: the grant must be released at once and gives no lease.
    #[allow(clippy::too_many_arguments, reason = "one value for each fact of the grant")]
    pub fn granted(
        identity: Identity,
        grant: &Grant,
        policy: impl Into<Arc<Policy>>,
        rule: ClockRule,
        known: Option<Token>,
        sent: Reading,
        now: Reading,
        random: u64,
    ) -> Result<Self, Unusable> {
        // Also an equal one, and also when this answer repeats an earlier one: what is known was somebody's, and a token
        // belongs to one grant. (A store that was restored can hand out a number twice.)
        if let Some(known) = known.filter(|known| grant.token <= *known) {
            return Err(Unusable::Regression { token: grant.token, known });
        }
        let policy = in_force(policy.into(), grant.ttl);
        let window = Window::new(sent, grant.ttl, policy.margin(), rule);
        if window.remaining(now) < policy.min_window() {
            return Err(Unusable::TooLate);
        }
        let due_ns = sent.boot_ns.saturating_add(nanos(policy.renewal_interval(random)));
        let mut holder = Self {
            identity,
            wanted: policy.clone(),
            asked: policy.clone(),
            policy,
            rule,
            state: State::Held,
            window,
            opened: now,
            last_good: sent,
            due_ns,
            in_flight: None,
            failures: 0,
            progress_at: now,
            stalled: false,
            poked: false,
        };
        holder.window = holder.capped(window);
        Ok(holder)
    }

    /// Takes a lease over from another process of this machine, which has stopped renewing it. The first renewal is due
    /// at once.
    ///
    /// # Errors
    /// [`Unusable::TooLate`] when its window has closed meanwhile.
    pub fn resumed(
        belief: Belief,
        policy: impl Into<Arc<Policy>>,
        rule: ClockRule,
        now: Reading,
    ) -> Result<Self, Unusable> {
        let Belief { identity, ttl, sent, opened } = belief;
        let grant = Grant { token: identity.token, ttl, granted_us: 0, adopted: true, after_lapse: false };
        let mut holder = Self::granted(identity, &grant, policy, rule, None, sent, now, 0)?;
        holder.opened = opened;
        holder.window = holder.capped(holder.window);
        holder.poke();
        Ok(holder)
    }

    /// What another process of this machine needs to go on from here.
    pub fn belief(&self) -> Belief {
        let ttl = self.policy.ttl();
        Belief { identity: self.identity.clone(), ttl, sent: self.last_good, opened: self.opened }
    }

    /// Who holds what.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Another TTL from the next renewal on. Until that is answered everything stays as it is; a TTL that the engine refuses is
    /// forgotten. A shorter one shortens nothing that was granted.
    ///
    /// # Errors
    /// [`Invalid`] when it does not go with the rest of the policy; nothing has changed then.
    pub fn set_ttl(&mut self, ttl: Ttl) -> Result<(), Invalid> {
        self.wanted = Arc::new(self.policy.with_ttl(ttl)?.with_jitter(self.wanted.jitter_percent())?);
        Ok(())
    }

    /// Another jitter of the time between renewals, in percent, from the next renewal on.
    ///
    /// # Errors
    /// [`Invalid`] when it is out of bounds; nothing has changed then.
    pub fn set_jitter(&mut self, percent: u32) -> Result<(), Invalid> {
        self.wanted = Arc::new(self.wanted.with_jitter(percent)?);
        Ok(())
    }

    /// The state as of the last method called; [`Holder::tick`] first where the present counts.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The window of belief.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// When the grant arrived.
    pub fn opened(&self) -> Reading {
        self.opened
    }

    /// How many renewals in a row have failed.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Lets time act: the window closes, or half the TTL passes without a good renewal.
    pub fn tick(&mut self, now: Reading) -> Option<Transition> {
        if !self.state.may_work() {
            return None;
        }
        if self.window.is_closed(now) {
            return self.lose(self.why_closed());
        }
        let silent = self.rule.elapsed(self.last_good, now) > self.policy.uncertain_after();
        (silent && self.state == State::Held).then(|| self.enter(State::Uncertain))
    }

    /// True when a renewal should leave now, or would be due within `ahead`: those go along with one that leaves anyway.
    pub fn wants_renewal(&mut self, now: Reading, ahead: Duration) -> bool {
        if !self.state.may_work() || self.in_flight.is_some() || self.window.is_closed(now) {
            return false;
        }
        self.stalled = self
            .policy
            .progress_timeout()
            .is_some_and(|timeout| self.rule.elapsed(self.progress_at, now) > timeout);
        !self.stalled && now.boot_ns.saturating_add(nanos(ahead)) >= self.due_ns
    }

    /// A renewal leaves at `now`.
    pub fn begin_renewal(&mut self, now: Reading) -> Renewal {
        self.in_flight = Some(now);
        self.asked = self.wanted.clone();
        Renewal {
            resource: self.identity.resource.clone(),
            lease_id: self.identity.lease_id,
            token: self.identity.token,
            ttl: self.asked.ttl(),
            lock_delay: self.policy.lock_delay(),
        }
    }

    /// The answer to the renewal sent at `sent` arrived.
    pub fn renewal_answered(
        &mut self,
        sent: Reading,
        answer: Renewed,
        now: Reading,
        random: u64,
    ) -> Option<Transition> {
        self.in_flight = None;
        if let Some(transition) = self.tick(now).filter(|transition| transition.to.is_final()) {
            return Some(transition);
        }
        if !self.state.may_work() {
            return None;
        }
        match answer {
            Renewed::Gone(gone) => self.lose(gone.into()),
            Renewed::Extended { ttl } => {
                if self.asked != self.policy {
                    self.policy = in_force(self.asked.clone(), ttl);
                    if self.wanted == self.asked {
                        self.wanted = self.policy.clone();
                    }
                }
                let extended = self.capped(Window::new(sent, ttl, self.policy.margin(), self.rule));
                self.window = self.window.widest(extended, now);
                self.last_good = sent;
                self.failures = 0;
                if !core::mem::take(&mut self.poked) {
                    self.due_ns = sent.boot_ns.saturating_add(nanos(self.policy.renewal_interval(random)));
                }
                self.recover(now)
            }
        }
    }

    /// The renewal sent at `sent` failed, or nobody knows. The window stays as it was.
    pub fn renewal_failed(&mut self, kind: Kind, now: Reading, random: u64) -> Option<Transition> {
        self.in_flight = None;
        if self.asked != self.policy && matches!(kind, Kind::Invalid | Kind::Unsupported) {
            // The engine does not take the new TTL. The old one is asked for at once.
            if self.wanted == self.asked {
                self.wanted = self.policy.clone();
            }
            self.due_ns = now.boot_ns;
            return self.tick(now);
        }
        let delay = match kind {
            // Asking again at once cannot help; an operator may still mend it within the window.
            Kind::Denied | Kind::Unsupported | Kind::Invalid | Kind::Corrupt => {
                self.policy.retry_delay(u32::MAX, random)
            }
            _ => self.policy.retry_delay(self.failures, random),
        };
        self.failures = self.failures.saturating_add(1);
        self.due_ns = now.boot_ns.saturating_add(nanos(delay));
        self.tick(now)
    }

    /// Something about this grant may have changed at the engine: renew at once to learn it.
    pub fn poke(&mut self) {
        self.due_ns = 0;
        self.poked = self.in_flight.is_some();
    }

    /// The worker has made progress.
    pub fn progress(&mut self, now: Reading) {
        self.progress_at = now;
    }

    /// Asks the work to end. Nothing happens when it is ending or over already.
    pub fn drain(&mut self, now: Reading) -> Option<Transition> {
        let lost = self.tick(now).filter(|transition| transition.to.is_final());
        match self.state {
            State::Held | State::Uncertain => Some(self.enter(State::Draining)),
            _ => lost,
        }
    }

    /// The work has ended: the engine is told next. No renewal leaves any more.
    pub fn begin_release(&mut self, now: Reading) -> Option<Transition> {
        let lost = self.tick(now).filter(|transition| transition.to.is_final());
        if self.state.may_work() { Some(self.enter(State::Releasing)) } else { lost }
    }

    /// The release was answered, or nobody knows whether it arrived; either way the holder is done.
    pub fn released(&mut self) -> Option<Transition> {
        (self.state == State::Releasing).then(|| self.enter(State::Released))
    }

    /// Ends belief for a reason found outside the machine: the lease was handed off to another process.
    pub fn lose(&mut self, loss: Loss) -> Option<Transition> {
        self.state.may_work().then(|| self.enter(State::Lost(loss)))
    }

    /// The request that ends this grant at the engine. It matches lease id and token, so it can never hit a successor.
    pub fn release_request(&self, succeeded: bool) -> Release {
        Release {
            resource: self.identity.resource.clone(),
            lease_id: self.identity.lease_id,
            token: Some(self.identity.token),
            succeeded,
        }
    }

    /// Time until this machine next wants attention; `None` once nothing can change.
    pub fn wake_in(&self, now: Reading) -> Option<Duration> {
        if !self.state.may_work() {
            return None;
        }
        let mut wake = self.window.remaining(now);
        if self.state == State::Held {
            let silent = self.rule.elapsed(self.last_good, now);
            let uncertain_in = self.policy.uncertain_after().saturating_sub(silent) + Duration::from_nanos(1);
            wake = wake.min(uncertain_in);
        }
        if self.in_flight.is_none() {
            let due_in = Duration::from_nanos(self.due_ns.saturating_sub(now.boot_ns));
            // A stalled worker is looked at again soon: its progress must restart renewals in time.
            let least = if self.stalled { self.policy.ttl().as_duration() / 12 } else { Duration::ZERO };
            wake = wake.min(due_in.max(least));
        }
        Some(wake)
    }

    /// A good renewal ends uncertainty, when it is itself recent enough.
    fn recover(&mut self, now: Reading) -> Option<Transition> {
        let fresh = self.rule.elapsed(self.last_good, now) <= self.policy.uncertain_after();
        (fresh && self.state == State::Uncertain).then(|| self.enter(State::Held))
    }

    fn why_closed(&self) -> Loss {
        let whole = self.policy.margin().window_of(self.policy.ttl());
        if self.stalled {
            Loss::NoProgress
        } else if self.policy.max_hold().is_some() && self.window.length() < whole {
            Loss::MaxHold
        } else {
            Loss::WindowClosed
        }
    }

    /// A window that does not go beyond `max_hold`.
    fn capped(&self, window: Window) -> Window {
        match self.policy.max_hold() {
            None => window,
            Some(limit) => {
                let (sent, opened) = (window.sent(), self.opened);
                // BOOTTIME says which came first. A wall clock that was set back in between shows the later moment before
                // the earlier one, and would put the limit off by as much, or end the lease at once.
                window.at_most(if sent.boot_ns <= opened.boot_ns {
                    limit.saturating_add(self.rule.elapsed(sent, opened))
                } else {
                    limit.saturating_sub(self.rule.elapsed(opened, sent))
                })
            }
        }
    }

    fn enter(&mut self, to: State) -> Transition {
        let from = core::mem::replace(&mut self.state, to.clone());
        debug_assert!(!from.is_final(), "nothing leads out of a final state");
        Transition { from, to }
    }
}

/// The policy for what the engine granted: the same one, where that is what was asked for.
fn in_force(asked: Arc<Policy>, ttl: Ttl) -> Arc<Policy> {
    if ttl > asked.ttl() { Arc::new(asked.granted(ttl)) } else { asked }
}

//! The engine's side of a lease, as a value: what one resource's record says, and how each request changes it.
//!
//! ```text
//!                    claim                    claim by the first in line, or by any waiter after the reservation
//!   FREE ───────────────────────▶ HELD ◀──────────────────────────────────────────────┐
//!    ▲                            │ │ │                                               │
//!    │      release, revoke --now │ │ └─ TTL ran out (found by the next request) ─▶ RESERVED
//!    └──────── nobody waits ──────┘ └── revoke ─▶ HELD, renewals refused ── release / TTL ─▶ (as above)
//! ```
//!
//! Engines that can run Rust inside their atomic step (memory, SQLite) use this file itself; those that cannot mirror it
//! in their own language and are compared with it. It knows two clocks, both given: the engine's own, which decides, and
//! the wall clock, which only dates things for people and floors tokens.

use core::time::Duration;

use crate::{
    id::{HolderId, Label, LeaseId},
    line::{FORSAKEN, Line, RESERVATION, micros, recheck},
    record::{
        Acquired, Busy, End, EndReason, Gone, Grant, Notice, Past, Queued, Record, Released, Renewed, Revoked,
    },
    request::{Claim, Release, Renewal, Revocation},
    token::{NoToken, Token},
    ttl::Ttl,
};

/// The engine's clocks at the moment of one atomic step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The clock that judges expiry, in microseconds since any epoch. Must not go backwards.
    pub clock_us: u64,
    /// The wall clock, µs since 1970. Dates records, floors tokens, measures `once_per`; judges no expiry.
    pub unix_us: u64,
}

/// A grant in the engine's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The grant's lease id.
    pub lease_id: LeaseId,
    /// Its token.
    pub token: Token,
    /// The TTL of the last claim or renewal that set `expires_us`.
    pub ttl: Ttl,
    /// When it expires, µs of the engine's clock.
    pub expires_us: u64,
    /// When it was granted, µs since 1970.
    pub granted_us: u64,
    /// The holding process run.
    pub holder_id: HolderId,
    /// What people call it.
    pub label: Label,
    /// Set by a revocation that waits for the holder.
    pub revoked: Option<Notice>,
}

/// What the engine remembers of one resource.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    /// The highest token ever given. Never goes back.
    pub last_token: Option<Token>,
    /// The grant, expired or not, that nobody has ended yet.
    pub held: Option<Held>,
    /// When the resource became free, µs of the engine's clock: the start of the reservation for the first in line.
    pub free_since_us: u64,
    /// How the previous grant ended.
    pub last_end: Option<End>,
    /// When the last successful run started, µs since 1970.
    pub last_success_us: Option<u64>,
}

/// Why a slot could not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault<E> {
    /// The queue's store failed.
    Line(E),
    /// No token can be given.
    Token(NoToken),
}

impl<E> From<NoToken> for Fault<E> {
    fn from(error: NoToken) -> Self {
        Self::Token(error)
    }
}

/// A change to a slot, and whom to wake once it is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Freed<T> {
    /// The answer.
    pub answer: T,
    /// The first in line, for whom the resource is now reserved.
    pub wake: Option<LeaseId>,
}

impl Held {
    fn is_expired(&self, now: Now) -> bool {
        now.clock_us >= self.expires_us
    }

    fn remaining(&self, now: Now) -> Duration {
        Duration::from_micros(self.expires_us.saturating_sub(now.clock_us))
    }

    /// The record as others see it.
    pub fn record(&self, now: Now) -> Record {
        Record {
            lease_id: self.lease_id,
            token: self.token,
            ttl: self.ttl,
            remaining: self.remaining(now),
            granted_us: self.granted_us,
            holder_id: self.holder_id,
            label: self.label.clone(),
            revoked: self.revoked.clone(),
        }
    }

    fn ended(&self, reason: EndReason, by: Label, now: Now) -> End {
        End { lease_id: self.lease_id, token: self.token, reason, by, at_us: now.unix_us }
    }
}

impl Slot {
    /// Answers a claim. `quarantined` is the time until the namespace grants again, while it does not.
    ///
    /// # Errors
    /// [`Fault`] when the queue's store failed or no token can be given; the slot is then to be thrown away.
    pub fn acquire<L: Line>(
        &mut self,
        line: &mut L,
        claim: &Claim,
        quarantined: Option<Duration>,
        now: Now,
    ) -> Result<Acquired, Fault<L::Error>> {
        if let Some(remaining) = quarantined.filter(|_| self.stands_for(claim, now)) {
            // What was forgotten may be that this grant ended and another followed. Its holder, if it has one, renews; whoever
            // only asks waits as others do, and leaves no place, because its grant is there.
            return Ok(Acquired::Quarantined { remaining, position: None });
        }
        if let Some(grant) = self.adopt(claim, now) {
            return Ok(Acquired::Granted(grant));
        }
        self.sweep(now);
        if let Some(end) = self.last_end.as_ref().filter(|end| end.lease_id == claim.lease_id) {
            return Ok(Acquired::Spent(end.clone()));
        }
        if let Some((started_us, due_in)) = self.done_recently(claim, now) {
            line.leave(claim.lease_id).map_err(Fault::Line)?;
            return Ok(Acquired::AlreadyDone { started_us, due_in });
        }
        if let Some(held) = &self.held {
            let record = held.record(now);
            // A claim whose own grant was revoked waits for nothing: once that grant has ended, it is spent, and a place
            // would hold up those behind it.
            let position = if record.lease_id == claim.lease_id { None } else { join(line, claim, now)? };
            let recheck = recheck(position.unwrap_or(0), record.remaining);
            return Ok(Acquired::Busy(Busy { holder: record, position, recheck }));
        }
        if let Some(remaining) = quarantined {
            // It becomes free when the quarantine ends: from then on it is reserved for the first in line, as after a release.
            self.free_since_us = now.clock_us.saturating_add(micros(remaining));
            return Ok(Acquired::Quarantined { remaining, position: join(line, claim, now)? });
        }
        if let Some(queued) = self.behind_others(line, claim, now)? {
            return Ok(Acquired::Queued(queued));
        }
        self.grant(line, claim, now).map(Acquired::Granted)
    }

    /// Whom to wake once the answer to a claim is durable: the next in line, when the claimant was told that there is nothing
    /// to do and so left a free resource to the others. It may have been the one for whom the resource was reserved, and the
    /// others must not sleep until their next re-check.
    ///
    /// # Errors
    /// [`Fault::Line`] when the queue's store failed.
    pub fn wake_after<L: Line>(
        &self,
        line: &mut L,
        answer: &Acquired,
        now: Now,
    ) -> Result<Option<LeaseId>, Fault<L::Error>> {
        match answer {
            Acquired::AlreadyDone { .. } if self.is_free(now) => line.head(now.clock_us).map_err(Fault::Line),
            _ => Ok(None),
        }
    }

    /// True when an earlier attempt of this claim was granted, and the grant stands.
    fn stands_for(&self, claim: &Claim, now: Now) -> bool {
        let held = self.held.as_ref().filter(|held| held.lease_id == claim.lease_id);
        held.is_some_and(|held| !held.is_expired(now) && held.revoked.is_none())
    }

    /// A repeated claim whose first attempt was granted: the same grant, its TTL running anew.
    fn adopt(&mut self, claim: &Claim, now: Now) -> Option<Grant> {
        if !self.stands_for(claim, now) {
            return None;
        }
        let held = self.held.as_mut()?;
        held.ttl = held.ttl.max(claim.ttl);
        held.expires_us = held.expires_us.max(expiry(claim.ttl, claim.lock_delay, now));
        Some(Grant {
            token: held.token,
            ttl: claim.ttl,
            granted_us: held.granted_us,
            adopted: true,
            after_lapse: false,
        })
    }

    /// Ends a grant whose TTL ran out.
    fn sweep(&mut self, now: Now) {
        let Some(held) = self.held.take_if(|held| held.is_expired(now)) else { return };
        self.free_since_us = held.expires_us;
        self.last_end = Some(match &held.revoked {
            Some(notice) => held.ended(EndReason::Revoked(notice.reason.clone()), notice.by.clone(), now),
            None => held.ended(EndReason::Expired, held.label.clone(), now),
        });
    }

    fn done_recently(&self, claim: &Claim, now: Now) -> Option<(u64, Duration)> {
        let started_us = self.last_success_us?;
        // A wall clock that was set back since then must not put the next run off for ever: it costs one period more at most.
        let since = Duration::from_micros(now.unix_us.abs_diff(started_us));
        let due_in = claim.once_per?.checked_sub(since).filter(|left| !left.is_zero())?;
        Some((started_us, due_in))
    }

    /// The resource is free: says so when others have the better right to it, leaving or refreshing this claim's place.
    fn behind_others<L: Line>(
        &self,
        line: &mut L,
        claim: &Claim,
        now: Now,
    ) -> Result<Option<Queued>, Fault<L::Error>> {
        let Some(head) = line.head(now.clock_us).map_err(Fault::Line)? else { return Ok(None) };
        if head == claim.lease_id {
            return Ok(None);
        }
        let free_us = now.clock_us.saturating_sub(self.free_since_us);
        let reserved_us = micros(RESERVATION).saturating_sub(free_us);
        let mine = line.ahead_of(claim.lease_id).map_err(Fault::Line)?;
        if (mine.is_some() && reserved_us == 0) || free_us >= micros(FORSAKEN) {
            return Ok(None);
        }
        let position = join(line, claim, now)?;
        let ahead = match position {
            Some(ahead) => ahead,
            None => line.count().map_err(Fault::Line)?,
        };
        // A reservation that is over lets the next re-check through: do not make it wait for nothing.
        let left = Duration::from_micros(reserved_us).max(Duration::from_millis(1));
        Ok(Some(Queued { ahead, position, recheck: recheck(ahead, left) }))
    }

    fn grant<L: Line>(&mut self, line: &mut L, claim: &Claim, now: Now) -> Result<Grant, Fault<L::Error>> {
        let token = Token::next(self.last_token, claim.floor, now.unix_us)?;
        // Read from the record and not from this step's sweep: whoever found the lapse may have been told to wait.
        let after_lapse = self.last_end.as_ref().is_some_and(|end| end.reason == EndReason::Expired);
        line.leave(claim.lease_id).map_err(Fault::Line)?;
        self.last_token = Some(token);
        self.held = Some(Held {
            lease_id: claim.lease_id,
            token,
            ttl: claim.ttl,
            expires_us: expiry(claim.ttl, claim.lock_delay, now),
            granted_us: now.unix_us,
            holder_id: claim.holder_id,
            label: claim.label.clone(),
            revoked: None,
        });
        Ok(Grant { token, ttl: claim.ttl, granted_us: now.unix_us, adopted: false, after_lapse })
    }

    /// Answers a renewal.
    pub fn renew(&mut self, renewal: &Renewal, now: Now) -> Renewed {
        let matching = |held: &&mut Held| {
            held.lease_id == renewal.lease_id
                && held.token == renewal.token
                && held.revoked.is_none()
                && !held.is_expired(now)
        };
        if let Some(held) = self.held.as_mut().filter(matching) {
            let expires_us = expiry(renewal.ttl, renewal.lock_delay, now);
            if expires_us >= held.expires_us {
                held.ttl = renewal.ttl;
                held.expires_us = expires_us;
            }
            return Renewed::Extended { ttl: renewal.ttl };
        }
        Renewed::Gone(self.why_gone(renewal.lease_id, Some(renewal.token), now))
    }

    /// Answers a release.
    ///
    /// # Errors
    /// [`Fault::Line`] when the queue's store failed.
    pub fn release<L: Line>(
        &mut self,
        line: &mut L,
        release: &Release,
        now: Now,
    ) -> Result<Freed<Released>, Fault<L::Error>> {
        let matches = |held: &mut Held| {
            held.lease_id == release.lease_id && release.token.is_none_or(|token| token == held.token)
        };
        let left = release.token.is_none() && line.leave(release.lease_id).map_err(Fault::Line)?;
        let Some(held) = self.held.take_if(|held| matches(held) && !held.is_expired(now)) else {
            let answer = if left {
                Released::LeftQueue
            } else {
                Released::NotHeld(self.why_gone(release.lease_id, release.token, now))
            };
            // The first in line may have gone: the next one must not wait for its re-check.
            let wake =
                if left && self.is_free(now) { line.head(now.clock_us).map_err(Fault::Line)? } else { None };
            return Ok(Freed { answer, wake });
        };
        if release.succeeded {
            self.last_success_us = Some(held.granted_us);
        }
        let end = match &held.revoked {
            Some(notice) => held.ended(EndReason::Revoked(notice.reason.clone()), notice.by.clone(), now),
            None => held.ended(EndReason::Released, held.label.clone(), now),
        };
        let wake = self.free(line, end, now)?;
        Ok(Freed { answer: Released::Ended, wake })
    }

    /// Answers a revocation.
    ///
    /// # Errors
    /// [`Fault::Line`] when the queue's store failed.
    pub fn revoke<L: Line>(
        &mut self,
        line: &mut L,
        revocation: &Revocation,
        now: Now,
    ) -> Result<Freed<Revoked>, Fault<L::Error>> {
        self.sweep(now);
        let Some(held) = &mut self.held else {
            return Ok(Freed { answer: Revoked::NotHeld(self.last_end.clone()), wake: None });
        };
        if held.token != revocation.token {
            return Ok(Freed { answer: Revoked::OtherToken(held.record(now)), wake: None });
        }
        let notice = Notice { by: revocation.by.clone(), reason: revocation.reason.clone() };
        held.revoked = Some(notice);
        let record = held.record(now);
        // The holder is woken in both cases: it should stop now, not at its next renewal.
        let mut freed = Freed { answer: Revoked::Ended { busy_for: record.remaining, record }, wake: None };
        if revocation.now {
            let end = held.ended(EndReason::Revoked(revocation.reason.clone()), revocation.by.clone(), now);
            self.held = None;
            freed.wake = self.free(line, end, now)?;
            if let Revoked::Ended { busy_for, .. } = &mut freed.answer {
                *busy_for = Duration::ZERO;
            }
        }
        Ok(freed)
    }

    fn free<L: Line>(
        &mut self,
        line: &mut L,
        end: End,
        now: Now,
    ) -> Result<Option<LeaseId>, Fault<L::Error>> {
        self.last_end = Some(end);
        self.reserve(line, now)
    }

    /// Keeps a free resource for whoever is first in line now, from now on. Also for a store that finds the first in line
    /// dead after it was woken.
    ///
    /// # Errors
    /// [`Fault::Line`] when the queue's store failed.
    pub fn reserve<L: Line>(&mut self, line: &mut L, now: Now) -> Result<Option<LeaseId>, Fault<L::Error>> {
        self.free_since_us = now.clock_us;
        line.head(now.clock_us).map_err(Fault::Line)
    }

    /// True when no unexpired grant stands.
    pub fn is_free(&self, now: Now) -> bool {
        self.held.as_ref().is_none_or(|held| held.is_expired(now))
    }

    /// The live record, if any.
    pub fn record(&self, now: Now) -> Option<Record> {
        self.held.as_ref().filter(|held| !held.is_expired(now)).map(|held| held.record(now))
    }

    /// How the previous grant ended, counting one whose TTL ran out unnoticed.
    pub fn previous_end(&self, now: Now) -> Option<End> {
        let mut swept = self.clone();
        swept.sweep(now);
        swept.last_end
    }

    /// The grant that stood `before` a step and stands no longer, for the history. An engine that keeps one asks after every
    /// step; no step ends more than one.
    pub fn ended(&self, before: Option<&Held>) -> Option<Past> {
        let before = before?;
        let is_it = |lease_id, token| lease_id == before.lease_id && token == before.token;
        if self.held.as_ref().is_some_and(|held| is_it(held.lease_id, held.token)) {
            return None;
        }
        let end = self.last_end.clone().filter(|end| is_it(end.lease_id, end.token))?;
        let Held { holder_id, label, granted_us, .. } = before.clone();
        Some(Past { holder_id, label, granted_us, end })
    }

    /// The grant whose TTL ran out and that nobody has found so yet, for the history.
    pub fn lapsed(&self, now: Now) -> Option<Past> {
        let mut swept = self.clone();
        swept.sweep(now);
        swept.ended(self.held.as_ref())
    }

    /// What became of the grant that does not stand any more.
    fn why_gone(&self, lease_id: LeaseId, token: Option<Token>, now: Now) -> Gone {
        if let Some(held) = &self.held {
            if held.lease_id == lease_id && token.is_none_or(|token| token == held.token) {
                return match &held.revoked {
                    Some(notice) => revoked(notice, held.remaining(now)),
                    None => Gone::Expired,
                };
            }
            if token.is_some_and(|token| token < held.token) {
                return Gone::Superseded { token: held.token };
            }
        }
        match &self.last_end {
            Some(end) if end.lease_id == lease_id && token.is_none_or(|token| token == end.token) => {
                match &end.reason {
                    EndReason::Released => Gone::Released,
                    EndReason::Expired => Gone::Expired,
                    EndReason::Revoked(reason) => {
                        let notice = Notice { by: end.by.clone(), reason: reason.clone() };
                        revoked(&notice, Duration::ZERO)
                    }
                }
            }
            _ => match self.last_token.filter(|last| token.is_some_and(|token| token < *last)) {
                Some(token) => Gone::Superseded { token },
                None => Gone::Absent,
            },
        }
    }
}

fn revoked(notice: &Notice, remaining: Duration) -> Gone {
    Gone::Revoked { by: notice.by.clone(), reason: notice.reason.clone(), remaining }
}

/// When a grant or renewal of `now` expires, µs of the engine's clock.
pub fn expiry(ttl: Ttl, lock_delay: Duration, now: Now) -> u64 {
    now.clock_us.saturating_add(ttl.as_micros()).saturating_add(micros(lock_delay))
}

/// Leaves or refreshes this claim's place, when it queues. The place, counted from 0.
fn join<L: Line>(line: &mut L, claim: &Claim, now: Now) -> Result<Option<u32>, Fault<L::Error>> {
    if !claim.queue {
        return Ok(None);
    }
    line.enter(claim.lease_id, &claim.label, now.clock_us).map_err(Fault::Line)?;
    line.ahead_of(claim.lease_id).map_err(Fault::Line)
}

//! Claims: read, decide by the slot, write on the condition that nothing has changed.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Error, Token,
    line::recheck,
    record::{Acquired, Grant},
    request::Claim,
    slot::{Fault, Slot},
};

use prost::Message as _;

use super::{
    engine::{Engine, ROUNDS},
    failure::Fail,
    grants::Known,
    line::Seen,
    proto::{Compare, RangeRequest, RequestOp},
    record::{Mark, Place, State, Term},
    terms::{given, seconds},
    view::{Tie, View, seats},
};
use crate::coordinator::rules;

/// One step of a claim: an answer, or something has changed and must be read.
enum Step {
    Answer(Acquired),
    Again,
}

impl Engine {
    pub(super) async fn acquire(self: Arc<Self>, claim: Claim) -> Result<Acquired, Error> {
        claim.check().map_err(|invalid| Error::from(invalid).on(&claim.resource))?;
        let mut view = self.recent.take(&claim.resource);
        for _ in 0..ROUNDS {
            let seen = match view.take() {
                Some(view) => view,
                None => self.read(&claim.resource).await?,
            };
            match self.step(&claim, seen).await.map_err(|error| self.here(error, &claim.resource))? {
                Step::Answer(answer) => return Ok(answer),
                Step::Again => {}
            }
        }
        Err(self.overtaken(&claim.resource))
    }

    async fn step(self: &Arc<Self>, claim: &Claim, view: View) -> Result<Step, Error> {
        if !view.assumed {
            self.recent.saw(&view);
        }
        let Some((meta, _)) = view.meta else {
            rules::check_claim(claim, self.first_max_ttl())?;
            self.first_contact().await?;
            return Ok(Step::Again);
        };
        let max_ttl = meta.max_ttl()?;
        self.agree(max_ttl)?;
        rules::check_claim(claim, max_ttl)?;
        if view.quarantine.is_none() && view.is_held_by(claim.lease_id) {
            return self.adopt(claim, view).await;
        }
        let quarantined = match view.quarantine {
            Some(tie) => Some(self.quarantine_left(tie, &meta).await),
            None => None,
        };
        let mut now = Self::now();
        // A wall clock that lags behind the namespace's own numbers says nothing about which floors are wild.
        let next_us = meta.base.saturating_add(view.revision).saturating_add(1);
        now.unix_us = now.unix_us.max(next_us);
        let (mut slot, mut line) = (self.slot(&claim.resource, &view, now)?, Seen::new(&view));
        let answer = slot.acquire(&mut line, claim, quarantined, now).map_err(refuse)?;
        match answer {
            Acquired::Granted(grant) => self.grant(claim, view, slot, grant, next_us).await,
            // Only a grant is made on the condition that it is so.
            _ if view.assumed => Ok(Step::Again),
            answer if line.left => self.leave(claim, view, answer).await,
            answer if line.entered => self.join(claim, view, answer).await,
            mut answer => {
                self.complete(&mut answer, &view).await;
                Ok(Step::Answer(told_when(answer, None)))
            }
        }
    }

    /// Makes a grant.
    async fn grant(
        self: &Arc<Self>,
        claim: &Claim,
        view: View,
        mut slot: Slot,
        mut grant: Grant,
        next_us: u64,
    ) -> Result<Step, Error> {
        let token = next_token(view.state.last_token, claim.floor, next_us)?;
        let arming = self.arm(seconds(claim.ttl, claim.lock_delay)).await.map_err(Fail::of_read)?;
        let armed = arming.armed;
        (grant.token, grant.ttl) = (token, given(armed.term_s, claim.lock_delay, claim.ttl));
        slot.last_token = Some(token);
        let Some(held) = &mut slot.held else { return Ok(Step::Again) };
        (held.token, held.ttl) = (token, grant.ttl);
        let mark = Mark::of(held, armed.lease);
        let term = Term { seconds: armed.term_s, shared: self.shared_lease };
        let mut state = State::of_slot(&slot, term, Self::now().unix_us);
        let ended = self.note_end(&claim.resource, &view.state, &mut state);
        let Some((_, meta_written)) = view.meta else { return Ok(Step::Again) };
        let mut compare = view.unchanged(&self.keys, &claim.resource);
        compare.push(Compare::written(self.keys.meta(), meta_written));
        compare.push(view.same_quarantine(&self.keys));
        if view.assumed {
            compare.push(View::nobody_waits(&self.keys, &claim.resource));
        }
        let mut change = vec![
            RequestOp::put(self.keys.state(&claim.resource), &state, 0),
            RequestOp::put(self.keys.mark(&claim.resource), &mark, armed.lease),
        ];
        change.extend(ended);
        if view.seat(claim.lease_id).is_some() {
            change.push(RequestOp::delete(self.keys.place(&claim.resource, claim.lease_id)));
        }
        let resource = claim.resource.clone();
        let mark = mark.encode_to_vec();
        let known = Known { resource, token, armed, written: 0, mark, state, doubtful: false };
        if self.shared_lease {
            // Should nobody learn of the grant, it is ended when its time is over.
            self.grants.note(claim.lease_id, known.clone());
        }
        match self.attempt(compare, change).await {
            Ok(Some(made)) => {
                self.places.forget(claim.lease_id);
                let header = made.header.unwrap_or_default();
                let written = header.revision;
                self.grants.note(claim.lease_id, Known { written, ..known });
                self.watch_over(&claim.resource, claim.lease_id, written);
                self.tidy_up();
                let sure = self.sure(&claim.resource, arming, written, header.raft_term).await;
                let granted = sure.map_err(Fail::of_write)?;
                Ok(if granted { Step::Answer(Acquired::Granted(grant)) } else { Step::Again })
            }
            Ok(None) => {
                self.grants.forget(claim.lease_id);
                self.give_back(armed);
                Ok(Step::Again)
            }
            Err(Fail::NoLease) => {
                self.grants.forget(claim.lease_id);
                self.lost_lease(armed.lease).await;
                Ok(Step::Again)
            }
            Err(fail) => Err(fail.of_write()),
        }
    }

    /// The claim was granted before: the same grant, its TTL running anew.
    async fn adopt(self: &Arc<Self>, claim: &Claim, view: View) -> Result<Step, Error> {
        let (Some(mark), Some(held)) = (view.mark, &view.state.held) else { return Ok(Step::Again) };
        let token = Token::new(held.token).map_err(Error::from)?;
        let (granted_us, asked_s) = (held.granted_us, seconds(claim.ttl, claim.lock_delay));
        let term_s = self.extend(&claim.resource, claim.lease_id, token, asked_s, mark, &view).await?;
        let Some(term_s) = term_s else { return Ok(Step::Again) };
        Ok(Step::Answer(Acquired::Granted(Grant {
            token,
            ttl: given(term_s, claim.lock_delay, claim.ttl),
            granted_us,
            adopted: true,
            after_lapse: false,
        })))
    }

    /// Takes a place, or keeps the one that there is.
    async fn join(
        self: &Arc<Self>,
        claim: &Claim,
        mut view: View,
        mut answer: Acquired,
    ) -> Result<Step, Error> {
        if let Some(seat) = view.seat(claim.lease_id) {
            if !self.places.refresh(claim.lease_id, seat.created) {
                self.follow(claim, view.clone());
            }
            self.complete(&mut answer, &view).await;
            return Ok(Step::Answer(told_when(answer, None)));
        }
        let lease = self.waiting_lease().await.map_err(Fail::of_read)?;
        let place = Place { label: claim.label.as_str().to_owned(), joined_us: Self::now().unix_us };
        let key = self.keys.place(&claim.resource, claim.lease_id);
        let mut compare = view.unchanged(&self.keys, &claim.resource);
        compare.push(view.same_quarantine(&self.keys));
        compare.push(Compare::created(key.clone(), 0));
        let change = vec![
            RequestOp::put(key, &place, lease),
            RangeRequest::below(self.keys.line(&claim.resource)).keys_only().by_age().into(),
        ];
        let (joined, ()) = tokio::join!(self.attempt(compare, change), self.complete(&mut answer, &view));
        match joined {
            Ok(Some(made)) => {
                (view.revision, view.line) = seats(made);
                let at = view.line.iter().position(|seat| seat.lease_id == claim.lease_id).unwrap_or(0);
                self.follow(claim, view);
                Ok(Step::Answer(told_when(answer, u32::try_from(at).ok())))
            }
            Ok(None) => Ok(Step::Again),
            Err(Fail::NoLease) => {
                self.lost_waiting_lease(lease).await;
                Ok(Step::Again)
            }
            Err(fail) => Err(fail.of_write()),
        }
    }

    /// Gives the place up, for an answer that ends the wait.
    async fn leave(&self, claim: &Claim, view: View, answer: Acquired) -> Result<Step, Error> {
        let Some(seat) = view.seat(claim.lease_id) else { return Ok(Step::Answer(answer)) };
        self.places.forget(claim.lease_id);
        let key = self.keys.place(&claim.resource, claim.lease_id);
        let mut compare = view.unchanged(&self.keys, &claim.resource);
        compare.push(Compare::created(key.clone(), seat.created));
        match self.attempt(compare, vec![RequestOp::delete(key)]).await {
            Ok(Some(_)) => Ok(Step::Answer(answer)),
            Ok(None) => Ok(Step::Again),
            Err(fail) => Err(fail.of_write()),
        }
    }

    /// Time until a quarantine ends; never nothing while it is there.
    pub(super) async fn quarantine_left(&self, tie: Tie, meta: &super::record::Meta) -> Duration {
        let term_s = meta.max_ttl_ms.div_ceil(1_000).max(2);
        self.remaining(tie.lease, term_s).await.min(Duration::from_millis(meta.max_ttl_ms.max(1)))
    }
}

/// The answer with the place and the time to ask again that etcd's own words make of it.
fn told_when(mut answer: Acquired, position: Option<u32>) -> Acquired {
    match &mut answer {
        Acquired::Busy(busy) => {
            busy.position = position.or(busy.position);
            busy.recheck =
                recheck(busy.position.unwrap_or(0), busy.holder.remaining).max(Duration::from_millis(1));
        }
        Acquired::Queued(queued) => {
            if let Some(ahead) = position {
                (queued.ahead, queued.position) = (ahead, position);
            }
        }
        Acquired::Quarantined { position: place, .. } => *place = position.or(*place),
        _ => {}
    }
    answer
}

/// Above every token of the resource, above what the claimant has seen, and above the cluster's revision from the namespace's
/// base on: so a resource that was forgotten needs no counter of its own.
fn next_token(last: u64, floor: Option<Token>, next_us: u64) -> Result<Token, Error> {
    let floor = floor.map_or(0, Token::get);
    Token::new((last + 1).max(floor + 1).max(next_us.min(Token::MAX)))
        .map_err(|_| rules::no_token(leasehold_core::token::NoToken::Exhausted))
}

#[allow(clippy::needless_pass_by_value, reason = "an adapter for map_err")]
pub(super) fn refuse(fault: Fault<std::convert::Infallible>) -> Error {
    match fault {
        Fault::Line(never) => match never {},
        Fault::Token(reason) => rules::no_token(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::Kind;

    #[test]
    fn tokens_rise_above_the_last_one_the_floor_and_the_revision() {
        let token = |value| Token::new(value).unwrap();
        assert_eq!(next_token(0, None, 1_000).unwrap(), token(1_000));
        assert_eq!(next_token(5_000, None, 1_000).unwrap(), token(5_001));
        assert_eq!(next_token(5_000, Some(token(7_000)), 1_000).unwrap(), token(7_001));
        let error = next_token(Token::MAX, None, 1).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
    }
}

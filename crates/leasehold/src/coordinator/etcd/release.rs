//! Releases and revocations.

use std::sync::Arc;

use leasehold_core::{
    Error,
    record::{Released, Revoked},
    request::{Release, Revocation},
    slot::Freed,
};

use super::{
    acquire::refuse,
    engine::{Engine, ROUNDS},
    failure::Fail,
    grants::Known,
    line::Seen,
    proto::{Compare, RangeRequest, RequestOp},
    record::{Mark, State, Term},
    view::{View, seats},
};

impl Engine {
    pub(super) async fn release(self: Arc<Self>, release: Release) -> Result<Released, Error> {
        // Stops watching over it: our own release must not wake the holder.
        let known = self.grants.forget(release.lease_id).filter(|known| {
            known.resource == release.resource
                && release.token.is_none_or(|token| token == known.token)
                && known.written > 0
                && !known.doubtful
        });
        if let Some(known) = known
            && let Some(answer) = self
                .release_known(&release, known)
                .await
                .map_err(|error| self.here(error, &release.resource))?
        {
            return Ok(answer);
        }
        for _ in 0..ROUNDS {
            let view = self.read(&release.resource).await?;
            let answer = self.release_seen(&release, &view).await;
            if let Some(answer) = answer.map_err(|error| self.here(error, &release.resource))? {
                return Ok(answer);
            }
        }
        Err(self.overtaken(&release.resource))
    }

    /// Ends a grant that is as we wrote it, without reading it first. `None` when it is not.
    async fn release_known(&self, release: &Release, known: Known) -> Result<Option<Released>, Error> {
        let now = Self::now();
        let mut slot = known.state.to_slot(now.clock_us + 1, now.clock_us)?;
        let mut line = Seen::nobody();
        let freed = slot.release(&mut line, release, now).map_err(refuse)?;
        let mut state = State::of_slot(&slot, Term::default(), now.unix_us);
        let ended = self.note_end(&release.resource, &known.state, &mut state);
        let (state_key, mark_key) = (self.keys.state(&release.resource), self.keys.mark(&release.resource));
        let compare = vec![
            Compare::written(state_key.clone(), known.written),
            Compare::says(mark_key.clone(), known.mark),
        ];
        let waiting = RangeRequest { limit: 1, ..RangeRequest::below(self.keys.line(&release.resource)) };
        let mut change = vec![RequestOp::put(state_key, &state, 0), RequestOp::delete(mark_key)];
        change.extend(ended);
        // Last: what it finds is looked for there.
        change.push(waiting.keys_only().into());
        match self.attempt(compare, change).await {
            Ok(Some(made)) => {
                let (revision, waiting) = seats(made);
                if waiting.is_empty() {
                    self.recent.left(&release.resource, state, revision.cast_signed());
                }
                self.give_back(known.armed);
                Ok(Some(freed.answer))
            }
            Ok(None) => Ok(None),
            // A full database takes no records, but lets leases end. That nothing else hangs on this one is ours to know.
            Err(Fail::Full) if !release.succeeded && known.armed.ours && !self.shared_lease => {
                self.revoke_lease(known.armed.lease).await.map_err(Fail::of_write)?;
                Ok(Some(Released::Ended))
            }
            Err(fail) => Err(fail.of_write()),
        }
    }

    /// `None`, here and below: something has changed since it was read.
    async fn release_seen(&self, release: &Release, view: &View) -> Result<Option<Released>, Error> {
        let now = Self::now();
        let (mut slot, mut line) = (self.slot(&release.resource, view, now)?, Seen::new(view));
        let freed = slot.release(&mut line, release, now).map_err(refuse)?;
        let seat = view.seat(release.lease_id).filter(|_| line.left);
        let mut compare = Vec::new();
        let mut change = Vec::new();
        if let Some(seat) = seat {
            self.places.forget(release.lease_id);
            let key = self.keys.place(&release.resource, release.lease_id);
            compare.push(Compare::created(key.clone(), seat.created));
            change.push(RequestOp::delete(key));
        }
        match freed.answer {
            Released::Ended => {
                let mut state = State::of_slot(&slot, Term::default(), now.unix_us);
                change.extend(self.note_end(&release.resource, &view.state, &mut state));
                compare.extend(view.unchanged(&self.keys, &release.resource));
                change.push(RequestOp::put(self.keys.state(&release.resource), &state, 0));
                change.push(RequestOp::delete(self.keys.mark(&release.resource)));
            }
            Released::LeftQueue => {}
            mut answer => {
                self.complete(&mut answer, view).await;
                return Ok(Some(answer));
            }
        }
        match self.attempt(compare, change).await {
            Ok(Some(_)) => Ok(Some(freed.answer)),
            Ok(None) => Ok(None),
            Err(fail) => Err(fail.of_write()),
        }
    }

    pub(super) async fn revoke(self: Arc<Self>, revocation: Revocation) -> Result<Revoked, Error> {
        for _ in 0..ROUNDS {
            let view = self.read(&revocation.resource).await?;
            let answer = self.revoke_seen(&revocation, &view).await;
            if let Some(answer) = answer.map_err(|error| self.here(error, &revocation.resource))? {
                return Ok(answer);
            }
        }
        Err(self.overtaken(&revocation.resource))
    }

    /// The mark of a grant that was revoked softly stays on its lease: the resource is busy until that ends. From then on no
    /// renewal is believed, because each is verified by the mark.
    async fn revoke_seen(&self, revocation: &Revocation, view: &View) -> Result<Option<Revoked>, Error> {
        let now = Self::now();
        let (mut slot, mut line) = (self.slot(&revocation.resource, view, now)?, Seen::new(view));
        let Freed { mut answer, .. } = slot.revoke(&mut line, revocation, now).map_err(refuse)?;
        if let Revoked::Ended { .. } = answer {
            let mut state = State::of_slot(&slot, view.state.term(), now.unix_us);
            let ended = self.note_end(&revocation.resource, &view.state, &mut state);
            let mark_key = self.keys.mark(&revocation.resource);
            let mut change = vec![
                RequestOp::put(self.keys.state(&revocation.resource), &state, 0),
                match &slot.held {
                    Some(held) => {
                        RequestOp::rewrite(mark_key, &Mark::of(held, view.mark.map_or(0, |mark| mark.lease)))
                    }
                    None => RequestOp::delete(mark_key),
                },
            ];
            change.extend(ended);
            match self.attempt(view.unchanged(&self.keys, &revocation.resource), change).await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(fail) => return Err(fail.of_write()),
            }
        }
        self.complete(&mut answer, view).await;
        if let Revoked::Ended { record, busy_for } = &mut answer
            && !revocation.now
        {
            *busy_for = record.remaining;
        }
        Ok(Some(answer))
    }
}

//! Renewals: a keepalive for the lease, then proof that the grant still hangs on it.
//!
//! A keepalive is no transaction: it says nothing of resource, token or revocation, and an old leader may answer it that has
//! been deposed without noticing. So a renewal counts only when a linearizable read *after* the keepalive still shows the mark
//! as it was, in the same raft term: then the leader who took the keepalive is the leader still. Marks are compared a hundred at
//! a time, in one question whose answer is empty when all stand. A grant that was not made or read here before, or to
//! which something has happened, is read before it is kept alive, so that a renewal that does not match changes nothing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use leasehold_core::{
    Error, LeaseId, Resource, Token,
    record::{Renewed, Wake},
    request::Renewal,
};
use prost::Message as _;
use tokio::task::JoinSet;

use super::{
    engine::{Engine, ROUNDS},
    failure::Fail,
    grants::{Hold, Known},
    keepalive::Beat,
    proto::{Compare, RangeRequest, RequestOp, TxnRequest, TxnResponse},
    record::Mark,
    rpc::Effect,
    terms::{Armed, given, seconds},
    view::{Tie, View},
};
use crate::{clock, coordinator::rules};

/// etcd refuses more than 128 comparisons in one transaction.
const BATCH: usize = 100;
/// Renewals that need several questions each are worked off so many at a time.
const AT_ONCE: usize = 64;
/// How often a keepalive is repeated because the leader may have changed meanwhile.
const LEADERS: usize = 3;
/// A grant that is released sooner than this is not watched for revocation.
const UNWATCHED: Duration = Duration::from_millis(100);
/// Between two looks when the way to etcd is interrupted.
const PAUSE: Duration = Duration::from_millis(250);

type Answer = Result<Renewed, Error>;

/// A renewal that need not be read first.
struct Quick {
    at: usize,
    hold: Hold,
}

impl Engine {
    pub(super) async fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = renewals.iter().map(|_| None).collect();
        let sent_us = clock::boot_us();
        let quick: Vec<Quick> = renewals
            .iter()
            .enumerate()
            .filter_map(|(at, renewal)| self.quick(at, renewal, sent_us))
            .collect();
        let beats = self.beats(&quick).await;
        let mut alive = Vec::new();
        for quick in quick {
            match &beats[&quick.hold.lease] {
                Ok(beat) if beat.ttl > 0 => alive.push((quick, beat.term)),
                Ok(_) => {}
                Err(fail) => {
                    answers[quick.at] =
                        Some(Err(self.here(fail.clone().of_write(), &renewals[quick.at].resource)));
                }
            }
        }
        for part in alive.chunks(BATCH) {
            self.verify(part, &renewals, &mut answers, sent_us).await;
        }
        self.rest(&renewals, &mut answers).await;
        answers
            .into_iter()
            .map(|answer| {
                answer.unwrap_or_else(|| Err(Fail::Unanswered("it was left out".to_owned()).of_write()))
            })
            .collect()
    }

    fn quick(&self, at: usize, renewal: &Renewal, now_us: u64) -> Option<Quick> {
        if renewal.lock_delay > leasehold_core::request::MAX_LOCK_DELAY {
            return None;
        }
        let asked_s = seconds(renewal.ttl, renewal.lock_delay);
        let hold = self.grants.quick(renewal, asked_s, now_us)?;
        Some(Quick { at, hold })
    }

    /// One keepalive for each lease, all sent before the first answer is awaited.
    async fn beats(&self, quick: &[Quick]) -> HashMap<i64, Result<Beat, Fail>> {
        let mut sent = HashMap::new();
        for quick in quick {
            let lease = quick.hold.lease;
            sent.entry(lease).or_insert_with(|| self.keepalive.send(lease));
        }
        let mut beats = HashMap::with_capacity(sent.len());
        for (lease, answer) in sent {
            beats.insert(lease, answer.await);
        }
        beats
    }

    /// Compares the marks of what was kept alive. Answers those that stand, and the whole part when nobody knows.
    async fn verify(
        &self,
        part: &[(Quick, u64)],
        renewals: &[Renewal],
        answers: &mut [Option<Answer>],
        sent_us: u64,
    ) {
        let key = |quick: &Quick| self.keys.mark(&renewals[quick.at].resource);
        let compare =
            part.iter().map(|(quick, _)| Compare::says(key(quick), quick.hold.mark.clone())).collect();
        // The reads make it a linearizable question even when all comparisons hold.
        let failure: Vec<RequestOp> =
            part.iter().map(|(quick, _)| RangeRequest::one(key(quick)).into()).collect();
        let question = TxnRequest { compare, success: Vec::new(), failure };
        let before = self.reached();
        let answer: Result<TxnResponse, Fail> =
            self.rpc.call("/etcdserverpb.KV/Txn", question, Effect::None).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(fail) => {
                for (quick, _) in part {
                    let error = fail.clone().of_write().unknown();
                    answers[quick.at] = Some(Err(self.here(error, &renewals[quick.at].resource)));
                }
                return;
            }
        };
        let term = answer.header.map_or(0, |header| header.raft_term);
        let revision = answer.header.map_or(0, |header| header.revision.unsigned_abs());
        if self.went_back(before, revision) && self.announce_restore(before).await.is_err() {
            // What is not answered here is read, and that announces it again.
            return;
        }
        let all = answer.succeeded;
        let mut keys = answer.responses.into_iter().map(super::proto::ResponseOp::into_keys);
        for (quick, beat_term) in part {
            let stands = all
                || keys.next().unwrap_or_default().first().is_some_and(|key| key.value == quick.hold.mark);
            let renewal = &renewals[quick.at];
            // What does not stand, or was answered by an old leader, is looked at one by one.
            if stands && *beat_term == term && self.grants.renewed(renewal.lease_id, sent_us) {
                let ttl = given(quick.hold.term_s, renewal.lock_delay, renewal.ttl);
                answers[quick.at] = Some(Ok(Renewed::Extended { ttl }));
            }
        }
    }

    /// Those that have no answer yet, each for itself.
    async fn rest(self: &Arc<Self>, renewals: &[Renewal], answers: &mut [Option<Answer>]) {
        let open: Vec<usize> = (0..renewals.len()).filter(|&at| answers[at].is_none()).collect();
        for part in open.chunks(AT_ONCE) {
            let mut tasks = JoinSet::new();
            for &at in part {
                let (engine, renewal) = (Arc::clone(self), renewals[at].clone());
                tasks.spawn(async move { (at, engine.renew_one(renewal).await) });
            }
            while let Some(done) = tasks.join_next().await {
                if let Ok((at, answer)) = done {
                    answers[at] = Some(answer);
                }
            }
        }
    }

    /// Reads a grant, and renews it if it is the right one.
    async fn renew_one(self: Arc<Self>, renewal: Renewal) -> Answer {
        for _ in 0..ROUNDS {
            let view = self.read(&renewal.resource).await?;
            let now = Self::now();
            let mut slot = self.slot(&renewal.resource, &view, now)?;
            let max_ttl = view.meta.map_or_else(|| Ok(self.first_max_ttl()), |(meta, _)| meta.max_ttl());
            let max_ttl = max_ttl.map_err(|error| self.here(error, &renewal.resource))?;
            rules::check_renewal(&renewal, &slot, max_ttl)?;
            let mut answer = slot.renew(&renewal, now);
            let Some(mark) = view.mark.filter(|_| matches!(answer, Renewed::Extended { .. })) else {
                self.grants.forget(renewal.lease_id);
                self.complete(&mut answer, &view).await;
                return Ok(answer);
            };
            let asked_s = seconds(renewal.ttl, renewal.lock_delay);
            let extended = self
                .extend(&renewal.resource, renewal.lease_id, renewal.token, asked_s, mark, &view)
                .await
                .map_err(|error| self.here(error, &renewal.resource))?;
            if let Some(term_s) = extended {
                return Ok(Renewed::Extended { ttl: given(term_s, renewal.lock_delay, renewal.ttl) });
            }
        }
        Err(self.overtaken(&renewal.resource))
    }

    /// Lets a grant that was seen live for at least `asked_s` from now on. The seconds it has; `None` when it is not as it was.
    pub(super) async fn extend(
        self: &Arc<Self>,
        resource: &Resource,
        lease_id: LeaseId,
        token: Token,
        asked_s: u64,
        mark: Tie,
        view: &View,
    ) -> Result<Option<u64>, Error> {
        let sent_us = clock::boot_us();
        let term = view.state.term();
        let foreign = term.shared && !self.is_our_shared(mark.lease).await;
        if asked_s > term.seconds || foreign || self.grants.is_ending(lease_id) {
            return self.move_to_another(resource, lease_id, token, asked_s.max(term.seconds), view).await;
        }
        if !self.keep_alive(resource, mark.lease, mark.written).await.map_err(Fail::of_write)? {
            return Ok(None);
        }
        let Some(held) = &view.state.held else { return Ok(None) };
        let value =
            Mark { token: held.token, lease_id: held.lease_id.clone(), revoked: false, lease: mark.lease };
        let known = Known {
            resource: resource.clone(),
            token,
            armed: Armed::found(mark.lease, term.seconds, sent_us),
            written: mark.written,
            mark: value.encode_to_vec(),
            state: view.state.clone(),
            doubtful: view.written != mark.written,
        };
        if !self.grants.note(lease_id, known) {
            return Ok(None);
        }
        self.watch_over(resource, lease_id, mark.written);
        Ok(Some(term.seconds))
    }

    /// Hangs a grant on another lease. A lease of etcd has one length for ever, so a longer term needs another one.
    async fn move_to_another(
        self: &Arc<Self>,
        resource: &Resource,
        lease_id: LeaseId,
        token: Token,
        asked_s: u64,
        view: &View,
    ) -> Result<Option<u64>, Error> {
        let arming = self.arm(asked_s).await.map_err(Fail::of_read)?;
        let armed = arming.armed;
        let mut state = view.state.clone();
        let Some(held) = &mut state.held else { return Ok(None) };
        (held.term_s, held.shared) = (armed.term_s, self.shared_lease);
        held.ttl_ms = held.ttl_ms.max(armed.term_s * 1_000);
        let mark =
            Mark { token: held.token, lease_id: held.lease_id.clone(), revoked: false, lease: armed.lease };
        let change = vec![
            RequestOp::put(self.keys.state(resource), &state, 0),
            RequestOp::put(self.keys.mark(resource), &mark, armed.lease),
        ];
        let (term, written) = match self.attempt(view.unchanged(&self.keys, resource), change).await {
            Ok(Some(made)) => made.header.map_or((0, 0), |header| (header.raft_term, header.revision)),
            Ok(None) => {
                self.give_back(armed);
                return Ok(None);
            }
            Err(Fail::NoLease) => {
                self.lost_lease(armed.lease).await;
                return Ok(None);
            }
            Err(fail) => return Err(fail.of_write()),
        };
        let mark = mark.encode_to_vec();
        let known = Known { resource: resource.clone(), token, armed, written, mark, state, doubtful: false };
        // One that is being ended is so no more: what was compared for that has changed.
        self.grants.forget(lease_id);
        self.grants.note(lease_id, known);
        self.watch_over(resource, lease_id, written);
        let sure = self.sure(resource, arming, written, term).await.map_err(Fail::of_write)?;
        Ok(sure.then_some(armed.term_s))
    }

    /// Keeps a lease alive, and makes sure that the mark still hangs on it as it did. False when it does not.
    pub(super) async fn keep_alive(
        &self,
        resource: &Resource,
        lease: i64,
        written: i64,
    ) -> Result<bool, Fail> {
        for _ in 0..LEADERS {
            let beat = self.keepalive.send(lease).await?;
            if beat.ttl == 0 {
                return Ok(false);
            }
            let question = TxnRequest {
                success: vec![RangeRequest::one(self.keys.mark(resource)).keys_only().into()],
                ..TxnRequest::default()
            };
            let answer: TxnResponse =
                match self.rpc.call("/etcdserverpb.KV/Txn", question, Effect::None).await {
                    Ok(answer) => answer,
                    // The keepalive itself was answered.
                    Err(fail) => return Err(Fail::Unanswered(format!("{:?}", fail.of_read().what()))),
                };
            let term = answer.header.map_or(0, |header| header.raft_term);
            let keys = answer
                .responses
                .into_iter()
                .next()
                .map(super::proto::ResponseOp::into_keys)
                .unwrap_or_default();
            if keys.first().is_none_or(|key| key.mod_revision != written || key.lease != lease) {
                return Ok(false);
            }
            if term == beat.term {
                return Ok(true);
            }
        }
        Err(Fail::Unanswered("its leader keeps changing".to_owned()))
    }

    /// Watches a grant of ours, from a revision on: its holder is woken when something happens to it.
    pub(super) fn watch_over(self: &Arc<Self>, resource: &Resource, lease_id: LeaseId, after: i64) {
        let (engine, resource) = (Arc::clone(self), resource.clone());
        let task = tokio::spawn(async move { engine.watching(resource, lease_id, after).await });
        let watched = self.grants.watched_by(lease_id, task.abort_handle());
        if watched && self.is_closed() {
            self.grants.forget(lease_id);
        }
    }

    async fn watching(&self, resource: Resource, lease_id: LeaseId, mut after: i64) {
        // Most grants are short, and a watch costs etcd something.
        tokio::time::sleep(UNWATCHED).await;
        loop {
            let mut watch = self.watches.open(self.keys.mark(&resource), after);
            while let Some(event) = watch.next().await {
                if event.is_removal() {
                    self.touched(lease_id);
                    self.grants.unwatched(lease_id);
                    return;
                }
                let Some(key) = event.kv else { continue };
                after = after.max(key.mod_revision);
                if self.grants.mark(lease_id).is_some_and(|ours| ours != key.value) {
                    self.touched(lease_id);
                }
            }
            tokio::time::sleep(PAUSE).await;
            // Boxed, as it is rarely needed: there may be very many who watch.
            let Ok(view) = Box::pin(self.read(&resource)).await else { continue };
            after = view.revision.cast_signed();
            if !view.is_held_by(lease_id) {
                self.touched(lease_id);
                if view.mark.is_none() {
                    self.grants.unwatched(lease_id);
                    return;
                }
            }
        }
    }

    /// Something has happened to a grant: its next renewal reads before it does anything, and its holder should ask now.
    fn touched(&self, lease_id: LeaseId) {
        self.grants.doubt(lease_id);
        self.mailbox.push(Wake::Lease(lease_id));
    }
}

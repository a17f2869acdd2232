//! Ends of grants: by their holders, and by operators.
//!
//! A grant has ended when a majority has ended it: what a minority still has is no grant, and time ends it. So nobody waits for
//! nodes that are down. A node that had the grant under an older token (it missed the second phase) is brought up to it first.

use std::sync::Arc;

use leasehold_core::{
    Error, Kind, Ttl,
    quorum::Quorum,
    record::{End, Gone, Record, Released, Revoked},
    request::{Release, Renewal, Revocation},
};

use super::{
    circle::{Circle, News, Patience, no_majority},
    member::{Reply, Weight},
    merge,
};
use crate::coordinator::redis::{answer, op::Op};

/// What the nodes have answered to a release.
struct Releases {
    quorum: Quorum,
    ended: usize,
    /// Nodes on which an earlier attempt of the same release has ended it.
    before: usize,
    gone: Vec<Gone>,
    /// Nodes that had nothing of it to end.
    rest: Vec<usize>,
    lost: usize,
    failures: Vec<Error>,
}

impl Releases {
    fn count(&mut self, at: usize, reply: Reply) {
        let answer = reply
            .and_then(|told| answer::released(told.answers.into_iter().next().unwrap_or(redis::Value::Nil)));
        match answer {
            Ok(Released::Ended) => self.ended += 1,
            Ok(Released::NotHeld(gone)) => {
                self.before += usize::from(gone == Gone::Released);
                self.gone.push(gone);
                self.rest.push(at);
            }
            // A place among those who are woken is no place in a queue.
            Ok(_) => self.gone.push(Gone::Absent),
            Err(error) => {
                self.lost += usize::from(error.kind() == Kind::Unknown);
                self.failures.push(error);
            }
        }
    }

    /// The answer, once there is one.
    fn verdict(&self) -> Option<Released> {
        let majority = self.quorum.majority();
        if self.ended >= majority || (self.ended > 0 && self.ended + self.before >= majority) {
            return Some(Released::Ended);
        }
        (self.gone.len() > self.quorum.minority())
            .then(|| Released::NotHeld(merge::gone(self.quorum, &self.gone)))
    }

    fn failed(self, open: usize) -> Error {
        let heard = self.ended + self.gone.len();
        if self.failures.len() > self.quorum.minority()
            && let Some(refusal) = self.failures.iter().find(|error| !error.is_transient())
        {
            return refusal.clone();
        }
        let error = no_majority(self.quorum, heard, &self.failures);
        if self.ended + self.lost + open > 0 { error.unknown() } else { error }
    }
}

/// Ends a grant, or takes back a claim.
pub(super) async fn release(circle: Arc<Circle>, release: Release) -> Result<Released, Error> {
    let name = Circle::name(&release.resource);
    let op = Op::release(&circle.space, &name, &release);
    let mut asked = circle.ask(&[op], Weight::Rest, Patience::UNHURRIED);
    let mut open = circle.quorum.nodes();
    let (gone, failures, rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut heard = Releases { quorum: circle.quorum, ended: 0, before: 0, gone, rest, lost: 0, failures };
    let answer = loop {
        match asked.next().await {
            News::From(at, reply) => {
                open -= 1;
                heard.count(at, reply);
            }
            News::Late => {}
            News::Over | News::Silence => break None,
        }
        if let Some(answer) = heard.verdict() {
            break Some(answer);
        }
    };
    if answer != Some(Released::Ended) || release.token.is_none() {
        circle.linger(asked);
        return answer.ok_or_else(|| heard.failed(open));
    }
    // Nodes that missed the second phase have it under a token of their own. Now that it has ended, whatever they have goes.
    let whatever = Op::release(&circle.space, &name, &Release { token: None, ..release });
    if !heard.rest.is_empty() {
        circle.tell(heard.rest.iter().copied(), &whatever);
    }
    let late = Arc::clone(&circle);
    circle.runtime.spawn(asked.drain(move |at, reply| {
        let value = reply.ok().and_then(|told| told.answers.into_iter().next());
        if let Some(Ok(Released::NotHeld(_))) = value.map(answer::released) {
            late.tell([at], &whatever);
        }
    }));
    Ok(Released::Ended)
}

/// What the nodes have answered to a revocation.
struct Revocations {
    quorum: Quorum,
    ended: Vec<Record>,
    /// Who has it under another token, and on which node.
    others: Vec<(usize, Record)>,
    free: Vec<Option<End>>,
    lost: usize,
    failures: Vec<Error>,
}

impl Revocations {
    fn count(&mut self, at: usize, reply: Reply) {
        let answer = reply
            .and_then(|told| answer::revoked(told.answers.into_iter().next().unwrap_or(redis::Value::Nil)));
        match answer {
            Ok(Revoked::Ended { record, .. }) => self.ended.push(record),
            Ok(Revoked::OtherToken(record)) => self.others.push((at, record)),
            Ok(Revoked::NotHeld(end)) => self.free.push(end),
            Ok(_) => {}
            Err(error) => {
                self.lost += usize::from(error.kind() == Kind::Unknown);
                self.failures.push(error);
            }
        }
    }

    fn verdict(&self, now: bool, final_word: bool) -> Option<Revoked> {
        let majority = self.quorum.majority();
        if self.ended.len() >= majority {
            let record = merge::record(self.quorum, &self.ended)?;
            let busy_for = if now { std::time::Duration::ZERO } else { record.remaining };
            return Some(Revoked::Ended { record, busy_for });
        }
        let others: Vec<Record> = self.others.iter().map(|(_, record)| record.clone()).collect();
        if let Some(record) = merge::majority_record(self.quorum, &others) {
            return Some(Revoked::OtherToken(record));
        }
        if self.free.len() >= majority || (final_word && self.ended.is_empty() && self.lost == 0) {
            return Some(Revoked::NotHeld(merge::last_end(self.quorum, self.free.iter().flatten())));
        }
        None
    }

    fn failed(self, open: usize) -> Error {
        if self.failures.len() > self.quorum.minority()
            && let Some(refusal) = self.failures.iter().find(|error| !error.is_transient())
        {
            return refusal.clone();
        }
        let heard = self.ended.len() + self.others.len() + self.free.len();
        let error = no_majority(self.quorum, heard, &self.failures);
        if self.ended.len() + self.lost + open > 0 { error.unknown() } else { error }
    }
}

/// Ends another's grant.
pub(super) async fn revoke(circle: Arc<Circle>, revocation: Revocation) -> Result<Revoked, Error> {
    let name = Circle::name(&revocation.resource);
    let op = Op::revoke(&circle.space, &name, &revocation);
    let mut asked = circle.ask(std::slice::from_ref(&op), Weight::Rest, Patience::UNHURRIED);
    let mut open = circle.quorum.nodes();
    let (ended, others, free) = (Vec::new(), Vec::new(), Vec::new());
    let mut heard = Revocations { quorum: circle.quorum, ended, others, free, lost: 0, failures: Vec::new() };
    let answer = loop {
        match asked.next().await {
            News::From(at, reply) => {
                open -= 1;
                heard.count(at, reply);
            }
            News::Late => {}
            News::Over => break None,
            News::Silence => {
                let heard_all = heard.failures.len() <= circle.quorum.minority();
                break heard.verdict(revocation.now, heard_all);
            }
        }
        if let Some(answer) = heard.verdict(revocation.now, false) {
            break Some(answer);
        }
    };
    let Some(answer) = answer else {
        circle.linger(asked);
        return Err(heard.failed(open));
    };
    let Revoked::Ended { record, .. } = &answer else {
        circle.linger(asked);
        return Ok(answer);
    };
    // Nodes that missed the second phase have it under a token that the operator did not name.
    let follow = [Op::confirm(&circle.space, &name, &upkeep(&revocation, record), record.granted_us), op];
    let (lease_id, token) = (record.lease_id, record.token);
    let same = move |other: &Record| other.lease_id == lease_id && other.token != token;
    let others = heard.others.iter().filter(|(_, other)| same(other)).map(|(at, _)| *at);
    let late = Arc::clone(&circle);
    let again = move |at: usize| {
        for op in &follow {
            late.tell([at], op);
        }
    };
    others.for_each(&again);
    circle.runtime.spawn(asked.drain(move |at, reply| {
        let value = reply.ok().and_then(|told| told.answers.into_iter().next());
        if let Some(Ok(Revoked::OtherToken(record))) = value.map(answer::revoked)
            && same(&record)
        {
            again(at);
        }
    }));
    Ok(answer)
}

/// The grant as the nodes are to have it: the shortest TTL, which never shortens.
fn upkeep(revocation: &Revocation, record: &Record) -> Renewal {
    Renewal {
        resource: revocation.resource.clone(),
        lease_id: record.lease_id,
        token: record.token,
        ttl: Ttl::MIN,
        lock_delay: std::time::Duration::ZERO,
    }
}

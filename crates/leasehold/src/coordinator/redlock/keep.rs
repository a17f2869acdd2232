//! Renewals, many in one message to each node, and the return of nodes that lack a grant.
//!
//! A grant is renewed when a majority has extended it in this very round. Only then is it known to stand, and only then is it
//! given to the nodes that lack it (they were late, were started again, or missed the last rounds); these do not count in the
//! round. What has lost its majority is thus never brought back.

use std::{collections::BTreeMap, sync::Arc};

use leasehold_core::{
    Error, Kind, Ttl,
    quorum::Quorum,
    record::{Gone, Renewed},
    request::{MAX_LOCK_DELAY, Renewal},
};

use super::{
    circle::{Circle, News, Patience, no_majority},
    member::{Reply, Told, Weight},
    merge,
};
use crate::coordinator::redis::{answer, node::MAX_OPS, op::Op};

/// What the nodes have answered to one renewal.
#[derive(Debug)]
struct Tally {
    /// Which nodes have extended it.
    extended: Vec<usize>,
    gone: Vec<Gone>,
    refused: Vec<Error>,
    failures: Vec<Error>,
    lost: usize,
    open: usize,
    /// Nodes that lack the grant, and what their clocks showed when they were asked.
    lacking: Vec<(usize, u64)>,
}

impl Tally {
    fn new(quorum: Quorum) -> Self {
        let (extended, gone, refused, failures, lacking) = Default::default();
        Self { extended, gone, refused, failures, lost: 0, open: quorum.nodes(), lacking }
    }

    fn count(&mut self, at: usize, now_us: u64, answer: Result<Renewed, Error>) {
        self.open -= 1;
        match answer {
            Ok(Renewed::Extended { .. }) => self.extended.push(at),
            Ok(Renewed::Gone(gone)) => {
                // The node itself knows whether it may have the grant.
                if matches!(gone, Gone::Absent | Gone::Expired | Gone::Superseded { .. }) {
                    self.lacking.push((at, now_us));
                }
                self.gone.push(gone);
            }
            Ok(_) => self.failures.push(Error::new(Kind::Corrupt, "a node gave no answer to a renewal")),
            Err(error) if error.is_transient() => {
                self.lost += usize::from(error.kind() == Kind::Unknown);
                self.failures.push(error);
            }
            Err(error) => self.refused.push(error),
        }
    }

    fn verdict(&self, quorum: Quorum, ttl: Ttl) -> Option<Result<Renewed, Error>> {
        if self.extended.len() >= quorum.majority() {
            return Some(Ok(Renewed::Extended { ttl }));
        }
        if self.gone.len() > quorum.minority() {
            return Some(Ok(Renewed::Gone(merge::gone(quorum, &self.gone))));
        }
        self.refused
            .first()
            .filter(|_| self.refused.len() > quorum.minority())
            .map(|error| Err(error.clone()))
    }

    /// True when nothing that may still come can make it renewed or gone.
    fn is_hopeless(&self, quorum: Quorum) -> bool {
        self.open + self.extended.len().max(self.gone.len()) < quorum.majority()
    }

    fn failed(&self, quorum: Quorum) -> Error {
        let heard = self.extended.len() + self.gone.len() + self.refused.len();
        let failures: Vec<Error> = self.failures.iter().chain(&self.refused).cloned().collect();
        let error = no_majority(quorum, heard, &failures);
        let possible = self.extended.len() + self.lost + self.open >= quorum.majority();
        if possible { error.unknown() } else { error }
    }
}

/// A round of renewals.
struct Round {
    circle: Arc<Circle>,
    renewals: Vec<Renewal>,
    tallies: Vec<Tally>,
}

impl Round {
    fn hear(&mut self, at: usize, reply: Reply) {
        match reply {
            Ok(Told { now_us, answers }) => {
                let each = answers.into_iter().zip(&self.renewals).zip(&mut self.tallies);
                for ((value, renewal), tally) in each {
                    tally.count(at, now_us, answer::renewed(value, &self.circle.asked(renewal.ttl)));
                }
            }
            Err(error) => self.tallies.iter_mut().for_each(|tally| tally.count(at, 0, Err(error.clone()))),
        }
    }

    fn is_clear(&self) -> bool {
        let quorum = self.circle.quorum;
        let clear = |(tally, renewal): (&Tally, &Renewal)| {
            tally.verdict(quorum, renewal.ttl).is_some() || tally.is_hopeless(quorum)
        };
        self.tallies.iter().zip(&self.renewals).all(clear)
    }

    fn is_clear_in_part(&self) -> bool {
        let mut each = self.tallies.iter().zip(&self.renewals);
        each.any(|(tally, renewal)| tally.verdict(self.circle.quorum, renewal.ttl).is_some())
    }

    fn answers(&self) -> Vec<Result<Renewed, Error>> {
        let quorum = self.circle.quorum;
        let each = self.tallies.iter().zip(&self.renewals);
        each.map(|(tally, renewal)| {
            tally.verdict(quorum, renewal.ttl).unwrap_or_else(|| Err(tally.failed(quorum)))
        })
        .collect()
    }

    /// Gives the grants that a majority has just renewed to the nodes that lack them.
    async fn replant(self) {
        let majority = self.circle.quorum.majority();
        let stand = self.tallies.into_iter().zip(self.renewals);
        let lacked = stand.filter(|(tally, _)| tally.extended.len() >= majority && !tally.lacking.is_empty());
        // The others have their turn at the next renewal.
        let lacked: Vec<(Tally, Renewal)> = lacked.take(MAX_OPS).collect();
        let mut sources: BTreeMap<usize, Vec<&(Tally, Renewal)>> = BTreeMap::new();
        for one in &lacked {
            if let Some(&source) = one.0.extended.first() {
                sources.entry(source).or_default().push(one);
            }
        }
        for (source, lacked) in sources {
            plant(&self.circle, source, &lacked).await;
        }
    }
}

/// Copies grants from a node that has them to those that lack them. The copy is made of what the node says, because whoever
/// renews need not be the process that claimed.
async fn plant(circle: &Circle, source: usize, lacked: &[&(Tally, Renewal)]) {
    let space = &circle.space;
    let looks =
        lacked.iter().map(|(_, renewal)| Op::inspect(space, &Circle::name(&renewal.resource), 0)).collect();
    let Ok(told) = circle.members[source].post(looks, Weight::Rest).await else { return };
    let mut plants: BTreeMap<usize, Vec<Op>> = BTreeMap::new();
    for (value, (tally, renewal)) in told.answers.into_iter().zip(lacked) {
        let record = answer::seen(value).ok().and_then(|seen| seen.record);
        let Some(record) = record.filter(|record| record.lease_id == renewal.lease_id) else { continue };
        for &(at, asked_us) in &tally.lacking {
            let name = Circle::name(&renewal.resource);
            let op = Op::replant(space, &name, renewal, &record, circle.address, asked_us);
            plants.entry(at).or_default().push(op);
        }
    }
    let planted = circle.ask_some(plants.keys().copied(), Weight::Rest, Patience::UNHURRIED, |at| {
        plants.get(&at).cloned().unwrap_or_default()
    });
    planted.drain(|_, _| ()).await;
}

/// Renews, as far as it is clear in time. The rest is seen to in the background.
pub(super) async fn renew(circle: Arc<Circle>, renewals: Vec<Renewal>) -> Vec<Result<Renewed, Error>> {
    let (renewals, mut answers) = sift(renewals);
    if renewals.is_empty() {
        return answers.into_iter().flatten().collect();
    }
    let ttl = renewals.iter().map(|renewal| renewal.ttl).min().unwrap_or_default();
    let name = |renewal: &Renewal| Circle::name(&renewal.resource);
    let ops: Vec<Op> =
        renewals.iter().map(|renewal| Op::renew(&circle.space, &name(renewal), renewal)).collect();
    let mut asked = circle.ask(&ops, Weight::Rest, Patience::of(ttl));
    let (quorum, mut heard, mut late) = (circle.quorum, 0, false);
    let tallies = renewals.iter().map(|_| Tally::new(quorum)).collect();
    let mut round = Round { circle: Arc::clone(&circle), renewals, tallies };
    loop {
        match asked.next().await {
            News::From(at, reply) => {
                heard += usize::from(reply.is_ok());
                round.hear(at, reply);
            }
            News::Late => late = true,
            News::Over | News::Silence => break,
        }
        // What is clear must not wait for what is not: the windows of all of them are running.
        if round.is_clear() || (late && heard >= quorum.majority() && round.is_clear_in_part()) {
            break;
        }
    }
    let mut told = round.answers().into_iter();
    answers.iter_mut().filter(|answer| answer.is_none()).for_each(|answer| *answer = told.next());
    circle.runtime.spawn(async move {
        let mut round = round;
        asked.drain(|at, reply| round.hear(at, reply)).await;
        round.replant().await;
    });
    answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
}

fn unanswered() -> Result<Renewed, Error> {
    Err(Error::new(Kind::Unknown, "the nodes did not answer every renewal"))
}

type Answers = Vec<Option<Result<Renewed, Error>>>;

/// Takes out what is out of bounds.
fn sift(renewals: Vec<Renewal>) -> (Vec<Renewal>, Answers) {
    let out = |renewal: &Renewal| renewal.lock_delay > MAX_LOCK_DELAY;
    let refusal = || Err(Error::new(Kind::Invalid, "lock-delay must be at most 1h"));
    let answers = renewals.iter().map(|renewal| out(renewal).then(refusal)).collect();
    (renewals.into_iter().filter(|renewal| !out(renewal)).collect(), answers)
}

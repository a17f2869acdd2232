//! The first phase of a claim: what each node has answered, and what follows from that. Pure: no node is asked here.

use std::{collections::BTreeMap, time::Duration};

use leasehold_core::{
    Error, LeaseId, Token,
    line::recheck,
    quorum::{Choice, Offer, Quorum},
    record::{Acquired, Busy, End, Grant},
};

use super::{circle::no_majority, merge};
use crate::coordinator::rules;

/// A grant that is younger than this may be one of several claims that met, none of which has a majority (ours: twice what one
/// round of a claim takes at the most, on a machine that is overloaded; what is older stands).
const FRESH_US: u64 = 3_000_000;

/// What one node has answered to a claim.
#[derive(Debug)]
pub(super) enum Vote {
    /// Nothing yet.
    Waiting,
    /// It is for the claim.
    Granted(Grant),
    /// Another has it.
    Busy(Box<Busy>),
    /// The node may have forgotten grants.
    Quarantined(Duration),
    /// The job was done recently: when it started, and until when that counts.
    Done(u64, Duration),
    /// The claim's grant has ended here.
    Spent(Box<End>),
    /// The node refuses, and would again.
    Refused(Error),
    /// The claim certainly did not reach it.
    Unsent(Error),
    /// Nobody knows whether it did.
    Lost(Error),
}

/// What is known besides the votes.
#[derive(Clone, Debug)]
pub(super) struct Circumstances {
    /// The token that was proposed.
    pub(super) proposed: Token,
    /// Whose claim it is.
    pub(super) lease_id: LeaseId,
    /// Tokens under which earlier attempts of this claim were taken back: what still stands under them may vanish any moment.
    pub(super) taken_back: Vec<Token>,
    /// True in the first round: a grant that stands already is not this call's own.
    pub(super) first_round: bool,
    /// Whoever has not answered is late.
    pub(super) late: bool,
    /// Nodes that are late and seem to be stopped.
    pub(super) stopped: Vec<usize>,
    /// Nobody waits any longer.
    pub(super) over: bool,
    /// This machine's wall clock, µs. Only tells new from old.
    pub(super) unix_us: u64,
}

/// What follows.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Wait for more.
    Wait,
    /// A majority has stored this token: granted.
    Take(Token),
    /// A majority is for the claim: let it store this token.
    Confirm(Token),
    /// Not granted, and this is the answer.
    Answer(Acquired),
    /// Several claims have met, and none has a majority. `ahead`: this one has the best right to insist.
    Contend {
        /// True when the others are to give way.
        ahead: bool,
        /// What to answer when it leads to nothing.
        instead: Busy,
    },
    /// No majority could be asked. `standing`: the claim may have been granted by one all the same, and is left as it is.
    Fail {
        /// Why.
        error: Error,
        /// Whether a majority may have it.
        standing: bool,
    },
}

/// The votes of all nodes.
#[derive(Debug)]
pub(super) struct Votes {
    quorum: Quorum,
    pub(super) each: Vec<Vote>,
}

impl Votes {
    /// Nobody has voted.
    pub(super) fn new(quorum: Quorum) -> Self {
        Self { quorum, each: (0..quorum.nodes()).map(|_| Vote::Waiting).collect() }
    }

    fn count(&self, what: impl Fn(&Vote) -> bool) -> usize {
        self.each.iter().filter(|vote| what(vote)).count()
    }

    /// What the nodes have given.
    pub(super) fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.each.iter().filter_map(|vote| match vote {
            Vote::Granted(grant) => Some(grant),
            _ => None,
        })
    }

    fn busy(&self) -> impl Iterator<Item = &Busy> {
        self.each.iter().filter_map(|vote| match vote {
            Vote::Busy(busy) => Some(&**busy),
            _ => None,
        })
    }

    /// True when a node had a grant of this claim before it was asked.
    pub(super) fn stood_before(&self) -> bool {
        self.grants().any(|grant| grant.adopted)
    }

    /// What follows from the votes so far.
    pub(super) fn verdict(&self, known: &Circumstances) -> Verdict {
        self.settled(known).unwrap_or_else(|| {
            let silent = |vote: &Vote| matches!(vote, Vote::Waiting | Vote::Unsent(_) | Vote::Lost(_));
            let heard = self.quorum.nodes() - self.count(silent);
            // A claim that a slow node can still make a grant is not given up because a majority is divided: what stands in its
            // way on a node may be a remnant.
            let each = self.each.iter().enumerate();
            let to_come = each
                .filter(|(at, vote)| matches!(vote, Vote::Waiting) && !known.stopped.contains(at))
                .count();
            let decided = self.grants().count() + to_come < self.quorum.majority();
            let enough = known.over || (known.late && heard >= self.quorum.majority() && decided);
            let waits = self.each.iter().any(|vote| matches!(vote, Vote::Waiting));
            if waits && !enough { Verdict::Wait } else { self.unsettled(known) }
        })
    }

    /// What needs no more votes.
    fn settled(&self, known: &Circumstances) -> Option<Verdict> {
        // Whoever recorded a success did so on a majority, which shares a node with this claim's: one word is enough.
        let done = self.each.iter().filter_map(|vote| match vote {
            Vote::Done(started_us, due_in) => Some((*started_us, *due_in)),
            _ => None,
        });
        if let Some((started_us, due_in)) = done.max() {
            return Some(Verdict::Answer(Acquired::AlreadyDone { started_us, due_in }));
        }
        let offers: Vec<Offer> = self.grants().map(|grant| offer(grant, known)).collect();
        match self.quorum.choose(&offers) {
            Ok(Choice::TooFew) => {}
            Ok(Choice::Stands(token)) => return Some(Verdict::Take(token)),
            // A grant that stands has a token already, which those may have who have not answered.
            Ok(Choice::Raise(_)) if known.first_round && self.stood_before() && self.may_wait(known) => {
                return Some(Verdict::Wait);
            }
            Ok(Choice::Raise(token)) => return Some(Verdict::Confirm(token)),
            Err(none) => return Some(Verdict::Fail { error: rules::no_token(none), standing: false }),
        }
        let parties = self.parties();
        if let Some(party) = parties.first().filter(|party| party.votes.len() >= self.quorum.majority()) {
            return Some(Verdict::Answer(Acquired::Busy(self.blocked_by(party))));
        }
        if self.count(|vote| matches!(vote, Vote::Spent(_))) >= self.quorum.majority() {
            return self.last_end().map(|end| Verdict::Answer(Acquired::Spent(end)));
        }
        let refused = self.count(|vote| matches!(vote, Vote::Refused(_)));
        let unsent = self.count(|vote| matches!(vote, Vote::Unsent(_)));
        (refused + unsent > self.quorum.minority()).then(|| self.failed(known))
    }

    fn may_wait(&self, known: &Circumstances) -> bool {
        !known.late && !known.over && self.each.iter().any(|vote| matches!(vote, Vote::Waiting))
    }

    /// What follows when no more votes come.
    fn unsettled(&self, known: &Circumstances) -> Verdict {
        let majority = self.quorum.majority();
        let granted = self.grants().count();
        let lost = self.count(|vote| matches!(vote, Vote::Waiting | Vote::Lost(_)));
        let quarantines: Vec<Duration> = self.each.iter().filter_map(quarantine).collect();
        let spent = self.count(|vote| matches!(vote, Vote::Spent(_)));
        let parties = self.parties();
        if granted + quarantines.len() + spent + self.busy().count() < majority {
            return self.failed(known);
        }
        if !quarantines.is_empty()
            && let Some(remaining) = self.quorum.opens(granted, quarantines)
        {
            return Verdict::Answer(Acquired::Quarantined { remaining, position: None });
        }
        // A claim that is over on one node may be so for a minority's reasons; under a new lease id it begins afresh.
        if (parties.is_empty() || granted + spent + lost >= majority)
            && let Some(end) = self.last_end()
        {
            return Verdict::Answer(Acquired::Spent(end));
        }
        let Some(first) = parties.first() else { return self.failed(known) };
        let instead = self.blocked_by(first);
        if parties.iter().any(|party| party.is_fresh(known)) && first.lease_id != known.lease_id {
            let mine = (std::cmp::Reverse(granted), known.lease_id.as_bytes().to_owned());
            let ahead = granted > 0 && mine < first.rank();
            return Verdict::Contend { ahead, instead };
        }
        Verdict::Answer(Acquired::Busy(instead))
    }

    fn failed(&self, known: &Circumstances) -> Verdict {
        let refusals: Vec<&Error> = self.errors(|vote| matches!(vote, Vote::Refused(_)));
        if let Some(refusal) = refusals.first().filter(|_| refusals.len() > self.quorum.minority()) {
            return Verdict::Fail { error: (*refusal).clone(), standing: false };
        }
        let lost = self.count(|vote| matches!(vote, Vote::Waiting | Vote::Lost(_)));
        let granted = self.grants().count();
        let failures: Vec<Error> = self
            .errors(|vote| matches!(vote, Vote::Refused(_) | Vote::Unsent(_) | Vote::Lost(_)))
            .into_iter()
            .cloned()
            .collect();
        let heard = self.quorum.nodes() - lost - self.count(|vote| matches!(vote, Vote::Unsent(_)));
        let error = no_majority(self.quorum, heard, &failures);
        let standing = granted + lost >= self.quorum.majority() || (known.first_round && self.stood_before());
        Verdict::Fail { error: if standing { error.unknown() } else { error }, standing }
    }

    fn errors(&self, which: impl Fn(&Vote) -> bool) -> Vec<&Error> {
        let chosen = self.each.iter().filter(|vote| which(vote));
        let errors = chosen.filter_map(|vote| match vote {
            Vote::Refused(error) | Vote::Unsent(error) | Vote::Lost(error) => Some(error),
            _ => None,
        });
        errors.collect()
    }

    fn last_end(&self) -> Option<End> {
        let ends = self.each.iter().filter_map(|vote| match vote {
            Vote::Spent(end) => Some(&**end),
            _ => None,
        });
        ends.max_by_key(|end| end.token).cloned()
    }

    /// The claims and grants in the way, the one with the most nodes first.
    fn parties(&self) -> Vec<Party<'_>> {
        let mut parties: BTreeMap<[u8; 16], Party<'_>> = BTreeMap::new();
        for busy in self.busy() {
            let id = busy.holder.lease_id.as_bytes().to_owned();
            parties.entry(id).and_modify(|party| party.add(busy)).or_insert_with(|| Party::of(busy));
        }
        let mut parties: Vec<Party<'_>> = parties.into_values().collect();
        parties.sort_by_key(Party::rank);
        parties
    }

    /// The answer that names whoever is in the way.
    fn blocked_by(&self, party: &Party<'_>) -> Busy {
        let left = |busy: &&Busy| busy.holder.remaining;
        let mut holder = party.newest.holder.clone();
        // It blocks as long as a majority has it; or, where none has, until this claim's own majority is free.
        let blocks = self.quorum.lasts(party.votes.iter().map(left));
        let opens =
            || self.quorum.opens(self.grants().count(), self.busy().map(|busy| busy.holder.remaining));
        let remaining = blocks.or_else(opens).unwrap_or(holder.remaining);
        holder.remaining = blocks.unwrap_or(holder.remaining);
        let place = party.votes.iter().filter_map(|busy| busy.position).min().unwrap_or(0);
        let again = recheck(place, remaining.min(holder.remaining)).max(Duration::from_millis(1));
        Busy { holder, position: None, recheck: again }
    }
}

fn quarantine(vote: &Vote) -> Option<Duration> {
    match vote {
        Vote::Quarantined(remaining) => Some(*remaining),
        _ => None,
    }
}

/// A grant's offer. What stood before is settled when it is dated: an offer that was never agreed on is not.
fn offer(grant: &Grant, known: &Circumstances) -> Offer {
    let settled = if grant.adopted {
        grant.granted_us > 0 && !known.taken_back.contains(&grant.token)
    } else {
        grant.token == known.proposed
    };
    Offer { token: grant.token, settled }
}

/// One claim or grant that is in the way, and the nodes that name it.
struct Party<'a> {
    lease_id: LeaseId,
    /// What the node says that knows most of it.
    newest: &'a Busy,
    votes: Vec<&'a Busy>,
}

impl<'a> Party<'a> {
    fn of(busy: &'a Busy) -> Self {
        Self { lease_id: busy.holder.lease_id, newest: busy, votes: vec![busy] }
    }

    fn add(&mut self, busy: &'a Busy) {
        let knows = |busy: &Busy| merge::knowledge(&busy.holder);
        if knows(busy) > knows(self.newest) {
            self.newest = busy;
        }
        self.votes.push(busy);
    }

    /// Most nodes first; among equals the smaller lease id, which everybody sees alike.
    fn rank(&self) -> (std::cmp::Reverse<usize>, [u8; 16]) {
        (std::cmp::Reverse(self.votes.len()), self.lease_id.as_bytes().to_owned())
    }

    fn is_fresh(&self, known: &Circumstances) -> bool {
        let granted_us = self.newest.holder.granted_us;
        granted_us == 0 || known.unix_us.abs_diff(granted_us) < FRESH_US
    }
}

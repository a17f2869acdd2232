//! Engines whose clock is not ours, or whose answers say less: outcomes are the same, and tokens are the same numbers in the
//! same order. (Engines draw tokens from clocks and revisions of their own. What counts is which grants share one, and which
//! of two is the higher.)

use std::collections::BTreeMap;

use leasehold::Token;
use leasehold_core::{
    Coordinator,
    record::{Acquired, Gone, Released, Renewed, Revoked},
};
use leasehold_testkit::sim::engine::{Reply, Request};

use crate::{
    script::{Known, RESOURCES, Step},
    strict::Asks,
};

/// What the comparison sees of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detail {
    /// Whether it was done, and by whom it is held.
    Outcomes,
    /// Also places in line, and what became of what is gone.
    Reasons,
}

/// Tokens of the simulator's engine, and which the real one gave for them.
#[derive(Debug, Default)]
struct Numbers([BTreeMap<Token, Token>; RESOURCES]);

impl Numbers {
    fn fit(&self, resource: usize, pairs: &[(Token, Token)]) -> bool {
        pairs.iter().all(|&(ours, theirs)| {
            let known = &self.0[resource];
            match known.get(&ours) {
                Some(&same) => same == theirs,
                None => {
                    known.range(..ours).next_back().is_none_or(|(_, &before)| before < theirs)
                        && known.range(ours..).next().is_none_or(|(_, &after)| after > theirs)
                }
            }
        })
    }

    fn note(&mut self, resource: usize, pairs: &[(Token, Token)]) {
        self.0[resource].extend(pairs.iter().copied());
    }
}

fn gone(gone: &Gone, detail: Detail, tokens: &mut Vec<Token>) -> String {
    if detail == Detail::Outcomes {
        return "gone".to_owned();
    }
    match gone {
        Gone::Expired => "gone: expired".to_owned(),
        Gone::Superseded { token } => {
            tokens.push(*token);
            "gone: superseded".to_owned()
        }
        Gone::Revoked { by, reason, .. } => format!("gone: revoked by {by}, {reason}"),
        Gone::Released => "gone: released".to_owned(),
        Gone::Absent => "gone: absent".to_owned(),
        other => format!("{other:?}"),
    }
}

/// What an answer says, without times, and the tokens in it.
fn seen(reply: &Reply, detail: Detail) -> (String, Vec<Token>) {
    let mut tokens = Vec::new();
    let text = match reply {
        Reply::Acquired(Acquired::Granted(grant)) => {
            tokens.push(grant.token);
            format!("granted, adopted {}", grant.adopted)
        }
        Reply::Acquired(Acquired::Busy(busy)) => {
            tokens.push(busy.holder.token);
            let place = busy.position.filter(|_| detail == Detail::Reasons);
            format!("busy: {}, place {place:?}", busy.holder.lease_id)
        }
        Reply::Acquired(Acquired::Queued(queued)) => {
            format!("{} ahead, place {:?}", queued.ahead, queued.position)
        }
        Reply::Acquired(Acquired::AlreadyDone { .. }) => "done".to_owned(),
        Reply::Acquired(Acquired::Spent(end)) => {
            tokens.push(end.token);
            format!("spent: {:?} by {}", end.reason, end.by)
        }
        Reply::Renewed(each) => {
            let each = each.iter().map(|renewed| match renewed {
                Renewed::Extended { .. } => "extended".to_owned(),
                Renewed::Gone(why) => gone(why, detail, &mut tokens),
                other => format!("{other:?}"),
            });
            each.collect::<Vec<_>>().join(", ")
        }
        Reply::Released(Released::NotHeld(why)) => gone(why, detail, &mut tokens),
        Reply::Revoked(Revoked::Ended { record, busy_for }) => {
            tokens.push(record.token);
            format!("revoked: {}, free {}", record.lease_id, busy_for.is_zero())
        }
        Reply::Revoked(Revoked::OtherToken(record)) => {
            tokens.push(record.token);
            format!("another token: {}", record.lease_id)
        }
        Reply::Revoked(Revoked::NotHeld(end)) => {
            tokens.extend(end.as_ref().map(|end| end.token));
            format!("nobody; {:?}", end.as_ref().map(|end| (&end.reason, &end.by)))
        }
        other => format!("{other:?}"),
    };
    (text, tokens)
}

/// The simulator's side: answers a request as one of the ways in which it may have gone, if one is accepted.
pub(crate) trait Model {
    /// The moment by which requests are made, µs since 1970.
    fn unix_us(&self) -> u64;
    fn answer(&mut self, request: &Request, accepts: &dyn Fn(&Reply) -> bool) -> Reply;
}

/// Runs the steps on both. The first difference, if any.
pub(crate) fn difference(
    coordinator: &dyn Coordinator,
    runtime: &dyn Asks,
    model: &mut dyn Model,
    steps: &[Step],
    detail: Detail,
) -> Option<String> {
    let (mut ours, mut theirs, mut numbers) = (Known::default(), Known::default(), Numbers::default());
    for step in steps {
        let unix_us = model.unix_us();
        let (Some(asked), Some(request)) = (step.request(&ours, unix_us), step.request(&theirs, unix_us))
        else {
            continue;
        };
        let resource = step.subject();
        let answer = runtime.ask(coordinator, &request);
        let (text, their_tokens) = seen(&answer, detail);
        let pairs = |reply: &Reply| -> Vec<(Token, Token)> {
            seen(reply, detail).1.into_iter().zip(their_tokens.iter().copied()).collect()
        };
        let fits = |reply: &Reply| {
            let (expected, our_tokens) = seen(reply, detail);
            expected == text && our_tokens.len() == their_tokens.len() && numbers.fit(resource, &pairs(reply))
        };
        let expected = model.answer(&asked, &fits);
        if !fits(&expected) {
            return Some(format!(
                "{request:?}\n  expected {expected:?}\n  answered {answer:?}\n  {numbers:?}"
            ));
        }
        if let (Reply::Acquired(Acquired::Granted(grant)), Reply::Acquired(Acquired::Granted(given))) =
            (&expected, &answer)
        {
            ours.tokens[resource] = Some(grant.token);
            theirs.tokens[resource] = Some(given.token);
        }
        if let (Some(id), Reply::Released(Released::Ended), Detail::Outcomes) =
            (step.claimant(), &answer, detail)
        {
            for known in [&mut ours, &mut theirs] {
                known.ended[usize::from(id)] = known.ended[usize::from(id)].wrapping_add(1);
            }
        }
        numbers.note(resource, &pairs(&expected));
    }
    None
}

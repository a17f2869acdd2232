//! The coordinator: every call runs as a task of its own, so that it comes to its end whoever stops waiting for it. A claim
//! that is granted when nobody waits any more is taken back at once.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use leasehold_core::{
    Call, Coordinator, Error, Kind, Resource, Ttl,
    profile::Profile,
    record::{Acquired, Inspection, Page, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
};
use redis::Value;
use tokio::sync::oneshot;

use super::{
    circle::{Circle, News, Patience, no_majority},
    claim::Attempt,
    end, keep, look,
    member::Weight,
    purge,
};
use crate::{
    coordinator::{
        mailbox::Mailbox,
        redis::{
            answer::{self, Made, Shown},
            op::Op,
        },
        rules,
    },
    fork,
};

/// New resources between two tidyings.
const TIDY_AFTER: usize = 32;
/// Names looked at in one tidying of a node: twice as many.
const SAMPLE: u64 = 64;

/// A coordinator of one namespace.
#[derive(Debug)]
pub(super) struct RedlockCoordinator {
    pub(super) profile: Profile,
    pub(super) circle: Arc<Circle>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) generation: u32,
}

impl RedlockCoordinator {
    /// Refuses to work in a forked child, where the connections are the parent's and nothing carries them.
    fn here(&self) -> Result<(), Error> {
        if fork::generation() == self.generation {
            return Ok(());
        }
        Err(Error::new(Kind::Unsupported, "the connections were made before this process was forked")
            .advise("a forked child must connect by itself"))
    }

    /// Runs a call on the coordinator's runtime. `forsaken` is given the answer when nobody waits for it any more.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
        forsaken: impl FnOnce(T) + Send + 'static,
    ) -> Result<T, Error> {
        self.here()?;
        let (tell, told) = oneshot::channel();
        self.circle.runtime.spawn(async move {
            if let Err(Ok(answer)) = tell.send(work.await) {
                forsaken(answer);
            }
        });
        told.await.unwrap_or_else(|_| {
            Err(Error::new(Kind::Unknown, "the call ended with the runtime of its connections"))
        })
    }

    fn at(&self, error: Error) -> Error {
        error.at(&self.profile.place)
    }

    async fn claim(&self, claim: Claim) -> Result<Acquired, Error> {
        claim.check()?;
        let (circle, again, own) = (Arc::clone(&self.circle), Arc::clone(&self.circle), claim.clone());
        let work = async move {
            if claim.queue {
                circle.listen().await;
            }
            let answer = Attempt::new(Arc::clone(&circle), claim.clone())?.run().await?;
            // After so many new names some are looked at, so those whose records have vanished do not pile up.
            if circle.grown.load(Ordering::Relaxed) >= TIDY_AFTER * circle.quorum.nodes() {
                circle.grown.store(0, Ordering::Relaxed);
                circle.runtime.spawn(tidy(Arc::clone(&circle)));
            }
            Ok(answer)
        };
        let forsaken = move |answer| {
            if let Acquired::Granted(grant) = answer
                && !grant.adopted
            {
                let (resource, lease_id) = (own.resource.clone(), own.lease_id);
                let back = Release { resource, lease_id, token: Some(grant.token), succeeded: false };
                let op = Op::release(&again.space, &Circle::name(&back.resource), &back);
                again.tell(0..again.members.len(), &op);
            }
        };
        self.run(work, forsaken).await
    }

    async fn make(&self, preparation: Preparation) -> Result<Prepared, Error> {
        let circle = Arc::clone(&self.circle);
        let Made { created, max_ttl, quarantine } = self.run(prepare(circle, preparation), drop).await?;
        Ok(Prepared { created, max_ttl, quarantine, place: self.profile.place.clone() })
    }
}

/// Makes the namespace on all nodes that can be reached, or changes its settings there.
async fn prepare(circle: Arc<Circle>, preparation: Preparation) -> Result<Made, Error> {
    if preparation.fresh {
        let each = look::shown(&circle, Op::look()).await?;
        // A node that knows the namespace speaks against those that may have forgotten it.
        if each.iter().any(|shown| shown.settled) {
            return Err(rules::not_fresh(circle.namespace.as_str()));
        }
        if each.len() < circle.quorum.nodes() {
            let what = format!(
                "{} of {} nodes can be asked whether the namespace is new",
                each.len(),
                circle.quorum.nodes()
            );
            return Err(Error::new(Kind::Unavailable, what).advise(
                "making it fresh needs all nodes; leave out --fresh to wait for its first quarantine instead",
            ));
        }
    }
    let (heard, failures) = prepare_all(&circle, preparation).await;
    if heard.len() < circle.quorum.majority() {
        let refusal = failures.iter().find(|error| !error.is_transient());
        return Err(match refusal {
            Some(refusal) if failures.len() > circle.quorum.minority() => refusal.clone(),
            _ if heard.is_empty() => no_majority(circle.quorum, 0, &failures),
            _ => no_majority(circle.quorum, heard.len(), &failures).unknown(),
        });
    }
    let each: Vec<Option<Duration>> = heard.iter().map(|made| made.quarantine).collect();
    let created = heard.iter().filter(|made| made.created).count() >= circle.quorum.majority();
    let max_ttl = heard.iter().map(|made| made.max_ttl).max().unwrap_or_default();
    Ok(Made { created, max_ttl, quarantine: look::quarantine(&circle, &each) })
}

async fn prepare_all(circle: &Circle, preparation: Preparation) -> (Vec<Made>, Vec<Error>) {
    let told = preparation.max_ttl.unwrap_or_default();
    let mut asked = circle.ask(&[Op::prepare(preparation)], Weight::Rest, Patience::UNHURRIED);
    let (mut heard, mut failures) = (Vec::new(), Vec::new());
    // Everybody who can be reached is to know it: nobody is late here.
    loop {
        match asked.next().await {
            News::From(_, reply) => {
                let value = reply.map(|told| told.answers.into_iter().next().unwrap_or(Value::Nil));
                match value.and_then(|value| answer::prepared(value, &circle.asked(told))) {
                    Ok(made) => heard.push(made),
                    Err(error) => failures.push(error),
                }
            }
            News::Late => {}
            News::Over | News::Silence => break,
        }
    }
    circle.linger(asked);
    (heard, failures)
}

/// Forgets, on every node, the names whose records have vanished there, as far as a look at some of them shows.
async fn tidy(circle: Arc<Circle>) {
    let mut asked = circle.ask(&[Op::sample(SAMPLE)], Weight::Claim, Patience::UNHURRIED);
    while let News::From(at, reply) = asked.next().await {
        let value = reply.ok().and_then(|told| told.answers.into_iter().next());
        if let Some(Ok(Shown { names, .. })) = value.map(answer::shown)
            && !names.is_empty()
        {
            let forget = names.iter().map(|name| Op::forget(&circle.space, name)).collect();
            let forgotten = circle.members[at].post(forget, Weight::Claim);
            // Nothing depends on it, and the next one tries again.
            circle.runtime.spawn(async move { drop(forgotten.await) });
        }
    }
}

/// The longest TTL that the nodes have on record: what most of them say.
pub(super) fn stored_max_ttl(each: &[Shown]) -> Option<Ttl> {
    let said = || each.iter().filter_map(|shown| shown.max_ttl);
    said().max_by_key(|&max_ttl| (said().filter(|&other| other == max_ttl).count(), max_ttl))
}

impl Coordinator for RedlockCoordinator {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(async move {
            let resource = claim.resource.clone();
            self.claim(claim).await.map_err(|error| self.at(error.on(&resource)))
        })
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        Box::pin(async move {
            let named: Vec<Resource> = renewals.iter().map(|renewal| renewal.resource.clone()).collect();
            let circle = Arc::clone(&self.circle);
            let renewed = async move { Ok(keep::renew(circle, renewals).await) };
            let answers = self.run(renewed, drop).await.map_err(|error| self.at(error))?;
            let told = answers.into_iter().zip(&named);
            Ok(told.map(|(answer, resource)| answer.map_err(|error| self.at(error.on(resource)))).collect())
        })
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(async move {
            let resource = release.resource.clone();
            let answer = self.run(end::release(Arc::clone(&self.circle), release), drop).await;
            answer.map_err(|error| self.at(error.on(&resource)))
        })
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        Box::pin(async move {
            let resource = revocation.resource.clone();
            let answer = self.run(end::revoke(Arc::clone(&self.circle), revocation), drop).await;
            answer.map_err(|error| self.at(error.on(&resource)))
        })
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        Box::pin(async move {
            let named = resource.clone();
            let seen = self.run(look::inspect(Arc::clone(&self.circle), resource), drop).await;
            // A look that was not answered has changed nothing.
            seen.map_err(|error| self.at(error.without_effect().on(&named)))
        })
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(async move {
            let page = self.run(look::list(Arc::clone(&self.circle), listing), drop).await;
            page.map_err(|error| self.at(error.without_effect()))
        })
    }

    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        Box::pin(async move {
            let step = self.run(purge::purge(Arc::clone(&self.circle), purge), drop).await;
            step.map_err(|error| self.at(error))
        })
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        Box::pin(async move { self.make(preparation).await.map_err(|error| self.at(error)) })
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(self.mailbox.next())
    }
}

//! The coordinator: requests to operations, answers back. What is done stands in the script; where, in `node` and
//! `cluster`.

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use leasehold_core::{
    Call, Coordinator, Error, Kind, Namespace, Resource, Ttl,
    profile::Profile,
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, MAX_LOCK_DELAY, Preparation, Purge, Release, Renewal, Revocation},
};
use redis::Value;
use tokio::runtime::Handle;

use super::{
    answer::{self, Asked, Claimed, Made, Seen, Shown},
    cluster::Cluster,
    failure::Failure,
    node::Node,
    op::Op,
    space::{Layout, Space},
    wake::Bell,
};
use crate::{coordinator::rules, fork};

/// Names read at a time while a list is made.
const NAMES: u64 = 256;
/// Names looked at in one tidying.
const SAMPLE: u64 = 64;

/// The servers of a namespace.
#[derive(Clone, Debug)]
pub(super) enum Servers {
    One(Node),
    Cluster(Arc<Cluster>),
}

/// A namespace on its servers, to send operations to.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    pub(super) servers: Servers,
    pub(super) layout: Arc<Layout>,
}

impl Desk {
    pub(super) async fn step(&self, shard: usize, ops: Vec<Op>) -> Result<Vec<Value>, Failure> {
        match &self.servers {
            Servers::One(node) => node.step(&self.layout.shards()[shard], ops).await,
            Servers::Cluster(cluster) => cluster.step(&self.layout, shard, ops).await,
        }
    }

    pub(super) async fn one(&self, shard: usize, op: Op) -> Result<Value, Error> {
        let answers = self.step(shard, vec![op]).await.map_err(|failure| failure.error)?;
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }

    fn space(&self, shard: usize) -> &Space {
        &self.layout.shards()[shard]
    }

    /// Forgets the names of this shard whose records have vanished, as far as a look at some of them shows.
    async fn tidy(self, shard: usize) -> Result<(), Error> {
        let Shown { names, .. } = answer::shown(self.one(shard, Op::sample(SAMPLE)).await?)?;
        self.forget(shard, &names).await
    }

    async fn forget(&self, shard: usize, names: &[String]) -> Result<(), Error> {
        let ops = names.iter().map(|name| Op::forget(self.space(shard), name)).collect();
        self.step(shard, ops).await.map(drop).map_err(|failure| failure.error)
    }

    /// Which of these names have no record; they are forgotten, unless they are only asked for.
    async fn vanished(&self, shard: usize, names: Vec<String>, dry_run: bool) -> Result<Vec<String>, Error> {
        let op = |name: &String| {
            if dry_run {
                Op::inspect(self.space(shard), name, 0)
            } else {
                Op::forget(self.space(shard), name)
            }
        };
        let answers =
            self.step(shard, names.iter().map(op).collect()).await.map_err(|failure| failure.error)?;
        let mut vanished = Vec::new();
        for (name, answer) in names.into_iter().zip(answers) {
            let gone = if dry_run { !answer::seen(answer)?.known } else { answer::forgotten(answer)?.1 };
            vanished.extend(gone.then_some(name));
        }
        Ok(vanished)
    }
}

/// A coordinator of one namespace.
#[derive(Debug)]
pub(super) struct RedisCoordinator {
    pub(super) profile: Profile,
    pub(super) namespace: Namespace,
    /// The longest TTL that the URL names.
    pub(super) told: Option<Ttl>,
    pub(super) desk: Desk,
    pub(super) bell: Bell,
    pub(super) runtime: Handle,
    pub(super) generation: u32,
}

impl RedisCoordinator {
    /// Refuses to work in a forked child, where the connection is the parent's and nothing carries it.
    fn here(&self) -> Result<(), Error> {
        if fork::generation() == self.generation {
            return Ok(());
        }
        Err(Error::new(Kind::Unsupported, "the connection was made before this process was forked")
            .advise("a forked child must connect by itself"))
    }

    fn asked(&self, ttl: Ttl) -> Asked<'_> {
        Asked { ttl, told: self.told, namespace: self.namespace.as_str() }
    }

    fn at(&self, error: Error) -> Error {
        error.at(&self.profile.place)
    }

    async fn claim(&self, claim: &Claim) -> Result<Acquired, Error> {
        self.here()?;
        claim.check()?;
        let (shard, name) = self.desk.layout.place(&claim.resource);
        if claim.queue {
            self.bell.ready().await;
        }
        let op = Op::acquire(self.desk.space(shard), &name, claim, self.bell.address());
        let value = self.desk.one(shard, op).await?;
        let Claimed { answer, new, .. } = answer::acquired(value, &self.asked(claim.ttl))?;
        if matches!(answer, Acquired::Granted(_)) {
            self.bell.expect(claim.lease_id);
        }
        // One resource in 32 that are new: two names are then looked at for each that is made, so names whose records have
        // vanished do not pile up. Lease ids are random.
        if new && claim.lease_id.as_bytes()[0] < 8 {
            let tidying = self.desk.clone().tidy(shard);
            // Nothing depends on it, and the next one tries again.
            self.runtime.spawn(async move { drop(tidying.await) });
        }
        Ok(answer)
    }

    /// Renews, the renewals of each shard in one message.
    async fn extend(&self, renewals: Vec<Renewal>) -> Result<Vec<Result<Renewed, Error>>, Error> {
        self.here()?;
        let mut shards: BTreeMap<usize, (Vec<usize>, Vec<Op>)> = BTreeMap::new();
        let mut answers: Vec<Option<Result<Renewed, Error>>> = Vec::new();
        for (at, renewal) in renewals.iter().enumerate() {
            if renewal.lock_delay > MAX_LOCK_DELAY {
                answers.push(Some(Err(Error::new(Kind::Invalid, "lock-delay must be at most 1h"))));
                continue;
            }
            answers.push(None);
            let (shard, name) = self.desk.layout.place(&renewal.resource);
            let (places, ops) = shards.entry(shard).or_default();
            places.push(at);
            ops.push(Op::renew(self.desk.space(shard), &name, renewal));
        }
        let single = shards.len() == 1;
        let sent = shards
            .into_iter()
            .map(|(shard, (places, ops))| async move { (places, self.desk.step(shard, ops).await) });
        for (places, outcome) in futures_util::future::join_all(sent).await {
            match outcome {
                Ok(values) => {
                    for (at, value) in places.into_iter().zip(values) {
                        answers[at] = Some(answer::renewed(value, &self.asked(renewals[at].ttl)));
                    }
                }
                Err(failure) if single => return Err(failure.error),
                Err(failure) => {
                    for at in places {
                        answers[at] = Some(Err(failure.error.clone()));
                    }
                }
            }
        }
        let named = |(answer, renewal): (Option<Result<Renewed, Error>>, &Renewal)| {
            let missing = || Err(Error::new(Kind::Unknown, "the server did not answer every renewal"));
            answer.unwrap_or_else(missing).map_err(|error| self.at(error.on(&renewal.resource)))
        };
        Ok(answers.into_iter().zip(&renewals).map(named).collect())
    }

    async fn end(&self, release: &Release) -> Result<Released, Error> {
        self.here()?;
        let (shard, name) = self.desk.layout.place(&release.resource);
        answer::released(self.desk.one(shard, Op::release(self.desk.space(shard), &name, release)).await?)
    }

    async fn take_away(&self, revocation: &Revocation) -> Result<Revoked, Error> {
        self.here()?;
        let (shard, name) = self.desk.layout.place(&revocation.resource);
        answer::revoked(self.desk.one(shard, Op::revoke(self.desk.space(shard), &name, revocation)).await?)
    }

    async fn look(&self, resource: &Resource) -> Result<Inspection, Error> {
        self.here()?;
        let (shard, name) = self.desk.layout.place(resource);
        let op = Op::inspect(self.desk.space(shard), &name, Inspection::MAX_WAITERS);
        Ok(inspection(resource.clone(), answer::seen(self.desk.one(shard, op).await?)?))
    }

    async fn past(&self, resource: &Resource) -> Result<Vec<Past>, Error> {
        self.here()?;
        let (shard, name) = self.desk.layout.place(resource);
        let op = Op::history(self.desk.space(shard), &name);
        let mut past = answer::history(self.desk.one(shard, op).await?)?;
        past.truncate(Past::KEPT);
        Ok(past)
    }

    async fn page(&self, listing: &Listing) -> Result<Page, Error> {
        self.here()?;
        rules::check_listing(listing)?;
        let shards = 0..self.desk.layout.shards().len();
        let parts = try_join_all(shards.map(|shard| self.part(shard, listing))).await?;
        let quarantine = parts.iter().filter_map(|(_, quarantine)| *quarantine).max();
        let mut items: Vec<(String, Inspection)> = parts.into_iter().flat_map(|(items, _)| items).collect();
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        let more = items.len() > usize::from(listing.limit);
        items.truncate(usize::from(listing.limit));
        Ok(Page { items: items.into_iter().map(|(_, item)| item).collect(), more, quarantine })
    }

    /// The part of a page that one shard has, and one more where there are more.
    async fn part(
        &self,
        shard: usize,
        listing: &Listing,
    ) -> Result<(Vec<(String, Inspection)>, Option<Duration>), Error> {
        let prefix = Resource::new(&listing.prefix).map(|prefix| prefix.encode()).unwrap_or_default();
        let after = listing.after.as_ref().map(Resource::encode);
        let mut from = match after {
            Some(after) if after >= prefix => format!("({after}"),
            _ if prefix.is_empty() => "-".to_owned(),
            _ => format!("[{prefix}"),
        };
        // Every encoded name is ASCII: `~` sorts behind all that may follow the prefix.
        let to = if prefix.is_empty() { "+".to_owned() } else { format!("({prefix}~") };
        let wanted = usize::from(listing.limit) + 1;
        let mut items = Vec::new();
        loop {
            let Shown { names, quarantine, .. } =
                answer::shown(self.desk.one(shard, Op::names(&from, &to, NAMES)).await?)?;
            let whole = names.len() as u64 == NAMES;
            if let Some(last) = names.last() {
                from = format!("({last}");
            }
            self.describe(shard, names, listing.free_too, &mut items).await?;
            if !whole || items.len() >= wanted {
                items.truncate(wanted);
                return Ok((items, quarantine));
            }
        }
    }

    async fn describe(
        &self,
        shard: usize,
        names: Vec<String>,
        free_too: bool,
        items: &mut Vec<(String, Inspection)>,
    ) -> Result<(), Error> {
        let ops = names.iter().map(|name| Op::inspect(self.desk.space(shard), name, 0)).collect();
        let values = self.desk.step(shard, ops).await.map_err(|failure| failure.error)?;
        for (name, value) in names.into_iter().zip(values) {
            let seen = answer::seen(value)?;
            if seen.known && (free_too || seen.record.is_some() || seen.waiting > 0) {
                let resource = answer::named(&name)?;
                items.push((name, inspection(resource, seen)));
            }
        }
        Ok(())
    }

    /// Records vanish by themselves; their names are what is left. A step takes the next names of each shard, as far as all
    /// have told theirs.
    async fn purge_step(&self, purge: &Purge) -> Result<Purged, Error> {
        self.here()?;
        let from = purge.after.as_ref().map_or("-".to_owned(), |after| format!("({}", after.encode()));
        let shards = 0..self.desk.layout.shards().len();
        let told = shards.map(|shard| {
            let names = self.desk.one(shard, Op::names(&from, "+", NAMES));
            async move { answer::shown(names.await?) }
        });
        let lists: Vec<Vec<String>> =
            try_join_all(told).await?.into_iter().map(|Shown { names, .. }| names).collect();
        let edge = answer::edge(&lists, NAMES);
        let mut purged =
            Purged { next: edge.as_deref().map(answer::named).transpose()?, ..Purged::default() };
        for (shard, mut names) in lists.into_iter().enumerate() {
            names.retain(|name| edge.as_ref().is_none_or(|edge| name <= edge));
            purged.looked_at += names.len() as u64;
            for name in self.desk.vanished(shard, names, purge.dry_run).await? {
                purged.idle.push(answer::named(&name)?);
            }
        }
        Ok(purged)
    }

    async fn make(&self, preparation: Preparation) -> Result<Prepared, Error> {
        self.here()?;
        let mut whole: Option<Made> = None;
        for shard in 0..self.desk.layout.shards().len() {
            let made = match self.make_shard(shard, preparation).await {
                // The first shard decides whether the namespace may be made fresh. One of the others that is in use already
                // keeps its quarantine.
                Err(error) if shard > 0 && error.kind() == Kind::Invalid => {
                    self.make_shard(shard, Preparation { fresh: false, ..preparation }).await?
                }
                other => other?,
            };
            whole = Some(match whole {
                None => made,
                Some(so_far) => Made {
                    created: so_far.created && made.created,
                    max_ttl: made.max_ttl,
                    quarantine: so_far.quarantine.max(made.quarantine),
                },
            });
        }
        let Some(Made { created, max_ttl, quarantine }) = whole else {
            return Err(Error::new(Kind::Corrupt, "a namespace has no shard"));
        };
        Ok(Prepared { created, max_ttl, quarantine, place: self.profile.place.clone() })
    }

    async fn make_shard(&self, shard: usize, preparation: Preparation) -> Result<Made, Error> {
        let value = self.desk.one(shard, Op::prepare(preparation)).await?;
        answer::prepared(value, &self.asked(preparation.max_ttl.unwrap_or_default()))
    }
}

fn inspection(resource: Resource, seen: Seen) -> Inspection {
    let Seen { record, last_token, last_end, last_success_us, waiters, waiting, known: _ } = seen;
    Inspection { resource, record, last_token, last_end, last_success_us, waiters, waiting }
}

impl Coordinator for RedisCoordinator {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        Box::pin(async move { self.claim(&claim).await.map_err(|error| self.at(error.on(&claim.resource))) })
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        Box::pin(async move { self.extend(renewals).await.map_err(|error| self.at(error)) })
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(
            async move { self.end(&release).await.map_err(|error| self.at(error.on(&release.resource))) },
        )
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        Box::pin(async move {
            self.take_away(&revocation).await.map_err(|error| self.at(error.on(&revocation.resource)))
        })
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        Box::pin(async move {
            // A look that was not answered has changed nothing.
            let seen = self.look(&resource).await.map_err(Error::without_effect);
            seen.map_err(|error| self.at(error.on(&resource)))
        })
    }

    fn history(&self, resource: Resource) -> Call<'_, Vec<Past>> {
        Box::pin(async move {
            let past = self.past(&resource).await.map_err(Error::without_effect);
            past.map_err(|error| self.at(error.on(&resource)))
        })
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(async move { self.page(&listing).await.map_err(|error| self.at(error.without_effect())) })
    }

    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        Box::pin(async move { self.purge_step(&purge).await.map_err(|error| self.at(error)) })
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        Box::pin(async move { self.make(preparation).await.map_err(|error| self.at(error)) })
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(self.bell.next())
    }
}

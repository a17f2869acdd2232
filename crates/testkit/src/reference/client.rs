//! One client of the reference engine: a connection of its own, with wakes of its own.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, Weak},
    task::Poll,
};

use leasehold_core::{
    Call, Coordinator, Error, Kind, LeaseId, Resource,
    profile::{Capabilities, Guarantee, Profile, Promise, QueueOrder},
    record::{Acquired, Inspection, Page, Past, Prepared, Purged, Released, Renewed, Revoked, Wake},
    request::{Claim, Listing, Preparation, Purge, Release, Renewal, Revocation},
    slot::Now,
    window::ClockRule,
};

use super::{Loss, Mailbox, Rules, Seat, Space, State, lock};

/// A connection to a namespace of a [`Reference`](super::Reference).
#[derive(Debug)]
pub struct Client {
    space: Arc<Space>,
    mailbox: Arc<Mailbox>,
    profile: Profile,
    loss: Option<Loss>,
}

impl Client {
    pub(super) fn new(space: Arc<Space>, loss: Option<Loss>) -> Self {
        let profile = Profile {
            engine: "reference",
            place: "reference:".to_owned(),
            capabilities: CAPABILITIES,
            clock: ClockRule::Boot,
            max_ttl: lock(&space.state).max_ttl,
            guarantee: Guarantee {
                windows: Promise::Yes("one process"),
                tokens: Promise::Yes("one process"),
                after_failover: "nothing outlives the process",
                caveat: "for tests only",
            },
        };
        Self { space, mailbox: Arc::default(), profile, loss }
    }

    /// Runs one atomic step between two points at which the caller may go away.
    async fn step<T>(
        &self,
        step: impl FnOnce(&mut State, &dyn Rules, Now) -> Result<T, Error>,
    ) -> Result<T, Error> {
        yield_once().await;
        if self.loss == Some(Loss::Request) {
            return Err(Error::new(self.space.rules.lost(Loss::Request), "the request was lost"));
        }
        let answer = {
            let mut state = lock(&self.space.state);
            step(&mut state, &*self.space.rules, self.space.now())
        };
        yield_once().await;
        if self.loss == Some(Loss::Answer) {
            return Err(Error::new(self.space.rules.lost(Loss::Answer), "the answer was lost"));
        }
        answer
    }

    /// Wakes for this lease id come to this client from now on.
    fn subscribe(&self, state: &mut State, lease_id: LeaseId) {
        if state.mail.len() >= 10_000 {
            state.mail.retain(|_, mailbox| mailbox.strong_count() > 0);
        }
        state.mail.insert(lease_id, Arc::downgrade(&self.mailbox));
    }
}

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    queue: QueueOrder::Fifo,
    wakes: true,
    once_per: true,
    history: true,
    ttl_step_ms: NonZeroU32::MIN,
};

impl State {
    /// The record of a resource, changed as a whole or, when `change` fails, not at all.
    fn change<T>(
        &mut self,
        rules: &dyn Rules,
        resource: &Resource,
        change: impl FnOnce(&mut Seat) -> Result<T, Error>,
    ) -> Result<(T, Seat), Error> {
        let key = rules.key(resource);
        let mut seat = self.seats.get(&key).cloned().unwrap_or_default();
        let before = seat.slot.held.clone();
        let answer = change(&mut seat).map_err(|error| error.on(resource))?;
        rules.remember(&mut seat, before.as_ref());
        self.seats.insert(key, seat.clone());
        Ok((answer, seat))
    }
}

impl Coordinator for Client {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, claim: Claim) -> Call<'_, Acquired> {
        let (space, asked) = (Arc::clone(&self.space), claim.clone());
        let answer = self.step(move |state, rules, now| {
            claim.check()?;
            rules.check_ttl(claim.ttl, state.max_ttl)?;
            let quarantined = state.quarantine(rules, now);
            let (answer, mut seat) =
                state.change(rules, &claim.resource, |seat| rules.acquire(seat, &claim, quarantined, now))?;
            self.subscribe(state, claim.lease_id);
            let next = rules.wake_after(&mut seat, &answer, now);
            state.deliver(rules.wake(&seat, next, None));
            Ok(answer)
        });
        Box::pin(async move {
            let mut asker = Asker { space, claim: Some(asked) };
            let answer = answer.await;
            asker.claim = None;
            answer
        })
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Call<'_, Vec<Result<Renewed, Error>>> {
        Box::pin(self.step(move |state, rules, now| {
            let quarantined = state.quarantine(rules, now);
            let max_ttl = state.max_ttl;
            let answers = renewals.iter().map(|renewal| {
                rules.check_ttl(renewal.ttl, max_ttl)?;
                let change = |seat: &mut Seat| Ok(rules.renew(seat, renewal, quarantined, now));
                state.change(rules, &renewal.resource, change).map(|(answer, _)| answer)
            });
            let answers = answers.collect();
            Ok(rules.batch(answers))
        }))
    }

    fn release(&self, release: Release) -> Call<'_, Released> {
        Box::pin(self.step(move |state, rules, now| {
            let change = |seat: &mut Seat| Ok(rules.release(seat, &release, now));
            let (freed, seat) = state.change(rules, &release.resource, change)?;
            state.deliver(rules.wake(&seat, freed.wake, None));
            Ok(freed.answer)
        }))
    }

    fn revoke(&self, revocation: Revocation) -> Call<'_, Revoked> {
        Box::pin(self.step(move |state, rules, now| {
            let change = |seat: &mut Seat| Ok(rules.revoke(seat, &revocation, now));
            let (freed, seat) = state.change(rules, &revocation.resource, change)?;
            let holder = match &freed.answer {
                Revoked::Ended { record, .. } => Some(record.lease_id),
                _ => None,
            };
            state.deliver(rules.wake(&seat, freed.wake, holder));
            Ok(freed.answer)
        }))
    }

    fn inspect(&self, resource: Resource) -> Call<'_, Inspection> {
        Box::pin(self.step(move |state, rules, now| {
            let seat = state.seats.get(&rules.key(&resource)).cloned().unwrap_or_default();
            Ok(rules.inspect(&resource, &seat, now))
        }))
    }

    fn history(&self, resource: Resource) -> Call<'_, Vec<Past>> {
        Box::pin(self.step(move |state, rules, now| {
            let seat = state.seats.get(&rules.key(&resource)).cloned().unwrap_or_default();
            Ok(rules.history(&seat, now))
        }))
    }

    fn list(&self, listing: Listing) -> Call<'_, Page> {
        Box::pin(self.step(move |state, rules, now| {
            if listing.limit == 0 || listing.limit > Listing::MAX {
                return Err(Error::new(Kind::Invalid, "a page has 1 to 1000 resources"));
            }
            let seats: &BTreeMap<Resource, Seat> = &state.seats;
            let show = |(resource, seat): (&Resource, &Seat)| {
                let mut item = rules.inspect(resource, seat, now);
                item.waiters.clear();
                item
            };
            let (items, more) = rules.page(seats.iter().map(show).collect(), &listing);
            Ok(Page { items, more, quarantine: state.quarantine(rules, now) })
        }))
    }

    fn purge(&self, purge: Purge) -> Call<'_, Purged> {
        Box::pin(self.step(move |state, rules, now| {
            let all: Vec<Resource> = state.seats.keys().cloned().collect();
            let looked_at: Vec<Resource> = all
                .into_iter()
                .filter(|name| purge.after.as_ref().is_none_or(|after| name > after))
                .collect();
            let idle = |name: &&Resource| state.seats.get(*name).is_some_and(|seat| rules.is_idle(seat, now));
            let idle: Vec<Resource> = looked_at.iter().filter(idle).cloned().collect();
            if rules.purges(&purge) {
                state.seats.retain(|name, _| !idle.contains(name));
            }
            Ok(Purged { looked_at: looked_at.len() as u64, idle, next: None })
        }))
    }

    fn prepare(&self, preparation: Preparation) -> Call<'_, Prepared> {
        Box::pin(self.step(move |state, rules, now| {
            rules.check_preparation(preparation)?;
            state.max_ttl = preparation.max_ttl.unwrap_or(state.max_ttl);
            Ok(Prepared {
                created: false,
                max_ttl: state.max_ttl,
                quarantine: state.quarantine(rules, now),
                place: self.profile.place.clone(),
            })
        }))
    }

    fn next_wake(&self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(async {
            let wake = poll_fn(|context| self.mailbox.poll(context)).await;
            if !self.space.rules.hands_wakes_over_at_once() {
                yield_once().await;
            }
            wake
        })
    }
}

/// Notices when whoever asked goes away before the answer.
struct Asker {
    space: Arc<Space>,
    claim: Option<Claim>,
}

impl Drop for Asker {
    fn drop(&mut self) {
        let Some(claim) = &self.claim else { return };
        let rules = &*self.space.rules;
        if let Some(seat) = lock(&self.space.state).seats.get_mut(&rules.key(&claim.resource)) {
            rules.unheard(seat, claim);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mailbox: Weak<Mailbox> = Arc::downgrade(&self.mailbox);
        lock(&self.space.state).mail.retain(|_, other| !other.ptr_eq(&mailbox));
    }
}

async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

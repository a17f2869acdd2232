//! All nodes of a namespace, and how they are asked together.
//!
//! Everything is sent to all of them at once, and whoever has heard enough goes on: a node that is late holds up nobody. What
//! was sent stays sent; its answer is waited for in the background, because what nobody waits for is not sent if it has not
//! been.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, atomic::AtomicUsize},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use leasehold_core::{Error, LeaseId, Namespace, Resource, Token, Ttl, quorum::Quorum};
use tokio::{
    runtime::Handle,
    time::{Sleep, sleep, timeout},
};

use super::{
    lead::Lead,
    member::{Member, Reply, Weight},
};
use crate::{
    coordinator::redis::{
        answer::Asked,
        op::Op,
        space::{Layout, Space},
        wake::Address,
    },
    random::Jitter,
    sync::lock,
};

/// Of the TTL, this part is the most that a late node is waited for by those who have heard from a majority, and for whom it
/// matters little what the node says. Where it decides, it is waited for unless it seems to be stopped.
const LATE_SHARE: u32 = 20;
/// The bounds of that time.
const LATE: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];
/// So long is waited for a majority at all: above the time in which a node that cannot be reached is given up.
const OVER: Duration = Duration::from_millis(1_500);
/// How long answers are waited for in the background: longer than any connection waits for one.
const LINGER: Duration = Duration::from_secs(8);
/// So many claims that were taken back are remembered (ours: those of minutes; a message is under way for milliseconds).
const MAX_WITHDRAWN: usize = 4_096;
/// How long a claim that queues waits for subscriptions.
const LISTEN: Duration = Duration::from_millis(100);

/// How long the nodes have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// After this nobody waits for a node that is late, if a majority has answered.
    late: Duration,
    /// After this nobody waits at all.
    over: Duration,
}

impl Patience {
    /// For a request about a lease with this TTL.
    pub(super) fn of(ttl: Ttl) -> Self {
        Self { late: (ttl.as_duration() / LATE_SHARE).clamp(LATE[0], LATE[1]), over: OVER }
    }

    /// For a request that is about no TTL.
    pub(super) const UNHURRIED: Self = Self { late: LATE[1], over: OVER };
}

/// What comes next from the nodes.
#[derive(Debug)]
pub(super) enum News {
    /// This node has answered, or will not.
    From(usize, Reply),
    /// Whoever has not answered is late.
    Late,
    /// The time is over.
    Over,
    /// Everybody has answered.
    Silence,
}

type Flying = Pin<Box<dyn Future<Output = (usize, Reply)> + Send>>;

/// Requests under way to several nodes.
pub(super) struct Gathering {
    flying: FuturesUnordered<Flying>,
    /// First until those who have not answered are late, then until the time is over.
    timer: Pin<Box<Sleep>>,
    patience: Patience,
    is_late: bool,
}

impl Gathering {
    /// The next answer, or the news that there is none.
    pub(super) async fn next(&mut self) -> News {
        tokio::select! {
            biased;
            answer = self.flying.next() => match answer {
                Some((at, reply)) => News::From(at, reply),
                None => News::Silence,
            },
            () = &mut self.timer => {
                if self.is_late {
                    return News::Over;
                }
                self.is_late = true;
                self.timer.set(sleep(self.patience.over.saturating_sub(self.patience.late)));
                News::Late
            }
        }
    }

    /// Hears all that still comes, however long it takes.
    pub(super) async fn drain(mut self, mut each: impl FnMut(usize, Reply)) {
        let all = async {
            while let Some((at, reply)) = self.flying.next().await {
                each(at, reply);
            }
        };
        // What has not come by then will not.
        let _ = timeout(LINGER, all).await;
    }
}

/// The nodes of a namespace.
#[derive(Debug)]
pub(super) struct Circle {
    pub(super) quorum: Quorum,
    pub(super) members: Vec<Arc<Member>>,
    pub(super) space: Arc<Space>,
    pub(super) namespace: Namespace,
    /// The longest TTL that the URL names.
    pub(super) told: Option<Ttl>,
    /// Where this client is woken, at every node.
    pub(super) address: Address,
    pub(super) jitter: Jitter,
    pub(super) lead: Lead,
    /// How many names nodes have added to their lists since some were last looked at.
    pub(super) grown: AtomicUsize,
    /// Claims that were taken back, and under which tokens.
    pub(super) withdrawn: Mutex<HashMap<LeaseId, Vec<Token>>>,
    pub(super) runtime: Handle,
}

impl Circle {
    pub(super) fn asked(&self, ttl: Ttl) -> Asked<'_> {
        Asked { ttl, told: self.told, namespace: self.namespace.as_str() }
    }

    /// The only shard of the namespace, and a resource's name in it.
    pub(super) fn name(resource: &Resource) -> String {
        resource.encode()
    }

    pub(super) fn space_of(namespace: &Namespace, told: Option<Ttl>) -> Option<Arc<Space>> {
        Layout::part(namespace, told).shards().first().cloned()
    }

    /// Sends the same to all.
    pub(super) fn ask(&self, ops: &[Op], weight: Weight, patience: Patience) -> Gathering {
        self.ask_some(0..self.members.len(), weight, patience, |_| ops.to_vec())
    }

    /// Sends to some, each what is meant for it.
    pub(super) fn ask_some(
        &self,
        whom: impl IntoIterator<Item = usize>,
        weight: Weight,
        patience: Patience,
        what: impl Fn(usize) -> Vec<Op>,
    ) -> Gathering {
        let posted = whom.into_iter().map(|at| {
            let answer = self.members[at].post(what(at), weight);
            Box::pin(async move { (at, answer.await) }) as Flying
        });
        Gathering {
            flying: posted.collect(),
            timer: Box::pin(sleep(patience.late)),
            patience,
            is_late: false,
        }
    }

    /// Sends to some, and lets the answers come as they may.
    pub(super) fn tell(&self, whom: impl IntoIterator<Item = usize>, op: &Op) {
        let told = self.ask_some(whom, Weight::Rest, Patience::UNHURRIED, |_| vec![op.clone()]);
        self.linger(told);
    }

    /// Sees to it that what was asked is sent, although the outcome is clear without it.
    pub(super) fn linger(&self, asked: Gathering) {
        if !asked.flying.is_empty() {
            self.runtime.spawn(asked.drain(|_, _| ()));
        }
    }

    /// The nodes that seem to be stopped.
    pub(super) fn stopped(&self) -> Vec<usize> {
        let each = self.members.iter().enumerate();
        each.filter(|(_, member)| member.seems_stopped()).map(|(at, _)| at).collect()
    }

    /// The tokens under which attempts of this claim were taken back.
    pub(super) fn taken_back(&self, lease_id: LeaseId) -> Vec<Token> {
        lock(&self.withdrawn).get(&lease_id).cloned().unwrap_or_default()
    }

    pub(super) fn remember_taken_back(&self, lease_id: LeaseId, tokens: &[Token]) {
        let mut withdrawn = lock(&self.withdrawn);
        if withdrawn.len() >= MAX_WITHDRAWN {
            withdrawn.clear();
        }
        withdrawn.insert(lease_id, tokens.to_vec());
    }

    /// Waits until wakes arrive from a majority, or for a moment.
    pub(super) async fn listen(&self) {
        let mut ready: FuturesUnordered<_> =
            self.members.iter().map(|member| member.bell().ready()).collect();
        let enough = async {
            for _ in 0..self.quorum.majority() {
                ready.next().await;
            }
        };
        // Wakes are hints: whoever misses one looks again in time.
        let _ = timeout(LISTEN, enough).await;
    }

    /// A share of a duration, by chance.
    pub(super) fn share(&self, whole: Duration) -> Duration {
        let part = u32::try_from(self.jitter.draw() >> 44).unwrap_or_default();
        whole * part / (1 << 20)
    }
}

/// Why there was no majority: what those that failed said, in a few words.
pub(super) fn no_majority(quorum: Quorum, answered: usize, failures: &[Error]) -> Error {
    let (nodes, majority) = (quorum.nodes(), quorum.majority());
    let first = failures.first().map(|error| format!(" ({})", error.what())).unwrap_or_default();
    Error::new(
        leasehold_core::Kind::Unavailable,
        format!("{answered} of {nodes} nodes have answered in time, and {majority} decide{first}"),
    )
    .advise("see which of the nodes run and can be reached from here")
}

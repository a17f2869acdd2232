//! One of the nodes: its connection, its wakes, and whether it takes part.
//!
//! A node takes part once it has been looked at: it is a server on which leases are what they are said to be, and none that
//! takes part already under another name. Until then, and whenever it is too far behind, a request to it fails at once as not
//! sent: the others are not to wait for it, and nothing is to pile up.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::try_join_all;
use leasehold_core::{Error, Ttl};
use redis::Value;

use super::super::{
    mailbox::Mailbox,
    redis::{
        answer,
        dial::Login,
        facts::Facts,
        failure::Failure,
        node::{MAX_OPS, Node},
        op::Op,
        space::Space,
        target::Target,
        wake::{Address, Bell},
    },
};
use crate::{address::Host, clock, sync::lock};

/// How long what is sent to a node waits for a connection. Nobody waits for it who has a majority without it.
const PATIENCE: Duration = Duration::from_secs(1);
/// A node that has not answered so many requests gets no new claims (ours: a few milliseconds' worth of a busy client).
const MAX_CLAIMS_BEHIND: usize = 1_024;
/// One that has not answered so many gets nothing more, not even what ends something: time ends it as well.
const MAX_BEHIND: usize = 8_192;
/// A node that has owed an answer for so long is taken for stopped: nobody waits for it who can do without (ours: many times what
/// an answer takes on a machine that is overloaded).
const STOPPED_US: u64 = 1_000_000;

/// What a node has answered.
#[derive(Debug)]
pub(super) struct Told {
    /// The node's clock, µs, when it answered the first of the operations.
    pub(super) now_us: u64,
    /// One answer per operation.
    pub(super) answers: Vec<Value>,
}

/// A node's answer, or why there is none.
pub(super) type Reply = Result<Told, Error>;

/// How much a request matters when a node is behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weight {
    /// Makes something new.
    Claim,
    /// Keeps or ends something.
    Rest,
}

/// Whether a node takes part.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// Nobody has reached it yet.
    Unseen,
    /// It does.
    Accepted,
    /// It does not, and this is why.
    Refused(Error),
}

/// One node.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) host: Host,
    node: Node,
    bell: Bell,
    space: Arc<Space>,
    standing: Mutex<Standing>,
    /// Which run of a server the name led to when it was looked at.
    run_id: Mutex<String>,
    behind: AtomicUsize,
    /// When the first request was sent that has not been answered, nor any after it: this machine's clock, µs; 0 for none.
    owes_since_us: AtomicU64,
}

impl Member {
    /// A node that is connected to when it is first needed. Its connection lives on the runtime that polls this.
    pub(super) fn new(
        host: Host,
        login: &Login,
        space: &Arc<Space>,
        address: Address,
        mailbox: &Arc<Mailbox>,
    ) -> Self {
        let target = Target::Fixed(host.clone(), login.clone());
        let node = Node::idle(target.clone(), PATIENCE);
        let bell = Bell::hang_at(address, Arc::clone(mailbox), target, node.leads_to());
        let (standing, behind) = (Mutex::new(Standing::Unseen), AtomicUsize::new(0));
        let owes_since_us = AtomicU64::new(0);
        let (space, run_id) = (Arc::clone(space), Mutex::default());
        Self { host, node, bell, space, standing, run_id, behind, owes_since_us }
    }

    /// What the server says about itself.
    pub(super) async fn facts(&self) -> Result<Facts, Failure> {
        Facts::of(&self.node).await
    }

    /// The server's clock, µs since 1970, and the namespace's longest TTL as this node has it. For a node that takes no part
    /// as well.
    pub(super) async fn clock_and_bound(&self) -> Result<(u64, Option<Ttl>), Error> {
        let (now_us, answers) =
            self.node.post(&self.space, vec![Op::look()]).await.map_err(|failure| failure.error)?;
        let shown = answer::shown(answers.into_iter().next().unwrap_or(Value::Nil))?;
        Ok((now_us, shown.max_ttl))
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(super) fn set_run_id(&self, run_id: &str) {
        run_id.clone_into(&mut lock(&self.run_id));
    }

    pub(super) fn has_run_id(&self, run_id: &str) -> bool {
        *lock(&self.run_id) == run_id
    }

    pub(super) fn standing(&self) -> Standing {
        lock(&self.standing).clone()
    }

    pub(super) fn set_standing(&self, standing: Standing) {
        *lock(&self.standing) = standing;
    }

    /// True when the node has answered nothing for so long that it seems to be stopped, and not only slow.
    pub(super) fn seems_stopped(&self) -> bool {
        let since_us = self.owes_since_us.load(Ordering::Relaxed);
        since_us > 0 && clock::boot_us().saturating_sub(since_us) > STOPPED_US
    }

    /// Sends operations, in their place in the order at once, before this is waited for. What nobody waits for any more is
    /// not sent if it has not been.
    pub(super) fn post(
        self: &Arc<Self>,
        ops: Vec<Op>,
        weight: Weight,
    ) -> impl Future<Output = Reply> + Send + use<> {
        let sent = self.admits(weight).map(|()| {
            let counted = Behind::one(self);
            // Fails when it owes an answer already: it is the first of them that counts.
            let (none, now_us) = (0, clock::boot_us());
            let _ = self.owes_since_us.compare_exchange(none, now_us, Ordering::Relaxed, Ordering::Relaxed);
            let parts: Vec<_> =
                chunks(ops).into_iter().map(|part| self.node.post(&self.space, part)).collect();
            (counted, parts)
        });
        let member = Arc::clone(self);
        async move {
            let (_counted, parts) = sent?;
            let parts = try_join_all(parts).await.map_err(|failure| named(&failure.error, &member.host))?;
            member.owes_since_us.store(0, Ordering::Relaxed);
            // The earliest of the times: whoever counts from it does not count too long.
            let now_us = parts.iter().map(|(now_us, _)| *now_us).min().unwrap_or_default();
            Ok(Told { now_us, answers: parts.into_iter().flat_map(|(_, answers)| answers).collect() })
        }
    }

    fn admits(&self, weight: Weight) -> Result<(), Error> {
        let unsent = |what: &str| named(&Failure::unsent(what).error, &self.host);
        match &*lock(&self.standing) {
            Standing::Accepted => {}
            Standing::Unseen => return Err(unsent("the server has not been reached yet")),
            Standing::Refused(error) => {
                return Err(unsent(&format!("the server takes no part, because {}", error.what())));
            }
        }
        let limit = match weight {
            Weight::Claim => MAX_CLAIMS_BEHIND,
            Weight::Rest => MAX_BEHIND,
        };
        if self.behind.load(Ordering::Relaxed) < limit {
            return Ok(());
        }
        Err(unsent("the server is too far behind with its answers"))
    }
}

/// An error of one node, with its name.
pub(super) fn named(error: &Error, host: &Host) -> Error {
    let renamed = Error::new(error.kind(), format!("{host}: {}", error.what()));
    match error.advice() {
        Some(advice) => renamed.advise(advice.to_owned()),
        None => renamed,
    }
}

fn chunks(mut ops: Vec<Op>) -> Vec<Vec<Op>> {
    let mut parts = Vec::with_capacity(1);
    while ops.len() > MAX_OPS {
        let rest = ops.split_off(MAX_OPS);
        parts.push(std::mem::replace(&mut ops, rest));
    }
    parts.push(ops);
    parts
}

/// Counts a request that is under way.
#[derive(Debug)]
struct Behind(Arc<Member>);

impl Behind {
    fn one(member: &Arc<Member>) -> Self {
        member.behind.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(member))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.0.behind.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Connecting: every node is looked at before it takes part, now or when it can be reached.
//!
//! A majority is enough to begin with. The others are looked at again and again in the background; what speaks against one of
//! them keeps it out without keeping out the rest. Only a server that stands in the list twice is refused as a whole: with it the
//! majority would be none.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use leasehold_core::{Error, Kind, Namespace};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use super::{
    circle::{Circle, no_majority},
    coordinator::{RedlockCoordinator, stored_max_ttl},
    label, look,
    member::{Member, Standing, named},
    options::Options,
};
use crate::{
    coordinator::{
        mailbox::Mailbox,
        redis::{
            accept, dial::CONNECT_LIMIT, facts::Facts, op::Op, space::DEFAULT_MAX_TTL, wake::draw_address,
        },
    },
    fork,
    random::Jitter,
};

/// How long the others have once a majority was reached.
const GRACE: Duration = Duration::from_millis(250);
/// Between two looks at a node that takes no part.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// Connects to as many nodes as can be reached, at least a majority.
pub(super) async fn connect(options: Options, namespace: Namespace) -> Result<RedlockCoordinator, Error> {
    let mailbox = Arc::new(Mailbox::default());
    let circle = Arc::new(circle(&options, namespace, &mailbox)?);
    let met = meet_all(&circle).await?;
    let facts: Vec<Facts> = met.into_iter().map(|(_, facts)| facts).collect();
    for at in 0..circle.members.len() {
        if !matches!(circle.members[at].standing(), Standing::Accepted) {
            tokio::spawn(watch(Arc::downgrade(&circle), at));
        }
    }
    let stored = stored_max_ttl(&look::shown(&circle, Op::look()).await?);
    let max_ttl = options.max_ttl.or(stored).unwrap_or(DEFAULT_MAX_TTL);
    let profile = label::profile(&options, &facts, max_ttl);
    Ok(RedlockCoordinator { profile, circle, mailbox, generation: fork::generation() })
}

/// The nodes that the options name, none of which takes part yet.
pub(super) fn circle(
    options: &Options,
    namespace: Namespace,
    mailbox: &Arc<Mailbox>,
) -> Result<Circle, Error> {
    let (login, address) = (options.login()?, draw_address()?);
    let space = Circle::space_of(&namespace, options.max_ttl)
        .ok_or_else(|| Error::new(Kind::Corrupt, "a namespace has no place"))?;
    let hosts = options.hosts.iter();
    let members =
        hosts.map(|host| Arc::new(Member::new(host.clone(), &login, &space, address, mailbox))).collect();
    Ok(Circle {
        quorum: options.quorum,
        members,
        space,
        namespace,
        told: options.max_ttl,
        address,
        jitter: Jitter::seeded()?,
        lead: super::lead::Lead::default(),
        grown: std::sync::atomic::AtomicUsize::new(0),
        withdrawn: std::sync::Mutex::default(),
        runtime: Handle::current(),
    })
}

/// Looks at all nodes, until a majority takes part and the others have had their time.
pub(super) async fn meet_all(circle: &Arc<Circle>) -> Result<Vec<(usize, Facts)>, Error> {
    let (mut met, mut failures) = (Vec::new(), Vec::new());
    let mut looks: FuturesUnordered<_> = (0..circle.members.len()).map(|at| meet(circle, at)).collect();
    let all = async {
        loop {
            let enough = met.len() >= circle.quorum.majority();
            let next =
                if enough { timeout(GRACE, looks.next()).await.unwrap_or(None) } else { looks.next().await };
            match next {
                Some((at, Ok(facts))) => met.push((at, facts)),
                Some((_, Err(error))) if is_double(&error) => return Err(error),
                Some((_, Err(error))) => failures.push(error),
                None => return Ok(()),
            }
        }
    };
    // Whoever has not been reached by then counts as absent.
    timeout(CONNECT_LIMIT, all).await.unwrap_or(Ok(()))?;
    drop(looks);
    if met.len() >= circle.quorum.majority() {
        return Ok(met);
    }
    let refusals: Vec<&Error> = failures.iter().filter(|error| !error.is_transient()).collect();
    match refusals.first() {
        Some(refusal) if refusals.len() > circle.quorum.minority() => Err((*refusal).clone()),
        _ => Err(no_majority(circle.quorum, met.len(), &failures)),
    }
}

async fn meet(circle: &Arc<Circle>, at: usize) -> (usize, Result<Facts, Error>) {
    (at, admit(circle, at).await)
}

/// What is said when one server has two names.
const DOUBLE: &str = "are one server";

fn is_double(error: &Error) -> bool {
    error.kind() == Kind::Invalid && error.what().ends_with(DOUBLE)
}

/// Looks at a node, and lets it take part if nothing speaks against it.
async fn admit(circle: &Arc<Circle>, at: usize) -> Result<Facts, Error> {
    let member = &circle.members[at];
    let looked = member.facts().await.and_then(|facts| accept(&facts, false, false).map(|()| facts));
    let outcome = looked
        .map_err(|failure| named(&failure.error, &member.host))
        .and_then(|facts| circle.enrol(at, facts.info("run_id").unwrap_or_default()).map(|()| facts));
    match &outcome {
        Ok(_) => member.set_standing(Standing::Accepted),
        Err(error) if error.is_transient() => member.set_standing(Standing::Unseen),
        Err(error) => {
            tracing::warn!(target: "leasehold", %error, "a node takes no part");
            member.set_standing(Standing::Refused(error.clone()));
        }
    }
    outcome
}

impl Circle {
    /// Notes which server a name leads to. Refuses one that takes part under another name.
    fn enrol(&self, at: usize, run_id: &str) -> Result<(), Error> {
        let host = &self.members[at].host;
        if run_id.is_empty() {
            return Err(Error::new(Kind::Unsupported, format!("{host}: the server names no run_id"))
                .advise("without it nobody can tell whether two names lead to one server"));
        }
        self.members[at].set_run_id(run_id);
        let twin =
            self.members.iter().enumerate().find(|(other, member)| *other != at && member.has_run_id(run_id));
        match twin {
            None => Ok(()),
            Some((_, twin)) => {
                self.members[at].set_run_id("");
                Err(Error::new(Kind::Invalid, format!("{} and {host} {DOUBLE}", twin.host))
                    .advise("name servers that are independent of one another, each once"))
            }
        }
    }
}

/// Looks at a node that takes no part, again and again, until it does or nobody is interested any more.
async fn watch(circle: Weak<Circle>, at: usize) {
    let mut pause = LOOK_AGAIN[0];
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN[1]);
        let Some(circle) = circle.upgrade() else { return };
        if admit(&circle, at).await.is_ok() {
            return;
        }
    }
}

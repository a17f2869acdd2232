//! What a case is given: an engine, a namespace of its own, and time that is judged fairly.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{
    Coordinator, HolderId, Label, Namespace, Resource, Ttl,
    profile::{Capabilities, QueueOrder},
    record::Acquired,
    request::Claim,
};

use super::{
    Cell, Engine, Hook,
    failure::{Failure, Verdict},
    shape::Taken,
};
use crate::{clock::Stopwatch, lock, random};

/// How long a case waits for something that must come: far beyond anything but a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
pub(crate) const GLANCE: Duration = Duration::from_millis(15);

/// One run of one case.
#[derive(Clone)]
pub struct Context {
    engine: Arc<dyn Engine>,
    namespace: Namespace,
    main: Arc<dyn Coordinator>,
    holder_id: HolderId,
    stretch: u32,
    limit: Arc<Mutex<Option<Cell>>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("engine", &self.engine.name())
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Connects to a fresh namespace; `alone`, to one whose servers may be crashed.
    pub(crate) async fn new(engine: Arc<dyn Engine>, alone: bool) -> Result<Self, Failure> {
        let namespace = random::namespace();
        let connecting = if alone { engine.connect_alone(&namespace) } else { engine.connect(&namespace) };
        let main = connecting.await.map_err(|failure| failure.while_("connecting"))?;
        let holder_id = random::holder_id();
        Ok(Self { engine, namespace, main, holder_id, stretch: 1, limit: Arc::default() })
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The first client.
    pub(crate) fn main(&self) -> &Arc<dyn Coordinator> {
        &self.main
    }

    /// Another client of the same namespace.
    pub(crate) async fn client(&self) -> Result<Arc<dyn Coordinator>, Failure> {
        self.engine.connect(&self.namespace).await
    }

    pub(crate) fn can(&self) -> Capabilities {
        self.main.profile().capabilities
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.can().queue == QueueOrder::Fifo
    }

    /// A TTL that does not run out during a case, however slow the machine, where the namespace allows such.
    pub(crate) fn long(&self) -> Ttl {
        Ttl::new(2 * super::run::CASE_LIMIT).unwrap_or(Ttl::DEFAULT).min(self.main.profile().max_ttl)
    }

    /// A TTL to be waited out: a few round trips of this engine, more when an earlier attempt was too slow.
    pub(crate) fn short(&self) -> Ttl {
        let step = Duration::from_millis(u64::from(self.can().ttl_step_ms.get()));
        let wanted = self.engine.short_ttl().max(step) * self.stretch;
        Ttl::new(wanted).unwrap_or(Ttl::MAX).min(self.main.profile().max_ttl)
    }

    /// A try-once claim of a resource, for long.
    pub(crate) fn claim(&self, resource: &str) -> Result<Claim, Failure> {
        Ok(Claim {
            resource: Resource::new(resource)?,
            lease_id: random::lease_id(),
            holder_id: self.holder_id,
            label: Label::from_lossy("host-1:4711:backup"),
            ttl: self.long(),
            lock_delay: Duration::ZERO,
            floor: None,
            queue: false,
            once_per: None,
        })
    }

    /// Says that the case could not check everything, and why.
    pub(crate) fn partly(&self, why: &'static str) {
        lock(&self.limit).get_or_insert(Cell::Partly(why));
    }

    /// What a case has said that has passed.
    pub(crate) fn passed(&self) -> Cell {
        lock(&self.limit).clone().unwrap_or(Cell::Passed)
    }

    /// What a hook gives; notes the reason when there is none.
    pub(crate) fn help<T>(&self, hook: Hook<T>) -> Option<T> {
        match hook {
            Hook::Here(help) => Some(help),
            Hook::Absent(why) => {
                self.partly(why);
                None
            }
            Hook::Inapplicable(why) => {
                lock(&self.limit).get_or_insert(Cell::Inapplicable(why));
                None
            }
        }
    }

    /// Runs a part whose outcome means something only when it was quick enough. It says so itself, by
    /// [`Context::within`]; it is then tried again with longer TTLs.
    pub(crate) async fn in_time(&self, part: impl AsyncFn(Context) -> Verdict) -> Verdict {
        let mut attempt = self.clone();
        loop {
            match part(attempt.clone()).await {
                Err(failure) if failure.is_too_slow() && attempt.stretch < 64 => attempt.stretch *= 2,
                other => return other,
            }
        }
    }

    /// Too slow unless less than `limit` has passed: what was seen up to here then proves nothing.
    #[allow(clippy::unused_self, reason = "reads like what it is about")]
    pub(crate) fn within(&self, limit: Duration, since: Stopwatch) -> Verdict {
        let elapsed = since.elapsed();
        if elapsed < limit {
            return Ok(());
        }
        Err(Failure::too_slow(format!(
            "the machine is too slow for this case: {elapsed:?} instead of {limit:?}"
        )))
    }

    /// Asks again and again until the claim is granted.
    pub(crate) async fn until_granted(
        &self,
        client: &dyn Coordinator,
        claim: &Claim,
    ) -> Result<Taken, Failure> {
        self.until_granted_since(client, claim).await.map(|(taken, _)| taken)
    }

    /// The same, with the moment at which the claim was sent that was granted.
    pub(crate) async fn until_granted_since(
        &self,
        client: &dyn Coordinator,
        claim: &Claim,
    ) -> Result<(Taken, Stopwatch), Failure> {
        let since = Stopwatch::start();
        loop {
            let sent = Stopwatch::start();
            let answer = client.acquire(claim.clone()).await?;
            if let Acquired::Granted(grant) = answer {
                return Ok((Taken { claim: claim.clone(), grant }, sent));
            }
            if since.elapsed() > PATIENCE {
                return Err(Failure::new(format!(
                    "not granted within {PATIENCE:?}; the last answer was {answer:?}"
                )));
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Waits until the resource of this claim has no live grant.
    pub(crate) async fn until_lapsed(&self, client: &dyn Coordinator, claim: &Claim) -> Verdict {
        let since = Stopwatch::start();
        while client.inspect(claim.resource.clone()).await?.record.is_some() {
            if since.elapsed() > PATIENCE {
                return Err(Failure::new(format!("the grant did not expire within {PATIENCE:?}")));
            }
            tokio::time::sleep(GLANCE).await;
        }
        Ok(())
    }
}

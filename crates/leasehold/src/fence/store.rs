//! A fence that is asked on its own: what seals before the holder reads, what a service asks at its door, what a shell job
//! asks from the command line.

use std::{fmt::Debug, sync::Arc};

use leasehold_core::{
    Call, Error, Kind, Label, Namespace, Resource, Token,
    fence::{Ask, Mark, Pass, Refusal, Verdict},
};

use super::{NotAdmitted, Policy, answer::refuse};
use crate::clock;

/// Something to be done in one step with the answer.
pub type Work = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// Where highest tokens are kept. Each call is one atomic, durable step; none is retried.
///
/// Futures may be polled from any executor, or from none.
pub trait FenceStore: Send + Sync + Debug + 'static {
    /// Where it is, for people: no secrets.
    fn place(&self) -> &str;

    /// Judges a pass by [`leasehold_core::fence::judge`] and remembers what is to be remembered.
    fn ask(&self, pass: Pass, ask: Ask) -> Call<'_, Verdict>;

    /// What is remembered of a resource.
    fn look(&self, namespace: Namespace, resource: Resource) -> Call<'_, Option<Mark>>;

    /// Raises the token by hand, never lowers it; what is remembered now.
    fn raise(&self, namespace: Namespace, resource: Resource, token: Token, by: Label) -> Call<'_, Mark>;

    /// How many passes this store has refused by the rule, whoever showed them: `stale_write_rejected_total` of the store, where
    /// that of a process ends with it.
    fn refused(&self) -> Call<'_, u64>;

    /// As [`FenceStore::ask`] with [`Ask::Write`], and does `work` in the same step when admitted: no later seal is answered
    /// while it runs. When `work` fails nothing is remembered.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] where the store cannot hold a step open.
    fn admit_and(&self, pass: Pass, work: Work) -> Call<'_, Verdict> {
        let _ = (pass, work);
        Box::pin(async {
            Err(Error::new(Kind::Unsupported, "this fence can hold no step open").at(self.place()))
        })
    }
}

/// A fence, and what it asks of tokens. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fence {
    store: Arc<dyn FenceStore>,
    policy: Policy,
}

impl Fence {
    /// A fence over a store.
    pub fn over(store: impl FenceStore) -> Self {
        Self { store: Arc::new(store), policy: Policy::default() }
    }

    /// The same with another policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Where it is, for people.
    pub fn place(&self) -> &str {
        self.store.place()
    }

    /// Shuts every older grant out: asked once per grant and resource, **before the new holder reads anything it will write
    /// by**. A fence that is not sealed refuses an old holder only after the new one's first write has arrived.
    ///
    /// **Cancel safety.** Dropping the future leaves a seal that may or may not have been set; set it again.
    ///
    /// # Errors
    /// [`NotAdmitted`]: the grant is stale already, or the fence could not be asked. Do not read, do not write.
    pub async fn seal(&self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.ask(pass, Ask::Seal).await
    }

    /// Does a write under this pass count? Answered apart from the write: the gap between the two is only as closed as
    /// whoever writes keeps it. Where the data lives in a database, ask inside its transaction instead.
    ///
    /// # Errors
    /// [`NotAdmitted`]: the write must have no effect.
    pub async fn check(&self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.ask(pass, Ask::Write).await
    }

    /// As [`Fence::check`], and seals a resource that the fence has never seen.
    ///
    /// # Errors
    /// [`NotAdmitted`]: the write must have no effect.
    pub async fn enter(&self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.ask(pass, Ask::Enter).await
    }

    async fn ask(&self, pass: &Pass, ask: Ask) -> Result<(), NotAdmitted> {
        self.policy.judge(pass, clock::unix_us()).map_err(|refusal| self.refuse(pass, refusal))?;
        let verdict = self.store.ask(pass.clone(), ask).await.map_err(|error| error.on(&pass.resource))?;
        self.conclude(pass, verdict)
    }

    /// Does `work` if the pass is admitted, in one step with the answer: no later holder's seal is answered while it runs.
    ///
    /// # Errors
    /// [`NotAdmitted`], and then `work` has not begun, or has failed with what is told.
    pub async fn admit_and(
        &self,
        pass: &Pass,
        work: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<(), NotAdmitted> {
        self.policy.judge(pass, clock::unix_us()).map_err(|refusal| self.refuse(pass, refusal))?;
        let answer = self.store.admit_and(pass.clone(), Box::new(work)).await;
        self.conclude(pass, answer.map_err(|error| error.on(&pass.resource))?)
    }

    fn conclude(&self, pass: &Pass, verdict: Verdict) -> Result<(), NotAdmitted> {
        match verdict {
            Verdict::Admitted => Ok(()),
            Verdict::Refused(refusal) => Err(self.refuse(pass, refusal)),
        }
    }

    fn refuse(&self, pass: &Pass, refusal: Refusal) -> NotAdmitted {
        refuse(self.place(), pass, refusal)
    }

    /// What the fence remembers of a resource.
    ///
    /// # Errors
    /// What the store says when it cannot be asked.
    pub async fn look(&self, namespace: &Namespace, resource: &Resource) -> Result<Option<Mark>, Error> {
        let look = self.store.look(namespace.clone(), resource.clone()).await;
        look.map_err(|error| error.without_effect().on(resource))
    }

    /// How many passes the store has refused by the rule, whoever showed them. Refusals of a transaction that was rolled back
    /// are counted by the process alone, except on PostgreSQL.
    ///
    /// # Errors
    /// What the store says when it cannot be asked.
    pub async fn refused(&self) -> Result<u64, Error> {
        self.store.refused().await.map_err(Error::without_effect)
    }

    /// Raises the highest token by hand: after a restored backup, say, so that nothing older is let in. Never lowers it.
    /// What the fence remembers now.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for a token beyond the policy's bound, which would shut everybody out; what the store says when it
    /// cannot be asked.
    pub async fn raise(
        &self,
        namespace: &Namespace,
        resource: &Resource,
        token: Token,
        by: &Label,
    ) -> Result<Mark, Error> {
        self.policy.judge_token(token, clock::unix_us()).map_err(|refusal| {
            Error::new(Kind::Invalid, refusal.to_string())
                .on(resource)
                .at(self.place())
                .advise(refusal.advice())
        })?;
        let raise = self.store.raise(namespace.clone(), resource.clone(), token, by.clone()).await;
        raise.map_err(|error| error.on(resource))
    }
}

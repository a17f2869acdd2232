//! One operation on one connection: its transactions.
//!
//! At `READ COMMITTED` the insert of the key waits for a twin's and then finds its row. At the stricter levels it fails to serialise
//! instead; both are answered by looking the key up again.

use std::marker::PhantomData;

use leasehold_core::{Error, Kind, fence::Pass};
use serde_json::Value;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::{PostgresEffects, PostgresTx, failure, statements};
use crate::{
    Lease,
    effects::{
        answer::NotDone,
        external::{Far, FarSession, Taken, Working},
        failpoint::Point,
        flow::{Attempt, Local, Session},
        key::{Key, Request},
        record::{Answer, Record, State, corrupt, json_text, resolved, signed},
    },
    fence::NotAdmitted,
};

/// An operation; `work` is what its kind of operation asks for.
pub(super) struct Run<'c, F, E> {
    pub(super) client: &'c mut Client,
    pub(super) effects: &'c PostgresEffects,
    pub(super) work: Option<F>,
    pub(super) failure: PhantomData<fn() -> E>,
}

impl PostgresEffects {
    async fn begin<'t>(
        &self,
        client: &'t mut Client,
        level: IsolationLevel,
    ) -> Result<Transaction<'t>, Error> {
        let failed = |error| failure::of("the transaction could not begin", &error);
        let tx = client
            .build_transaction()
            .isolation_level(level)
            .read_only(false)
            .start()
            .await
            .map_err(failed)?;
        // Whoever is stopped in here holds the successor up, but not for longer than this. An answer survives a crash, whatever the
        // session's setting.
        let limit = self.common.rules.limit().as_millis().clamp(1, i32::MAX.unsigned_abs().into());
        let bounds = format!(
            "SET LOCAL synchronous_commit = 'on'; SET LOCAL statement_timeout = {limit}; \
             SET LOCAL idle_in_transaction_session_timeout = {limit}"
        );
        tx.batch_execute(&bounds).await.map_err(failed)?;
        Ok(tx)
    }

    /// Takes the key; `None` when a twin was quicker.
    async fn insert(
        &self,
        tx: &Transaction<'_>,
        pass: &Pass,
        key: &Key,
        request: &Request,
    ) -> Result<Option<()>, Error> {
        let (scope, name, hash) = (key.scope(), key.as_str(), request.fingerprint().as_bytes().as_slice());
        let (namespace, resource) = (pass.namespace.as_str(), pass.resource.as_str());
        let (token, lease_id, holder) =
            (signed(pass.token.get()), pass.lease_id.to_string(), pass.holder.as_str());
        let inserted = tx
            .execute(
                &self.statements.insert,
                &[&scope, &name, &hash, &namespace, &resource, &token, &lease_id, &holder],
            )
            .await;
        match inserted {
            Ok(1) => Ok(Some(())),
            Ok(_) => Ok(None),
            Err(error) if failure::is_overtaken(&error) => Ok(None),
            Err(error) => Err(failure::of("the key could not be written", &error).on(&pass.resource)),
        }
    }

    /// Runs the work, within its time and while the lease is held, and stores its response.
    async fn effect<E: Send>(
        &self,
        tx: &Transaction<'_>,
        lease: &Lease,
        key: &Key,
        work: impl for<'t> FnOnce(&'t PostgresTx<'t>) -> Working<'t, Value, E> + Send,
    ) -> Result<Answer, NotDone<E>> {
        let pass = lease.pass();
        let limit = self.common.rules.limit();
        let response = {
            let inside = PostgresTx::new(tx, &self.statements, &pass, key);
            tokio::select! {
                biased;
                loss = lease.lost() => return Err(NotDone::Lost(loss)),
                response = work(&inside) => response.map_err(NotDone::Effect)?,
                () = lease.sleep(limit) => return Err(NotDone::TooLong(limit)),
            }
        };
        let response_text = json_text("the response", &response)?;
        let (scope, name, token) = (key.scope(), key.as_str(), signed(pass.token.get()));
        let (lease_id, kept) = (pass.lease_id.to_string(), self.common.rules.kept_us());
        let stored = tx
            .execute(&self.statements.complete, &[&scope, &name, &token, &lease_id, &response_text, &kept])
            .await;
        let stored = stored
            .map_err(|error| failure::of("the response could not be stored", &error).on(&pass.resource))?;
        if stored != 1 {
            return Err(resolved(key).into());
        }
        Ok(Answer { response, replayed: false, token: pass.token })
    }

    async fn commit(&self, tx: Transaction<'_>) -> Result<(), Error> {
        self.common.hook.reach(Point::BeforeCommit).await;
        tx.commit().await.map_err(|error| failure::of_commit(&error))?;
        self.common.hook.reach(Point::Committed).await;
        Ok(())
    }

    pub(super) async fn read(
        &self,
        client: &impl tokio_postgres::GenericClient,
        key: &Key,
    ) -> Result<Option<Record>, Error> {
        let rows = client.query(&self.statements.look, &[&key.scope(), &key.as_str()]).await;
        let rows = rows.map_err(|error| failure::of("the key could not be looked up", &error))?;
        rows.first().map(statements::record).transpose()
    }
}

impl<F: Send, E: Send> Session for Run<'_, F, E> {
    type Failure = E;

    async fn look(&mut self, key: &Key) -> Result<Option<Record>, Error> {
        self.effects.read(self.client, key).await
    }

    async fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.effects.fence.seal(self.client, pass).await
    }
}

impl<F, E> Local for Run<'_, F, E>
where
    F: for<'t> FnOnce(&'t PostgresTx<'t>) -> Working<'t, Value, E> + Send,
    E: Send,
{
    async fn attempt(&mut self, lease: &Lease, key: &Key, request: &Request) -> Result<Attempt, NotDone<E>> {
        let effects = self.effects;
        let Some(work) = self.work.take() else { return Err(once()) };
        let tx = effects.begin(self.client, effects.level).await?;
        effects.common.hook.reach(Point::BeforeCheck).await;
        effects.fence.check(&tx, &lease.pass()).await?;
        if effects.insert(&tx, &lease.pass(), key, request).await?.is_none() {
            // Ended before anybody looks again: what was opened at a stricter level sees no row of a twin.
            let _ = tx.rollback().await;
            return Ok(Attempt::Twin);
        }
        effects.common.hook.reach(Point::Inserted).await;
        let answer = effects.effect(&tx, lease, key, work).await?;
        match effects.commit(tx).await {
            Ok(()) => Ok(Attempt::Done(answer)),
            Err(error) => Err(error.on(request.resource()).into()),
        }
    }
}

impl<F, E> FarSession for Run<'_, F, E>
where
    F: for<'t> FnOnce(&'t PostgresTx<'t>, Value) -> Working<'t, Value, E> + Send,
    E: Send,
{
    async fn take(&mut self, pass: &Pass, key: &Key, request: &Request) -> Result<Taken, NotAdmitted> {
        let effects = self.effects;
        let tx = effects.begin(self.client, IsolationLevel::ReadCommitted).await?;
        effects.fence.check(&tx, pass).await?;
        let taken = if effects.insert(&tx, pass, key, request).await?.is_some() {
            Taken::Fresh
        } else {
            let record = effects.read(&tx, key).await?.ok_or_else(|| corrupt("a key is there and is not"))?;
            let same = record.fingerprint == *request.fingerprint();
            let (scope, name, token) = (key.scope(), key.as_str(), signed(pass.token.get()));
            let (lease_id, holder) = (pass.lease_id.to_string(), pass.holder.as_str());
            let over = same && record.state == State::Started && {
                let taken = tx
                    .execute(&effects.statements.take_over, &[&scope, &name, &token, &lease_id, &holder])
                    .await;
                taken.map_err(|error| {
                    failure::of("the key could not be taken over", &error).on(&pass.resource)
                })? == 1
            };
            if over { Taken::Over } else { Taken::Theirs(Box::new(record)) }
        };
        tx.commit().await.map_err(|error| failure::of_commit(&error))?;
        Ok(taken)
    }

    async fn finish(&mut self, lease: &Lease, key: &Key, far: Value) -> Result<Answer, NotDone<E>> {
        let effects = self.effects;
        let Some(finish) = self.work.take() else { return Err(once()) };
        let tx = effects.begin(self.client, effects.level).await?;
        effects.fence.check(&tx, &lease.pass()).await?;
        let answer = effects.effect(&tx, lease, key, |tx| finish(tx, far)).await?;
        effects.commit(tx).await?;
        Ok(answer)
    }

    async fn leave(&mut self, pass: &Pass, key: &Key, how: Far<'_>) -> Result<(), NotAdmitted> {
        let effects = self.effects;
        let tx = effects.begin(self.client, IsolationLevel::ReadCommitted).await?;
        effects.fence.check(&tx, pass).await?;
        let (scope, name, token) = (key.scope(), key.as_str(), signed(pass.token.get()));
        let left = match how {
            Far::Park(note) => tx.execute(&effects.statements.park, &[&scope, &name, &token, &note]).await,
            Far::Forget => tx.execute(&effects.statements.forget, &[&scope, &name, &token]).await,
        };
        left.map_err(|error| failure::of("the key could not be set aside", &error).on(&pass.resource))?;
        tx.commit().await.map_err(|error| failure::of_commit(&error).into())
    }
}

fn once<E>() -> NotDone<E> {
    Error::new(Kind::Invalid, "an operation is carried out once").into()
}

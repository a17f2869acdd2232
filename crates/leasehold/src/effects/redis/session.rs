//! One operation on one connection: its scripts.
//!
//! There is no moment between the key and the effect: a twin comes before the script or behind it, and then sees the key.

use std::{marker::PhantomData, time::Duration};

use leasehold_core::{
    Error, Kind,
    fence::{Pass, Refusal},
};
use redis::{Value as Reply, aio::ConnectionLike};
use serde_json::Value;

use super::{
    Connection, RedisEffects, RedisTx,
    read::{self, operation},
    script::{self, Behind, behind},
    tx::Plan,
};
use crate::{
    Lease,
    coordinator::redis::of_request,
    effects::{
        answer::NotDone,
        external::{Far, FarSession, Taken, Working},
        failpoint::Point,
        flow::{Attempt, Local, Session},
        key::{Key, Request},
        record::{Answer, Record, corrupt, json_text, resolved},
    },
    fence::NotAdmitted,
};

/// An operation; `work` is what its kind of operation asks for.
pub(super) struct Run<'c, C, F, E> {
    pub(super) connection: &'c mut C,
    pub(super) effects: &'c RedisEffects,
    pub(super) request: &'c Request,
    pub(super) work: Option<F>,
    pub(super) failure: PhantomData<fn() -> E>,
}

pub(super) async fn look<C: ConnectionLike + Send>(
    connection: &mut C,
    tag: &str,
    key: &Key,
) -> Result<Option<Record>, Error> {
    let name = operation(key);
    let mut command = redis::cmd("HGETALL");
    command.arg(script::record_key(tag, &name));
    let answer: Result<Reply, _> = command.query_async(connection).await;
    read::record(&name, &answer.map_err(|error| of_request(&error).error.without_effect())?)
}

impl<C: Connection, F: Send, E: Send> Run<'_, C, F, E> {
    async fn behind(
        &mut self,
        what: Behind,
        pass: &Pass,
        keys: &[String],
        arguments: Vec<Vec<u8>>,
    ) -> Result<script::Said, NotAdmitted> {
        let RedisEffects { fence, tag, .. } = self.effects;
        behind(self.connection, what, (fence, tag), pass, (keys, arguments)).await
    }

    /// Carries a plan out. `mine`: under a key that this grant has started.
    async fn apply(
        &mut self,
        lease: &Lease,
        (pass, key): (&Pass, &Key),
        mine: bool,
        (response, plan): (Value, Plan),
    ) -> Result<Attempt, NotDone<E>> {
        let hook = self.effects.common.hook.clone();
        let arguments = self.arguments(pass, key, mine, &json_text("the response", &response)?, &plan);
        hook.reach(Point::BeforeCommit).await;
        let limit = self.effects.common.rules.limit();
        let said = tokio::select! {
            biased;
            said = self.behind(Behind::Apply, pass, &plan.keys, arguments) => said,
            () = lease.sleep(limit) => Err(late(limit).into()),
        };
        let (word, rest) = said.map_err(forgotten)?;
        match word.as_str() {
            "done" => {
                hook.reach(Point::Committed).await;
                Ok(Attempt::Done(Answer { response, replayed: false, token: pass.token }))
            }
            "twin" => Ok(Attempt::Twin),
            "resolved" => Err(resolved(key).into()),
            "failed" => Err(refused(&rest, plan.commands.len()).on(&pass.resource).into()),
            // What is remembered says how far it came.
            _ => match look(self.connection, &self.effects.tag, key).await.map_err(Error::unknown)? {
                Some(record) => Err(NotDone::Unsettled(Box::new(record))),
                None => Err(resolved(key).unknown().into()),
            },
        }
    }

    fn arguments(&self, pass: &Pass, key: &Key, mine: bool, response: &str, plan: &Plan) -> Vec<Vec<u8>> {
        let kept = self.effects.common.rules.kept_us().map(|kept| kept.to_string()).unwrap_or_default();
        let mut all: Vec<Vec<u8>> = [
            if mine { "mine" } else { "fresh" },
            &operation(key),
            &self.request.fingerprint().to_string(),
            pass.namespace.as_str(),
            pass.resource.as_str(),
            response,
            &kept,
        ]
        .map(|text| text.as_bytes().to_vec())
        .into();
        let number = |number: usize| number.to_string().into_bytes();
        all.push(number(plan.events.len()));
        for (topic, payload) in &plan.events {
            all.extend([topic.as_bytes().to_vec(), payload.as_bytes().to_vec()]);
        }
        all.push(number(plan.commands.len()));
        for command in &plan.commands {
            all.push(number(command.len()));
            all.extend(command.iter().cloned());
        }
        all
    }
}

/// Lets the work say what is to be done, within its time and while the lease is held.
async fn planned<C: Connection, E>(
    limit: Duration,
    connection: C,
    lease: &Lease,
    (pass, key): (&Pass, &Key),
    work: impl for<'t> FnOnce(&'t RedisTx<'t, C>) -> Working<'t, Value, E> + Send,
) -> Result<(Value, Plan), NotDone<E>> {
    let tx = RedisTx::new(connection, pass, key);
    let response = tokio::select! {
        biased;
        loss = lease.lost() => return Err(NotDone::Lost(loss)),
        response = work(&tx) => response.map_err(NotDone::Effect)?,
        () = lease.sleep(limit) => return Err(NotDone::TooLong(limit)),
    };
    Ok((response, tx.into_plan()))
}

impl<C: Connection, F: Send, E: Send> Session for Run<'_, C, F, E> {
    type Failure = E;

    async fn look(&mut self, key: &Key) -> Result<Option<Record>, Error> {
        look(self.connection, &self.effects.tag, key).await
    }

    async fn seal(&mut self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.effects.fence.seal(self.connection, pass).await
    }
}

impl<C, F, E> Local for Run<'_, C, F, E>
where
    C: Connection,
    F: for<'t> FnOnce(&'t RedisTx<'t, C>) -> Working<'t, Value, E> + Send,
    E: Send,
{
    async fn attempt(&mut self, lease: &Lease, key: &Key, _: &Request) -> Result<Attempt, NotDone<E>> {
        let Some(work) = self.work.take() else { return Err(once()) };
        let (pass, limit) = (lease.pass(), self.effects.common.rules.limit());
        self.effects.common.hook.reach(Point::BeforeCheck).await;
        let planned = planned(limit, self.connection.clone(), lease, (&pass, key), work).await?;
        self.apply(lease, (&pass, key), false, planned).await
    }
}

impl<C, F, E> FarSession for Run<'_, C, F, E>
where
    C: Connection,
    F: for<'t> FnOnce(&'t RedisTx<'t, C>, Value) -> Working<'t, Value, E> + Send,
    E: Send,
{
    async fn take(&mut self, pass: &Pass, key: &Key, request: &Request) -> Result<Taken, NotAdmitted> {
        let name = operation(key);
        let hash = request.fingerprint().to_string();
        let words = [name.as_str(), &hash, pass.namespace.as_str(), pass.resource.as_str()];
        let (word, rest) =
            self.behind(Behind::Take, pass, &[], words.map(|word| word.as_bytes().to_vec()).into()).await?;
        Ok(match word.as_str() {
            "fresh" => Taken::Fresh,
            "over" => Taken::Over,
            _ => {
                let record = read::record(&name, rest.first().unwrap_or(&Reply::Nil))?;
                Taken::Theirs(Box::new(record.ok_or_else(|| corrupt("a key is there and is not"))?))
            }
        })
    }

    async fn finish(&mut self, lease: &Lease, key: &Key, far: Value) -> Result<Answer, NotDone<E>> {
        let Some(finish) = self.work.take() else { return Err(once()) };
        let (pass, limit) = (lease.pass(), self.effects.common.rules.limit());
        let connection = self.connection.clone();
        let planned = planned(limit, connection, lease, (&pass, key), |tx| finish(tx, far)).await?;
        match self.apply(lease, (&pass, key), true, planned).await? {
            Attempt::Done(answer) => Ok(answer),
            Attempt::Twin => Err(resolved(key).into()),
        }
    }

    async fn leave(&mut self, pass: &Pass, key: &Key, how: Far<'_>) -> Result<(), NotAdmitted> {
        let (how, note) = match how {
            Far::Park(note) => ("park", note),
            Far::Forget => ("forget", ""),
        };
        let words = [operation(key).as_str(), how, note].map(|word| word.as_bytes().to_vec());
        self.behind(Behind::Leave, pass, &[], words.into()).await.map(drop)
    }
}

/// Sealed and unknown to the fence: the server has lost its memory in between, and nothing was done.
fn forgotten<E>(no: NotAdmitted) -> NotDone<E> {
    if matches!(no.refusal(), Some(Refusal::NoSuchResource)) {
        return Error::new(Kind::Unavailable, "the server has forgotten that the resource was sealed")
            .advise("ask again with the same key; see docs/effects.md for what else a server that forgets has lost")
            .into();
    }
    no.into()
}

/// The first command has failed, so that nothing has happened.
fn refused(rest: &[Reply], commands: usize) -> Error {
    let said =
        rest.first().and_then(|said| redis::from_redis_value_ref::<String>(said).ok()).unwrap_or_default();
    let shown = crate::address::visible(&said);
    let kind = match said.split_ascii_whitespace().next() {
        Some("OOM" | "MISCONF" | "NOREPLICAS" | "READONLY") => Kind::Unavailable,
        Some("NOPERM") => Kind::Denied,
        _ => Kind::Invalid,
    };
    Error::new(kind, format!("command 1 of {commands} failed, and nothing was done: {shown}"))
        .advise("see what the key of the command holds, and what the user may do")
}

fn late(limit: Duration) -> Error {
    Error::new(
        Kind::Unknown,
        format!("the effect may have happened: the server has not answered within max_exec ({limit:?})"),
    )
    .advise("ask again with the same key, which knows")
}

fn once<E>() -> NotDone<E> {
    Error::new(Kind::Invalid, "an operation is carried out once").into()
}

//! What Redis keeps of operations and events, as seen from outside, on a connection of its own.

use std::{sync::Arc, time::Duration};

use leasehold_core::{
    Call, Error, Invalid, Kind, Label,
    fence::{Ask, Pass},
};
use redis::{Cmd, Value};

use super::{
    TAG,
    read::{self, operation},
    script,
};
use crate::{
    address::Address,
    coordinator::redis::{Keeper, Options},
    effects::{
        durability::Durability,
        key::Key,
        ledger::{Delivery, Due, Events, Fate, Found, Keys, Queue, Store},
        record::{Event, Record, State, corrupt, json_text},
    },
    fence::{
        NotAdmitted,
        redis::{CHECK, RedisFence, checked, script as fence_script},
    },
    room::Room,
};

/// Keys that one step of a purge looks at.
const STEP: u64 = 500;

/// The operations under a tag.
#[derive(Debug)]
pub(in crate::effects) struct RedisLedger {
    keeper: Arc<Keeper>,
    fence: RedisFence,
    tag: String,
    place: String,
    room: Room,
}

impl RedisLedger {
    pub(in crate::effects) async fn connect(address: &Address) -> Result<Self, Error> {
        let options = Options::read(address)?;
        let tag = options.effects_tag().map(str::to_owned);
        if tag.is_none() && options.is_cluster() {
            return Err(Error::new(
                Kind::Invalid,
                "on a Cluster effects are under a hash tag, and the URL names none",
            )
            .at(&address.to_string())
            .advise("add ?effects_tag=TAG, as in RedisEffects::within(\"TAG\")"));
        }
        let mut fence = RedisFence::default();
        if let Some(tag) = &tag {
            fence = fence.within(tag)?;
        }
        let tag = checked(tag.as_deref().unwrap_or(TAG))?.to_owned();
        let room = Room::open()?;
        let root = script::root(&tag);
        let keeper = room.run(async move { Keeper::open(&options, &root).await }).await;
        let keeper = Arc::new(keeper.map_err(Error::without_effect)?);
        Ok(Self { keeper, fence, tag, place: address.to_string(), room })
    }

    /// Sends one command. What it needs lives on the room's runtime.
    async fn send(&self, command: Cmd) -> Result<Value, Error> {
        let keeper = Arc::clone(&self.keeper);
        let sent = self.room.run(async move { keeper.plain(command).await.map_err(|failure| failure.error) });
        sent.await.map_err(|error| error.at(&self.place))
    }

    /// Runs a script without a fence.
    async fn script(&self, text: &str, arguments: &[&str]) -> Result<Value, Error> {
        let root = script::root(&self.tag);
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(2).arg(&root).arg(&root).arg(arguments);
        self.send(command).await
    }

    /// The beginning of a script behind the fence of this pass.
    fn fenced(&self, text: &str, pass: &Pass, ask: Ask) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command
            .arg(text)
            .arg(2)
            .arg(self.fence.key_of(&pass.namespace, &pass.resource))
            .arg(script::root(&self.tag));
        command.arg(&fence_script::arguments(pass, ask)[..]);
        command
    }

    async fn records_of(&self, which: Keys) -> Result<Vec<Record>, Error> {
        // Redis compares bytes: a scope ends with NUL, which is the least of them.
        let mut from = match (&which.after, &which.scope) {
            (Some(after), _) => format!("({}", operation(after)),
            (None, Some(scope)) => format!("[{scope}\0"),
            (None, None) => "-".to_owned(),
        };
        let to = which.scope.as_ref().map_or("+".to_owned(), |scope| format!("({scope}\u{1}"));
        if let (Some(after), Some(scope)) = (&which.after, &which.scope)
            && after.scope() < scope.as_str()
        {
            from = format!("[{scope}\0");
        }
        let list = if which.state.is_some_and(|state| state != State::Done) { "open" } else { "all" };
        let state = which.state.map(State::word).unwrap_or_default();
        let mut found = Vec::new();
        while found.len() < which.limit as usize {
            let rest = (which.limit as usize - found.len()).to_string();
            let answer = self.script(script::RECORDS, &[list, &from, &to, state, &rest]).await?;
            let (last, part) = read::part(answer, read::record)?;
            found.extend(part);
            let Some(last) = last else { break };
            from = format!("({last}");
        }
        Ok(found)
    }

    async fn events_of(&self, which: Events) -> Result<Vec<Event>, Error> {
        let queue = which.queue.map(Queue::word).unwrap_or_default();
        let (mut after, mut found) = (which.after.to_string(), Vec::new());
        while found.len() < which.limit as usize {
            let rest = (which.limit as usize - found.len()).to_string();
            let answer = self.script(script::EVENTS, &[queue, &after, &rest]).await?;
            let (last, part) = read::part(answer, read::event)?;
            found.extend(part);
            let Some(last) = last else { break };
            after = last;
        }
        Ok(found)
    }

    async fn purge_all(&self) -> Result<u64, Error> {
        let mut total = 0;
        loop {
            let answer = self.script(script::FORGET, &[&STEP.to_string()]).await?;
            let (gone, looked): (u64, u64) =
                redis::from_redis_value(answer).map_err(|_| corrupt("a purge has no count"))?;
            total += gone;
            if looked < STEP {
                return Ok(total);
            }
        }
    }

    async fn due_now(&self, limit: u32) -> Result<Due, Error> {
        let answer = self.script(script::DUE, &[&limit.to_string()]).await?;
        let (waiting, lag_us, rows): (u64, u64, Vec<(String, Value)>) =
            redis::from_redis_value(answer).map_err(|_| corrupt("what is due is no list"))?;
        let events = rows.iter().filter_map(|(id, value)| read::event(id, value).transpose());
        Ok(Due { events: events.collect::<Result<_, _>>()?, waiting, lag: Duration::from_micros(lag_us) })
    }

    async fn noted(&self, pass: &Pass, deliveries: &[(u64, Delivery)]) -> Result<(), NotAdmitted> {
        self.fence.judge(pass)?;
        let mut command = self.fenced(script::mark(), pass, Ask::Write);
        command.arg(deliveries.len());
        for (id, delivery) in deliveries {
            let (fate, again_in, why) = match delivery {
                Delivery::Published => ("published", Duration::ZERO, ""),
                Delivery::Failed { again_in, why } => ("failed", *again_in, why.as_str()),
                Delivery::SetAside { why } => ("set_aside", Duration::ZERO, why.as_str()),
            };
            let again_us = u64::try_from(again_in.as_micros()).unwrap_or(u64::MAX);
            command.arg(*id).arg(fate).arg(again_us).arg(why);
        }
        script::said(&self.fence, pass, self.send(command).await?).map(drop)
    }

    async fn shut_out(&self, pass: &Pass) -> Result<(), NotAdmitted> {
        self.fence.judge(pass)?;
        let answer = self.send(self.fenced(CHECK, pass, Ask::Seal)).await?;
        script::said(&self.fence, pass, answer).map(drop)
    }
}

fn no_roles() -> Error {
    Invalid::new(
        "roles",
        "are PostgreSQL's; in Redis an ACL allows a user the keys lheffects:* and lhfence:*",
    )
    .into()
}

/// One thing was changed, or none.
fn changed(answer: Value) -> Result<bool, Error> {
    redis::from_redis_value::<u64>(answer)
        .map(|count| count == 1)
        .map_err(|_| corrupt("a change has no count"))
}

/// A refusal is an answer; a failure is one.
fn sort(answer: Result<(), NotAdmitted>) -> Result<Result<(), NotAdmitted>, Error> {
    match answer {
        Err(NotAdmitted::Failed(error)) => Err(error),
        other => Ok(other),
    }
}

impl Store for RedisLedger {
    fn place(&self) -> &str {
        &self.place
    }

    fn durability(&self) -> Durability {
        super::RedisEffects::DURABILITY
    }

    /// Nothing is to be made: what is needed comes with the first operation.
    fn install(&self, roles: Vec<String>) -> Call<'_, ()> {
        Box::pin(async move { if roles.is_empty() { Ok(()) } else { Err(no_roles()) } })
    }

    fn records(&self, which: Keys) -> Call<'_, Vec<Record>> {
        Box::pin(self.records_of(which))
    }

    fn record(&self, key: Key) -> Call<'_, Option<Record>> {
        Box::pin(async move {
            let name = operation(&key);
            let mut command = redis::cmd("HGETALL");
            command.arg(script::record_key(&self.tag, &name));
            read::record(&name, &self.send(command).await?)
        })
    }

    fn resolve(&self, key: Key, found: Found, by: Label) -> Call<'_, bool> {
        Box::pin(async move {
            let (word, response) = match &found {
                Found::Done(response) => ("done", json_text("the response", response)?),
                Found::NotDone => ("not_done", String::new()),
            };
            changed(self.script(script::RESOLVE, &[&operation(&key), word, &response, by.as_str()]).await?)
        })
    }

    fn events(&self, which: Events) -> Call<'_, Vec<Event>> {
        Box::pin(self.events_of(which))
    }

    fn event(&self, id: u64) -> Call<'_, Option<Event>> {
        Box::pin(async move {
            let mut command = redis::cmd("HGETALL");
            command.arg(script::event_key(&self.tag, id));
            read::event(&id.to_string(), &self.send(command).await?)
        })
    }

    fn decide(&self, id: u64, fate: Fate, by: Label) -> Call<'_, bool> {
        Box::pin(async move {
            let word = match fate {
                Fate::Retry => "retry",
                Fate::SetAside => "set_aside",
            };
            changed(self.script(script::DECIDE, &[&id.to_string(), word, by.as_str()]).await?)
        })
    }

    fn purge(&self) -> Call<'_, u64> {
        Box::pin(self.purge_all())
    }

    fn due(&self, limit: u32) -> Call<'_, Due> {
        Box::pin(self.due_now(limit))
    }

    fn seal(&self, pass: Pass) -> Call<'_, Result<(), NotAdmitted>> {
        Box::pin(async move { sort(self.shut_out(&pass).await) })
    }

    fn mark(&self, pass: Pass, deliveries: Vec<(u64, Delivery)>) -> Call<'_, Result<(), NotAdmitted>> {
        Box::pin(async move { sort(self.noted(&pass, &deliveries).await) })
    }
}

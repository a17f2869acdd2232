//! What is sent together: calls to messages, messages to the server, answers back to their calls.

use std::{
    collections::{HashMap, hash_map::RandomState},
    future::Future,
    hash::BuildHasher as _,
    sync::Arc,
    time::Duration,
};

use redis::{Cmd, Pipeline, Value, aio::MultiplexedConnection};
use tokio::{sync::oneshot, time::timeout};

use super::{
    failure::{self, Failure, Turn},
    link::{Answer, Replicas},
    op::Op,
    queue::{Job, Task},
    script::{self, By, Kind},
    space::Space,
};

/// Operations in one call of the script (ours: about half a millisecond of the server's time).
pub(crate) const MAX_OPS: usize = 128;
/// An answer that takes longer will not come: the connection is given up. As long as any call may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What goes together in one message.
pub(super) enum Batch {
    Step(Step),
    Plain(Cmd, oneshot::Sender<Answer>),
}

/// Operations of one kind on one shard.
pub(super) struct Step {
    kind: Kind,
    space: Arc<Space>,
    asking: bool,
    /// Operations of all calls.
    size: usize,
    calls: Vec<(Vec<Op>, oneshot::Sender<Answer>)>,
}

/// Puts together what may go together. Calls that nobody waits for any more are left out.
pub(super) fn batches(jobs: Vec<Job>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    // The last batch that touches a key: what comes later for the same key must not go into an earlier one.
    let mut touched: HashMap<u64, usize> = HashMap::with_capacity(jobs.len());
    let keys = RandomState::new();
    for Job { task, answer } in jobs {
        if answer.is_closed() {
            continue;
        }
        match task {
            Task::Plain(command) => batches.push(Batch::Plain(command, answer)),
            Task::Step { space, ops, asking } => {
                let Some(kind) = ops.first().map(Op::kind) else { continue };
                let own = || ops.iter().filter_map(|op| op.keys().first()).map(|key| keys.hash_one(key));
                let first = own().filter_map(|key| touched.get(&key)).max().copied().unwrap_or_default();
                let fits = |batch: &Batch| batch.takes(kind, &space, asking, ops.len());
                let found = batches.iter().skip(first).position(fits).map(|after| first + after);
                let at = found.unwrap_or(batches.len());
                touched.extend(own().map(|key| (key, at)));
                if found.is_none() {
                    batches.push(Batch::Step(Step { kind, space, asking, size: 0, calls: Vec::new() }));
                }
                if let Batch::Step(step) = &mut batches[at] {
                    step.size += ops.len();
                    step.calls.push((ops, answer));
                }
            }
        }
    }
    batches
}

impl Batch {
    /// True when so many operations may join it.
    fn takes(&self, kind: Kind, space: &Arc<Space>, asking: bool, count: usize) -> bool {
        let Self::Step(step) = self else { return false };
        step.kind == kind
            && Arc::ptr_eq(&step.space, space)
            && !step.asking
            && !asking
            && step.size + count <= MAX_OPS
    }

    /// Sends it and deals out the answers. True when the connection is not to be used any more.
    pub(super) async fn fly(self, mut connection: MultiplexedConnection, replicas: Option<Replicas>) -> bool {
        match self {
            Self::Plain(command, answer) => {
                let outcome =
                    bounded(connection.send_packed_command(&command)).await.map(|value| vec![value]);
                let redial = outcome.as_ref().is_err_and(|failure| failure.turn == Turn::Redial);
                let _ = answer.send(outcome);
                redial
            }
            Self::Step(Step { kind, space, asking, calls, size: _ }) => {
                let ops: Vec<&Op> = calls.iter().flat_map(|(ops, _)| ops).collect();
                let outcome = run(&mut connection, kind, &space, &ops, asking, replicas).await;
                let redial = match &outcome {
                    Ok(answers) => answers.iter().any(super::answer::from_a_replica),
                    Err(failure) => failure.turn == Turn::Redial,
                };
                deal(calls, outcome);
                redial
            }
        }
    }
}

/// Runs the script, by its name first. A server that does not know it has done nothing, so it may be told in full.
async fn run(
    connection: &mut MultiplexedConnection,
    kind: Kind,
    space: &Space,
    ops: &[&Op],
    asking: bool,
    replicas: Option<Replicas>,
) -> Answer {
    let mut outcome =
        send(connection, script::call(By::Name, kind, space, ops.iter().copied()), asking, replicas).await;
    if outcome.as_ref().is_err_and(|failure| failure.turn == Turn::Teach) {
        outcome =
            send(connection, script::call(By::Text, kind, space, ops.iter().copied()), asking, replicas)
                .await;
    }
    match outcome? {
        Value::Array(answers) if answers.len() == ops.len() + 1 => Ok(answers),
        _ => Err(Failure::unanswered("the server answered something else than was asked")),
    }
}

async fn send(
    connection: &mut MultiplexedConnection,
    call: Cmd,
    asking: bool,
    replicas: Option<Replicas>,
) -> Result<Value, Failure> {
    if !asking && replicas.is_none() {
        let value = bounded(connection.send_packed_command(&call)).await?;
        return said(value);
    }
    let mut pipeline = Pipeline::with_capacity(3);
    if asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(call);
    if let Some(Replicas { count, limit }) = replicas {
        // Right behind the script and on the same connection: WAIT counts only what this connection wrote.
        pipeline.cmd("WAIT").arg(count).arg(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    }
    let at = usize::from(asking);
    let length = pipeline.len();
    let values = bounded(connection.send_packed_commands(&pipeline, 0, length)).await?;
    let mut values = values.into_iter().skip(at);
    let value = said(values.next().unwrap_or(Value::Nil))?;
    match (replicas, values.next()) {
        (Some(Replicas { count, .. }), acknowledged) => Ok(with_doubt(value, acknowledged.as_ref(), count)),
        _ => Ok(value),
    }
}

/// An answer, or the error that the server answers instead.
fn said(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(failure::of_code(error.code(), error.details().unwrap_or_default())),
        value => Ok(value),
    }
}

/// Replaces the answers that promise something that too few replicas have.
fn with_doubt(value: Value, acknowledged: Option<&Value>, count: u8) -> Value {
    let enough = matches!(acknowledged, Some(Value::Int(have)) if *have >= i64::from(count));
    match value {
        Value::Array(answers) if !enough => {
            Value::Array(answers.into_iter().map(super::answer::doubted).collect())
        }
        value => value,
    }
}

async fn bounded<T>(call: impl Future<Output = redis::RedisResult<T>>) -> Result<T, Failure> {
    match timeout(ANSWER_LIMIT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure::of_request(&error)),
        Err(_) => Err(Failure::unanswered(format!("no answer from the server within {ANSWER_LIMIT:?}"))),
    }
}

/// Gives each call its part. The first answer, the server's time, goes to everyone.
fn deal(calls: Vec<(Vec<Op>, oneshot::Sender<Answer>)>, outcome: Answer) {
    match outcome {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            let now = answers.next().unwrap_or(Value::Nil);
            for (ops, answer) in calls {
                let part = std::iter::once(now.clone()).chain(answers.by_ref().take(ops.len())).collect();
                let _ = answer.send(Ok(part));
            }
        }
        Err(failure) => {
            for (_, answer) in calls {
                let _ = answer.send(Err(failure.clone()));
            }
        }
    }
}
